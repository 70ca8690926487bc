"""`dra-driver migrate` against an API server (a stub): what a person reads, and exit statuses for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Ran
from tests.kube.stub_api import StubApi
from tests.migration.test_plan import PLUGIN, device_class, node, pod, slices

Migrate = Callable[..., Ran]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        for name in ("a", "b"):
            stub.put("nodes", node(name, gpu=2))
            stub.put("resource.k8s.io/resourceslices", {"metadata": {"name": f"s-{name}"}, **slices(name, 2)})
        stub.put("apps/daemonsets", PLUGIN)
        stub.put("resource.k8s.io/deviceclasses", device_class("nvidia.com/gpu"))
        stub.put("pods", pod("train", on="a", gpu=1))
        yield stub


@pytest.fixture
def migrate(api: StubApi, command: Command, tmp_path: Path) -> Migrate:
    return lambda *arguments: command("migrate", *arguments, "--kubeconfig", api.kubeconfig(tmp_path))


def test_the_table_and_the_steps(migrate: Migrate, api: StubApi) -> None:
    ran = migrate("a")
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "NODE   GPUS FOR   DEVICE PLUGIN OFFERS   PODS USING IT   DRIVER PUBLISHES",
        "a      both       nvidia.com/gpu=2       1               2 devices",
        "",
        "Steps (nothing has been changed):",
        "  1. Let no new pod come",
        "     kubectl cordon a",
        "  2. End the pods that have GPUs through the device plugin (1)",
        "     kubectl delete pod -n ml train",
        (
            "  3. Take the device plugin gpu/nvidia-device-plugin-daemonset off, by a label that it keeps away from "
            "(where Helm manages it, its values need the same)"
        ),
        "     kubectl label node a gpu.nvidia.com/claims=true --overwrite",
        (
            "     kubectl patch daemonset nvidia-device-plugin-daemonset -n gpu --type=merge -p "
            '\'{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":'
            '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpu.nvidia.com/claims","operator":"DoesNotExist"}]}]}}}}}}}\''
        ),
        "  4. Wait until the kubelet offers nothing any more",
        "     kubectl wait node/a --timeout=120s --for=jsonpath='{.status.allocatable.nvidia\\.com/gpu}'=0",
        "  5. Let pods come again",
        "     kubectl uncordon a",
        "  6. See that it is so",
        "     dra-driver migrate a",
    ]
    assert ran.returncode == 0
    assert api.writes() == []


def test_pods_that_would_break_come_first_and_make_it_fail(migrate: Migrate, api: StubApi) -> None:
    api.put("pods", pod("notebook", on="b", gpu_shared=1))
    api.put("pods", pod("bare", on="b", owner="", gpu=1))
    ran = migrate()
    assert ran.returncode == 1
    before = ran.stdout.partition("Before:\n")[2].splitlines()
    assert before[0].startswith("  breaks  nvidia.com/gpu.shared: asked for by ml/notebook (ReplicaSet/x)")
    assert before[1].startswith("          -> ")
    assert before[2].startswith("  note    made by hand")


def test_moved_nodes_are_said_to_be_so_and_unknown_ones_to_be_unknown(migrate: Migrate, api: StubApi) -> None:
    api.put("nodes", node("a", gpu=0))
    ran = migrate("a")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (
        0,
        "These nodes are left to claims: no device plugin offers their GPUs.",
    )
    ran = migrate("a", "z")
    assert ran.returncode == 2
    assert ran.stderr.startswith("dra-driver: looking at z: no node of that name has GPUs")
    for name in ("a", "b"):
        api.delete("nodes", name)
    assert migrate().stdout.startswith("No node has GPUs")


def test_an_api_server_that_refuses_is_told_in_a_line(migrate: Migrate, api: StubApi) -> None:
    api.fail("GET", "/api/v1/pods", 403, times=None, reason="Forbidden")
    ran = migrate()
    assert ran.returncode == 2
    assert "403" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_the_guide_shows_what_is_printed(api: StubApi, migrate: Migrate) -> None:
    for name in ("a", "b"):
        api.delete("nodes", name)
        api.delete("resource.k8s.io/resourceslices", f"s-{name}")
    for name in ("worker-1", "worker-2"):
        api.put("nodes", node(name, gpu=8))
        api.put("resource.k8s.io/resourceslices", {"metadata": {"name": f"s-{name}"}, **slices(name)})
    api.put("pods", pod("train", on="worker-1", owner="Job/train", gpu=4))
    api.put("pods", pod("notebook", on="worker-1", owner="", gpu_shared=1))
    guide = (ROOT / "docs" / "from-the-device-plugin.md").read_text()
    shown = re.search(r"^```console\n\$ dra-driver migrate worker-1\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert shown
    assert shown[1] == migrate("worker-1").stdout
