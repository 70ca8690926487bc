"""An agent on a node whose GPUs a device plugin gives to pods as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_driver.kinds.gpu import device_name
from dra_driver.model.gpu import PciAddress
from tests.device_plugin.fake_kubelet import FakePodResources
from tests.flows.agent import Agent
from tests.flows.node import DRIVER, GPU_0, GPU_1, FlowNode
from tests.kubelet.fake_kubelet import eventually

TAKEN = f"{DRIVER}/device-plugin=taken:NoSchedule"
RESOURCE = "nvidia.com/gpu"


@pytest.fixture
def kubelet(node: FlowNode) -> Iterator[FakePodResources]:
    with FakePodResources(node.directory / "kubelet") as fake:
        yield fake


@pytest.fixture
def uuids(node: FlowNode) -> dict[str, str]:
    """Of the machine's GPUs, by device name."""
    gpus = (node.machine.gpu(index) for index in range(4))
    return {device_name(PciAddress.parse(gpu.pci)): gpu.uuid for gpu in gpus}


def test_a_gpu_that_a_pod_has_through_a_device_plugin_is_tainted_and_refused(
    node: FlowNode, kubelet: FakePodResources, uuids: dict[str, str]
) -> None:
    kubelet.offer(RESOURCE, *uuids.values())
    kubelet.give("ml/train", RESOURCE, uuids[GPU_0])
    with Agent(node) as agent:
        eventually(lambda: node.published().get(GPU_0) == [TAKEN])
        assert node.published()[GPU_1] == []
        taken, free = node.claim(GPU_0), node.claim(GPU_1)
        words = f"device {GPU_0} was given to pod ml/train through {RESOURCE} by a device plugin"
        assert words in agent.refused(taken)
        assert node.nothing_left_of(taken)
        agent.prepare(free)
        agent.prepare(node.claim(GPU_0, admin=True))
        event = eventually(lambda: [e for e in node.api.list("events") if e["reason"] == "DevicePluginBeside"])[0]
        assert event["involvedObject"]["kind"] == "Node"
        kubelet.end("ml/train")
        agent.prepare(taken)
        eventually(lambda: node.published()[GPU_0] == [])


def test_a_gpu_given_twice_by_a_device_plugin_that_came_later_is_told_on_the_claim(
    node: FlowNode, kubelet: FakePodResources, uuids: dict[str, str]
) -> None:
    with Agent(node) as agent:
        ref = node.claim(GPU_0)
        devices = agent.prepare(ref)
        assert kubelet.calls == []
        kubelet.offer(RESOURCE, *uuids.values())
        kubelet.give("ml/other", RESOURCE, uuids[GPU_0])
        [message] = eventually(lambda: node.events(ref, "GPUGivenTwice"))
        assert "pod ml/other" in message
        assert agent.prepare(ref) == devices, "the running pod keeps what it has"
        agent.unprepare(ref)


def test_a_node_that_is_left_to_the_device_plugin_gives_claims_nothing(
    node: FlowNode, kubelet: FakePodResources, uuids: dict[str, str]
) -> None:
    kubelet.offer(RESOURCE, *uuids.values())
    with Agent(node, device_plugin="yield") as agent:
        eventually(lambda: set(map(tuple, node.published().values())) == {(TAKEN,)})
        assert "to which this node is left" in agent.refused(node.claim(GPU_0))
        kubelet.offer(RESOURCE)
        agent.prepare(node.claim(GPU_0))


def test_a_device_plugin_can_be_ignored(node: FlowNode, kubelet: FakePodResources, uuids: dict[str, str]) -> None:
    kubelet.offer(RESOURCE, *uuids.values())
    kubelet.give("ml/train", RESOURCE, uuids[GPU_0])
    with Agent(node, device_plugin="ignore") as agent:
        agent.prepare(node.claim(GPU_0))
        assert kubelet.calls == []


def test_while_the_kubelet_cannot_say_who_has_what_a_claim_waits(
    node: FlowNode, kubelet: FakePodResources, uuids: dict[str, str]
) -> None:
    kubelet.offer(RESOURCE, *uuids.values())
    with Agent(node) as agent:
        ref = node.claim(GPU_0)
        kubelet.stop()
        assert "asking the kubelet which pods have devices of device plugins" in agent.refused(ref)
        kubelet.start()
        agent.prepare(ref)
