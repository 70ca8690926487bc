"""What breaks while GPUs are in use: pods, agent, kubelet, runtime, node, API server, files, hardware. Nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.kinds.gpu import pci_of
from e2e.installation import until
from e2e.objects import A100, L40S, claim, pod, request, template
from e2e.tests.conftest import EMULATE, RUN_DIR, Space

# What a release of the API has no part in is run once, on the newest.
once = pytest.mark.skipif(EMULATE is not None, reason="does not depend on the release of the API server")


def restarted(space: Space, name: str, more_than: int = 0) -> dict[str, Any]:
    def ask() -> dict[str, Any] | None:
        found = space.on.pod(name, space.name)
        statuses = found["status"].get("containerStatuses") if found else None
        again = statuses and statuses[0]["restartCount"] > more_than and statuses[0].get("state", {}).get("running")
        return found if again else None

    return until(f"a restart of the container of {name}", ask, 60)


def record_names(space: Space, node: str) -> list[str]:
    return space.on.on_node(node, f"{RUN_DIR}/claims")


@pytest.fixture
def agent_again(space: Space) -> Iterator[None]:
    """Whatever a test did to the agent of node-b, one runs afterwards."""
    yield
    if space.on.agents["node-b"].poll() is not None:
        space.on.start_agent("node-b")


def on_node_b(space: Space, name: str = "pod", restart: str = "Never") -> None:
    space.apply(template(f"{name}-gpu", request("gpu", A100)), pod(name, templates=[f"{name}-gpu"], restart=restart))
    space.running(name)


@once
def test_a_force_deleted_pod_gives_its_gpu_back(space: Space) -> None:
    space.apply(template("all", request("gpus", L40S, count=4)), pod("first", templates=["all"]))
    space.running("first")
    space.delete("pod", "first", "--force", "--grace-period=0")
    space.apply(pod("second", templates=["all"]))
    space.running("second", seconds=120)
    assert len(space.gpus("second")) == 4


@once
def test_a_crash_looping_container_gets_its_gpu_at_every_start(space: Space) -> None:
    looping = pod("loop", templates=["gpu"], restart="Always", command="nvidia-smi -L && sleep 1 && exit 1")
    space.apply(template("gpu"), looping)
    restarted(space, "loop")
    assert space.gpus("loop") == space.allocated_uuids("loop")


@once
@pytest.mark.usefixtures("agent_again")
def test_an_agent_killed_while_pods_run_comes_back_and_loses_nothing(space: Space) -> None:
    on_node_b(space, "before")
    before = [item["metadata"]["uid"] for item in space.on.slices("node-b")]
    space.on.agents["node-b"].kill()
    space.apply(template("during-gpu", request("gpu", L40S)), pod("during", templates=["during-gpu"]))
    space.on.start_agent("node-b")
    space.running("during")
    assert space.gpus("during").isdisjoint(space.gpus("before"))
    assert [item["metadata"]["uid"] for item in space.on.slices("node-b")] == before, "slices were written again"
    space.delete("pod", "before")
    until("the record of the first claim to go", lambda: len(record_names(space, "node-b")) == 1, 60)


@once
@pytest.mark.usefixtures("agent_again")
def test_a_pod_deleted_while_the_agent_is_down_is_cleaned_up_when_it_is_back(space: Space) -> None:
    on_node_b(space)
    space.on.agents["node-b"].send(signal.SIGTERM)
    assert space.on.agents["node-b"].wait(10) == 0
    space.on.kubectl("delete", "pod", "pod", "-n", space.name, "--wait=false")
    space.on.start_agent("node-b")
    until("the record to go", lambda: not record_names(space, "node-b"), 90)


@once
def test_two_agents_overlap_during_an_upgrade_and_every_call_is_answered(space: Space) -> None:
    on_node_b(space, "old")
    newer = space.on.start_agent("node-b", name="agent-newer", wait=False, instance="newer")
    until("the newer agent to serve", lambda: "serving" in newer.log.read_text(), 20)
    space.apply(template("new-gpu", request("gpu", A100)), pod("new", templates=["new-gpu"]))
    space.running("new")
    assert space.gpus("new").isdisjoint(space.gpus("old"))
    assert newer.stop() == 0
    space.delete("pod", "old")
    space.delete("pod", "new")
    until("both records to go", lambda: not record_names(space, "node-b"), 60)


@once
def test_a_kubelet_restart_changes_nothing_for_running_pods_and_slices_come_back(space: Space) -> None:
    on_node_b(space)
    node = space.on.cluster.nodes["node-b"]
    node.stop_kubelet()
    node.start_kubelet()
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)
    space.apply(template("gpu", request("gpu", A100)), pod("later", templates=["gpu"]))
    space.running("later", seconds=120)
    assert space.gpus("later").isdisjoint(space.gpus("pod"))


@once
def test_a_containerd_restart_leaves_claims_alone(space: Space) -> None:
    on_node_b(space)
    space.on.cluster.nodes["node-b"].restart_containerd()
    space.apply(template("gpu", request("gpu", A100)), pod("later", templates=["gpu"]))
    space.running("later", seconds=120)
    assert space.gpus("later").isdisjoint(space.gpus("pod"))


@once
def test_a_node_reboot_is_noticed_and_pods_get_their_gpus_again(space: Space) -> None:
    on_node_b(space, restart="Always")
    mine = space.gpus("pod")
    node = space.on.cluster.nodes["node-b"]
    node.reboot()
    space.on.machine("node-b").reboot()
    space.on.start_agent("node-b")
    restarted(space, "pod")
    assert "GPU 0: " in space.on.execute("pod", "nvidia-smi", "-L", namespace=space.name)
    assert space.allocated_uuids("pod") == mine


@once
def test_a_wiped_cdi_directory_is_restored_so_that_containers_can_restart(space: Space) -> None:
    short = pod("pod", templates=["gpu"], restart="Always", node="node-b", command="nvidia-smi -L; sleep 4")
    space.apply(template("gpu"), short)
    space.running("pod")
    for file in space.on.cluster.nodes["node-b"].path("/run/cdi").iterdir():
        file.unlink()
    until("the CDI spec", lambda: len(space.on.on_node("node-b", "/run/cdi")) == 1, 10)
    restarted(space, "pod")


@once
@pytest.mark.usefixtures("agent_again")
def test_a_damaged_record_is_set_aside_and_its_claim_rebuilt(space: Space) -> None:
    on_node_b(space)
    space.on.agents["node-b"].kill()
    (name,) = record_names(space, "node-b")
    record = space.on.cluster.nodes["node-b"].path(f"{RUN_DIR}/claims/{name}")
    record.write_bytes(record.read_bytes()[:40])
    space.on.start_agent("node-b")
    until("the record to be rebuilt", lambda: name in record_names(space, "node-b"), 30)
    said = until("an Event", lambda: space.warnings("pod-pod-gpu") or None, 30)
    assert "ClaimRebuilt" in said


@once
def test_a_lost_gpu_is_reported_kept_for_its_claim_and_comes_back(space: Space) -> None:
    on_node_b(space)
    (device,) = space.allocated("pod")
    machine, pci = space.on.machine("node-b"), str(pci_of(device))

    def published() -> dict[str, Any] | None:
        return next((item for item in space.on.devices("node-b") if item["name"] == device), None)

    machine.lose_gpu(pci)
    until("the taint", lambda: (published() or {}).get("taints"), 30)
    space.apply(template("gpu", request("gpu", A100, count=2)), pod("later", templates=["gpu"]))
    space.pending("later", "cannot allocate all claims")
    machine.return_gpu(pci)
    until("the taint to go", lambda: published() and not (published() or {}).get("taints"), 30)


@once
def test_prepare_waits_for_the_api_server_and_running_pods_do_not_notice(space: Space) -> None:
    on_node_b(space)
    cluster = space.on.cluster
    cluster.stop("apiserver")
    cluster.start("apiserver")
    space.apply(template("gpu", request("gpu", A100)), pod("later", templates=["gpu"]))
    space.running("later", seconds=120)
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)


def test_slices_deleted_by_hand_come_back_as_they_were(space: Space) -> None:
    before = [item["spec"]["devices"] for item in space.on.slices("node-b")]
    space.on.kubectl("delete", "resourceslices", "--all", "--wait=true")
    again = until("the slices", lambda: (len(space.on.devices()) == 14 or None) and space.on.slices("node-b"), 30)
    assert [item["spec"]["devices"] for item in again] == before


def test_a_slice_edited_by_hand_is_put_right(space: Space) -> None:
    (wrong,) = space.on.slices("node-b")
    right = wrong["spec"]["devices"]
    wrong["spec"] = {**wrong["spec"], "devices": right[:2]}
    version = wrong["apiVersion"].split("/")[1]
    space.on.cluster.request(
        "PUT", f"/apis/resource.k8s.io/{version}/resourceslices/{wrong['metadata']['name']}", wrong
    )
    until("six devices", lambda: len(space.on.devices("node-b")) == 6, 30)
    assert space.on.slices("node-b")[0]["spec"]["devices"] == right


@once
def test_a_claim_replaced_under_the_same_name_gets_its_own_gpu(space: Space) -> None:
    space.apply(claim("again", request("gpu", A100)), pod("first", claims=["again"]))
    space.running("first")
    space.delete("pod", "first")
    space.delete("resourceclaim", "again")
    space.apply(claim("again", request("gpu", L40S)), pod("second", claims=["again"]))
    space.running("second")
    assert space.gpus("second") == space.allocated_uuids("second")
