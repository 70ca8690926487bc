"""Whoever stops, dies or cannot be reached while GPUs are in use (agent, kubelet, runtime, node, API server): nothing is
lost, and nothing is left behind."""

from __future__ import annotations

import signal

import pytest

from e2e.installation import until
from e2e.objects import A100, STAY, pod, request, template
from e2e.tests.space import Space

pytestmark = pytest.mark.once


@pytest.mark.usefixtures("agent_again")
def test_an_agent_killed_while_pods_run_comes_back_and_loses_nothing(space: Space) -> None:
    space.run("before", A100)
    before = [item["metadata"]["uid"] for item in space.on.slices("node-b")]
    space.on.agents["node-b"].kill()
    space.on.start_agent("node-b")
    space.run("after", A100)
    assert space.gpus("after").isdisjoint(space.gpus_now("before"))
    assert [item["metadata"]["uid"] for item in space.on.slices("node-b")] == before, "slices were written again"
    space.delete("pod", "before")
    until("the record of the first claim to go", lambda: len(space.records("node-b")) == 1, 60)


@pytest.mark.usefixtures("agent_again")
def test_a_call_that_runs_when_the_agent_is_stopped_is_answered(space: Space) -> None:
    machine = space.on.machine("node-b")
    machine.delay_call("nvmlDeviceGetUUID", 2.5)
    try:
        space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"]))
        until("the claim to be on record", lambda: space.records("node-b"), 90, every=0.02)
        assert space.on.agents["node-b"].stop() == 0
    finally:
        machine.heal()
    space.running("pod")  # without any agent
    assert space.warnings("pod") == ""


@pytest.mark.usefixtures("agent_again")
def test_a_pod_made_while_no_agent_runs_waits_for_it(space: Space) -> None:
    assert space.on.agents["node-b"].stop() == 0
    space.apply(template("gpu", request("gpu", A100)), pod("early", templates=["gpu"]))
    space.pending("early", "gpu.nvidia.com")
    (state,) = until("its status", lambda: space.containers("early"), 20)  # comes a moment after the Event
    assert state["state"]["waiting"]["reason"] == "ContainerCreating"
    space.on.start_agent("node-b")
    space.running("early")
    assert space.gpus("early") == space.allocated_uuids("early")


@pytest.mark.usefixtures("agent_again")
def test_a_pod_deleted_while_the_agent_is_down_is_cleaned_up_when_it_is_back(space: Space) -> None:
    space.run("pod", A100)
    space.on.agents["node-b"].send(signal.SIGTERM)
    assert space.on.agents["node-b"].wait(10) == 0
    space.delete("pod", "pod", "--wait=false")
    space.on.start_agent("node-b")
    until("the record to go", lambda: not space.records("node-b"), 90)


def test_two_agents_overlap_during_an_upgrade_and_every_call_is_answered(space: Space) -> None:
    space.run("old", A100)
    newer = space.on.start_agent("node-b", name="agent-newer", wait=False, instance="newer")
    until("the newer agent to be registered", lambda: newer.log.exists() and "registered" in newer.log.read_text(), 20)
    space.run("new", A100)
    assert space.gpus("new").isdisjoint(space.gpus("old"))
    assert newer.stop() == 0
    space.delete("pod", "old")
    space.delete("pod", "new")
    until("both records to go", lambda: not space.records("node-b"), 60)


def test_a_kubelet_restart_changes_nothing_for_running_pods_and_slices_come_back(space: Space) -> None:
    space.run("pod", A100)
    node = space.on.cluster.nodes["node-b"]
    node.stop_kubelet()
    node.start_kubelet()
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)
    space.run("later", A100)
    assert space.gpus("later").isdisjoint(space.gpus("pod"))


def test_a_kubelet_killed_while_it_waits_for_a_gpu_asks_again_and_gets_the_same(space: Space) -> None:
    node, machine = space.on.cluster.nodes["node-b"], space.on.machine("node-b")
    said = space.listen("node-b")
    machine.delay_call("nvmlDeviceGetUUID", 2.0)
    try:
        space.apply(template("gpu", request("gpu", A100)), pod("slow", templates=["gpu"]))
        until("the claim to be on record", lambda: space.records("node-b"), 90, every=0.02)
        node.kill_kubelet()
    finally:
        machine.heal()
    node.start_kubelet()
    space.running("slow", seconds=120)
    assert space.gpus("slow") == space.allocated_uuids("slow")
    assert len(space.records("node-b")) == 1
    until("both answers", lambda: len([line for line in said() if line["msg"] == "prepared"]) == 2, 20)


