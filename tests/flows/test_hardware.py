"""GPUs and drivers that fail, go and come back under a running agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.agent import Agent
from tests.flows.node import DRIVER, GPU_0, GPU_1, SLICES, FlowNode
from tests.kubelet.fake_kubelet import eventually

LOST = f"{DRIVER}/gpu-lost=lost:NoSchedule"


@pytest.fixture
def agent(node: FlowNode) -> Iterator[Agent]:
    with Agent(node, nvml_timeout_s="1") as running:
        eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})
        yield running
        node.machine.heal()


def two(node: FlowNode) -> dict[str, list[str]]:
    """The first two of the machine's GPUs, as they are published."""
    return {device: taints for device, taints in node.published().items() if device in (GPU_0, GPU_1)}


def test_a_gpu_lost_while_its_claim_is_prepared_stays_published_with_a_taint_and_comes_back(
    node: FlowNode, agent: Agent
) -> None:
    ref = node.claim(GPU_0)
    before = agent.prepare(ref)
    node.machine.lose_gpu(0)
    eventually(lambda: two(node) == {GPU_0: [LOST], GPU_1: []})
    text = agent.refused(ref)
    assert f"its device {GPU_0}" in text
    assert "does not answer" in text
    assert "nvidia-smi" in text
    assert node.wholly_prepared(ref, GPU_0), "what is on record is not thrown away for it"
    node.machine.return_gpu(0)
    eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})
    assert agent.prepare(ref) == before
    agent.unprepare(ref)


def test_a_claim_of_a_lost_gpu_is_unprepared_and_then_the_gpu_is_no_longer_published(
    node: FlowNode, agent: Agent
) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    node.machine.lose_gpu(0)
    eventually(lambda: node.published()[GPU_0] == [LOST])
    agent.unprepare(ref)
    assert node.nothing_left()
    eventually(lambda: two(node) == {GPU_1: []})
    assert "0000:3b:00.0" in agent.refused(node.claim(GPU_0))


def test_a_gpu_pulled_out_while_nobody_holds_it_is_no_longer_published(node: FlowNode, agent: Agent) -> None:
    node.machine.remove_gpu(1)
    eventually(lambda: two(node) == {GPU_0: []})
    assert f"device {GPU_1} was allocated, but this node has no such device" in agent.refused(node.claim(GPU_1))
    agent.prepare(node.claim(GPU_0))
    node.machine.insert_gpu(1)
    agent.prepare(node.claim(GPU_1))
    eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})


def test_a_hanging_gpu_delays_nobody_else_and_is_refused_in_bounded_time(node: FlowNode, agent: Agent) -> None:
    stuck, fine = node.claim(GPU_0), node.claim(GPU_1)
    agent.prepare(fine)  # everything that is slow the first time is done
    agent.unprepare(fine)
    node.machine.hang_call("*", which=0)
    begin = time.monotonic()
    answers: dict[str, float] = {}

    def ask() -> None:
        assert "no answer from NVML within 1 s" in agent.refused(stuck)
        answers["stuck"] = time.monotonic() - begin

    waiting = threading.Thread(target=ask)
    waiting.start()
    agent.prepare(fine)
    assert "stuck" not in answers, "it was served while the other still waited"
    waiting.join()
    assert answers["stuck"] < 20.0
    eventually(lambda: two(node) == {GPU_1: []})
    text = agent.refused(stuck)
    assert f"device {GPU_0} was allocated, but cannot be used now: GPU 0000:3b:00.0: no answer from NVML" in text
    agent.unprepare(fine)
    node.machine.heal()
    eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})
    agent.prepare(stuck)


def test_a_claim_of_a_hanging_gpu_is_unprepared_without_asking_it(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    node.machine.hang_call("*", which=0)
    agent.unprepare(ref)  # asked, the GPU would not answer, and this would fail
    assert node.nothing_left()


def test_a_driver_unloaded_and_loaded_again(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    before = agent.prepare(ref)
    node.machine.unload_driver()
    eventually(lambda: node.published() == {GPU_0: [LOST]})
    for claim in (ref, node.claim(GPU_1)):
        text = agent.refused(claim)
        assert "the kernel driver is not loaded" in text
        assert "modprobe nvidia" in text
    node.machine.load_driver()
    assert agent.prepare(ref) == before
    eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})


def test_a_machine_without_the_library_is_served_and_published_when_the_driver_comes(node: FlowNode) -> None:
    node.machine.remove_library()
    with Agent(node) as agent:
        text = agent.refused(node.claim(GPU_0))
        assert "libnvidia-ml.so.1 not found" in text
        assert "install NVIDIA's driver" in text
        assert node.published() == {}
        eventually(lambda: node.api.list(SLICES))
        [pool] = [item["spec"] for item in node.api.list(SLICES)]
        assert not pool.get("devices")
        node.machine.restore_library()
        eventually(lambda: two(node) == {GPU_0: [], GPU_1: []})
        agent.prepare(node.claim(GPU_0))


def test_a_real_machine_without_a_driver_is_served_and_says_what_to_do(
    node: FlowNode, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = place / "host"
    (host / "dev").mkdir(parents=True)
    with Agent(node, machine="", host_root=str(host), driver_root="/opt/nothing") as agent:
        text = agent.refused(node.claim(GPU_0))
        assert "driver" in text
        eventually(lambda: any("GPU problem" in record.message for record in caplog.records))
        agent.unprepare(node.claim(GPU_0))
    [problem] = {record.getMessage() for record in caplog.records if "GPU problem" in record.message}
    assert "/opt/nothing" in problem


def test_a_gpu_lost_while_the_agent_was_away_keeps_its_claim_and_is_said(node: FlowNode) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_1)
    with Agent(node) as agent:
        before = agent.prepare(ref)
        agent.prepare(other)
    node.machine.lose_gpu(0)
    with Agent(node) as agent:
        assert node.wholly_prepared(ref, GPU_0)
        assert "does not answer" in agent.refused(ref)
        eventually(lambda: two(node) == {GPU_0: [LOST], GPU_1: []})
        [message] = eventually(lambda: node.events(ref, "PreparedClaimNotConfirmed"))
        assert GPU_0 in message
        node.machine.return_gpu(0)
        assert agent.prepare(ref) == before
