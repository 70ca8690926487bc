"""An agent that ends for good leaves nothing behind but what running pods need; one that ends for a while leaves everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.agent import Agent
from tests.flows.node import CLAIMS, GPU_0, GPU_1, SLICES, FlowNode
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually

DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "gpus"}}
OURS = {"daemonset": "gpus/agent"}


def _files(node: FlowNode) -> list[str]:
    # The stub's kubeconfig and the kubelet's own directories are not ours.
    kept = ("kubeconfig", "kubelet", "kubelet/plugins", "kubelet/plugins_registry")
    found = (path.relative_to(node.directory) for path in Path(node.directory).rglob("*"))
    return sorted(str(path) for path in found if str(path) not in kept and not str(path).startswith("kubeconfig"))


def _published(api: StubApi) -> bool:
    return bool(api.list(SLICES))


@pytest.fixture
def published(api: StubApi) -> Callable[[], None]:
    return lambda: eventually(lambda: _published(api), why="nothing was published")


def test_of_an_uninstalled_driver_nothing_is_left(node: FlowNode, api: StubApi, published: Callable[[], None]) -> None:
    with Agent(node, **OURS) as agent:
        published()
        ref = node.claim(GPU_0)
        agent.prepare(ref)
        api.delete(CLAIMS, ref.name, "default")  # and its pod was deleted by force: the kubelet does not ask
    assert not _published(api)
    assert [name for name in _files(node) if name != "cdi"] == []


def test_claims_in_use_keep_what_they_need(node: FlowNode, api: StubApi, published: Callable[[], None]) -> None:
    with Agent(node, **OURS) as agent:
        published()
        gone, used = node.claim(GPU_0), node.claim(GPU_1)
        agent.prepare(gone)
        agent.prepare(used)
        api.delete(CLAIMS, gone.name, "default")
    assert not _published(api)
    specs = [path.name for path in (node.directory / "cdi").iterdir()]
    assert [used.uid in name for name in specs] == [True]
    assert [path for path in _files(node) if path.startswith("run/ledger") and used.uid in path]
    with Agent(node) as agent:  # installed again, it finds the claim and lets go of it when the pod ends
        agent.unprepare(used)
    assert not list((node.directory / "cdi").iterdir())


def test_an_agent_that_is_updated_leaves_everything(
    node: FlowNode, api: StubApi, published: Callable[[], None]
) -> None:
    api.put("apps/daemonsets", DAEMONSET)
    with Agent(node, **OURS) as agent:
        published()
        ref = node.claim(GPU_0)
        agent.prepare(ref)
        api.delete(CLAIMS, ref.name, "default")
    assert _published(api)
    assert [path for path in _files(node) if ref.uid in path]


def test_a_daemonset_on_its_way_out_counts_as_deleted(
    node: FlowNode, api: StubApi, published: Callable[[], None]
) -> None:
    going = {**DAEMONSET, "metadata": {**DAEMONSET["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}  # type: ignore[dict-item]
    api.put("apps/daemonsets", going)
    with Agent(node, **OURS):
        published()
    assert not _published(api)


@pytest.mark.parametrize("status", [403, 500])
def test_who_may_not_ask_leaves_everything(
    node: FlowNode, api: StubApi, published: Callable[[], None], status: int
) -> None:
    api.fail("GET", "daemonsets", status=status, times=None)
    with Agent(node, **OURS):
        published()
    assert _published(api)


def test_an_api_server_that_does_not_answer_is_not_waited_for_longer_than_a_pod_is_given_to_end(
    node: FlowNode, api: StubApi, published: Callable[[], None]
) -> None:
    api.fail("GET", "daemonsets", delay_s=40.0)
    with Agent(node, **OURS):
        published()
        begin = time.monotonic()
    assert time.monotonic() - begin < 15.0  # of 30 s, and a call that is running may take 20
    assert _published(api)


def test_a_claim_that_cannot_be_asked_about_is_kept(
    node: FlowNode, api: StubApi, published: Callable[[], None]
) -> None:
    with Agent(node, **OURS) as agent:
        published()
        ref = node.claim(GPU_0)
        agent.prepare(ref)
        api.fail("GET", "resourceclaims", status=500, times=None)
    assert not _published(api)
    assert [path for path in _files(node) if ref.uid in path]