def test_a_pod_deleted_while_its_gpu_is_prepared_leaves_nothing_behind(space: Space) -> None:
    machine = space.on.machine("node-b")
    machine.delay_call("nvmlDeviceGetUUID", 2.0)
    try:
        space.apply(template("gpu", request("gpu", A100)), pod("short", templates=["gpu"]))
        until("the claim to be on record", lambda: space.records("node-b"), 90, every=0.02)
        space.delete("pod", "short")
    finally:
        machine.heal()
    until("the record to go", lambda: not space.records("node-b"), 30)


def test_a_containerd_restart_leaves_claims_alone(space: Space) -> None:
    space.run("pod", A100)
    space.on.cluster.nodes["node-b"].restart_containerd()
    space.run("later", A100)
    assert space.gpus("later").isdisjoint(space.gpus("pod"))


def test_a_node_reboot_is_noticed_and_pods_get_their_gpus_again(space: Space) -> None:
    space.run("pod", A100, restart="Always")
    mine = space.gpus("pod")
    space.on.cluster.nodes["node-b"].reboot()
    space.on.machine("node-b").reboot()
    space.on.start_agent("node-b")
    space.restarted("pod")
    assert space.gpus_now("pod") == space.allocated_uuids("pod") == mine


def test_a_wiped_cdi_directory_is_restored_so_that_containers_can_restart(space: Space) -> None:
    short = pod("pod", templates=["gpu"], restart="Always", node="node-b", command="nvidia-smi -L; sleep 4")
    space.apply(template("gpu"), short)
    space.running("pod")
    for file in space.on.cluster.nodes["node-b"].path("/run/cdi").iterdir():
        file.unlink()
    until("the CDI spec", lambda: len(space.on.on_node("node-b", "/run/cdi")) == 1, 10)
    space.restarted("pod")


def test_an_api_server_restart_is_not_noticed_by_running_pods_and_later_ones_get_gpus(space: Space) -> None:
    space.run("pod", A100)
    with space.api_server_away():
        pass
    space.run("later", A100)
    assert space.gpus_now("pod").isdisjoint(space.gpus("later"))
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)


def test_a_gpu_is_given_back_while_the_api_server_is_away(space: Space) -> None:
    """Unpreparing needs the node only: the kubelet asks when the container has ended, wherever the API server is."""
    lingering = f"nvidia-smi -L; {STAY.replace('exit 0', 'sleep 4; exit 0')}"
    space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"], command=lingering))
    space.running("pod")
    space.gpus("pod")
    space.delete("pod", "pod", "--wait=false")
    with space.api_server_away():
        assert len(space.records("node-b")) == 1
        until("the record to go", lambda: not space.records("node-b"), 60)
    until("the pod to go", lambda: space.on.pod("pod", space.name) is None, 60)


def test_a_pod_made_just_before_the_node_loses_the_network_runs_when_it_is_back(space: Space) -> None:
    node, machine = space.on.cluster.nodes["node-b"], space.on.machine("node-b")
    machine.delay_call("nvmlDeviceGetUUID", 1.0)
    space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"]))
    until("the claim to be on record", lambda: space.records("node-b"), 90, every=0.02)
    node.disconnect()
    try:
        machine.heal()
        until("a CDI spec", lambda: space.on.on_node("node-b", "/run/cdi"), 30)
    finally:
        node.connect()
    space.running("pod", seconds=120)
    assert space.gpus("pod") == space.allocated_uuids("pod")


@pytest.mark.usefixtures("agent_again")
def test_an_agent_killed_again_and_again_while_it_prepares_leaks_nothing(space: Space) -> None:
    machine = space.on.machine("node-b")
    machine.delay_call("nvmlDeviceGetUUID", 0.5)
    try:
        space.apply(template("gpus", request("gpus", A100, count=2)), pod("pod", templates=["gpus"]))
        for _ in range(3):
            until("the claim to be on record", lambda: space.records("node-b"), 90, every=0.01)
            space.on.agents["node-b"].kill()
            space.on.start_agent("node-b")
            space.poke("pod")
    finally:
        machine.heal()
    space.running("pod")
    assert space.gpus("pod") == space.allocated_uuids("pod")
    assert len(space.records("node-b")) == 1
