"""`dra-driver uninstall` against an API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.kube.stub_api import StubApi

SLICES = "resource.k8s.io/resourceslices"


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        yield stub


def _claim(name: str, driver: str | None, *pods: str) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": driver, "pool": "node-a", "device": "gpu-0"}]
    allocated = {"allocation": {"devices": {"results": results}}} if driver else {}
    reserved = {"reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]} if pods else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {},
        "status": {**allocated, **reserved},
    }


def _slice(name: str, driver: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": "node-a", "pool": {"name": "node-a"}},
    }


def test_claims_in_use_are_named_and_nothing_is_done(api: StubApi, within: Command, tmp_path: Path) -> None:
    for claim in (
        _claim("training", "gpu.nvidia.com", "worker-0", "worker-1"),
        _claim("by-hand", "gpu.nvidia.com"),
        _claim("waiting", None),
        _claim("network", "net.example.com", "worker-0"),
    ):
        api.put("resource.k8s.io/resourceclaims", claim)
    api.put(SLICES, _slice("a", "gpu.nvidia.com"))
    config = api.kubeconfig(tmp_path)
    done = within("uninstall", "--kubeconfig", config, "--daemonset", "gpus/agent")
    assert done.returncode == 1
    assert done.stderr.splitlines()[:3] == [
        "GPUs of gpu.nvidia.com are in use by 2 claims:",
        "  team/by-hand (reserved for nobody)",
        "  team/training (pods worker-0, pods worker-1)",
    ]
    assert "Nothing was uninstalled" in done.stderr
    assert not api.writes()
    assert within("uninstall", "--kubeconfig", config, "--driver-name", "gpu.example.com").returncode == 0
    assert api.list(SLICES)
    assert within("uninstall", "--kubeconfig", config, "--force").returncode == 0
    assert not api.list(SLICES)


def test_agents_go_before_slices_and_others_keep_theirs(api: StubApi, within: Command, tmp_path: Path) -> None:
    api.put("apps/daemonsets", {"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "gpus"}})
    for name, driver in (("a", "gpu.nvidia.com"), ("b", "net.example.com"), ("c", "gpu.nvidia.com")):
        api.put(SLICES, _slice(name, driver))
    done = within("uninstall", "--kubeconfig", api.kubeconfig(tmp_path), "--daemonset", "gpus/agent")
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        ["DaemonSet gpus/agent and its agents are gone", "2 ResourceSlices were left and are deleted"],
    )
    assert [item["metadata"]["name"] for item in api.list(SLICES)] == ["b"]
    first = api.writes()[0]
    assert (first.method, first.body) == ("DELETE", {"propagationPolicy": "Foreground"})
    again = within("uninstall", "--kubeconfig", api.kubeconfig(tmp_path), "--daemonset", "gpus/agent")
    assert again.returncode == 0


def test_agents_that_do_not_end_are_told(api: StubApi, within: Command, tmp_path: Path) -> None:
    api.put("apps/daemonsets", {"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "gpus"}})
    api.fail("DELETE", "daemonsets", lose_answer=False, status=200, body=b"{}", times=None)
    config = api.kubeconfig(tmp_path)
    done = within("uninstall", "--kubeconfig", config, "--daemonset", "gpus/agent", "--timeout-s", "0")
    assert done.returncode == 2
    assert "deleting DaemonSet gpus/agent: pods of" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--daemonset", "agent"), "write it as NAMESPACE/NAME"), (("--timeout-s", "soon"), "is no number of seconds")],
)
def test_nonsense_is_refused(
    api: StubApi, within: Command, tmp_path: Path, arguments: tuple[str, str], words: str
) -> None:
    done = within("uninstall", "--kubeconfig", api.kubeconfig(tmp_path), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
