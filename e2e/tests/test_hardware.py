"""GPUs that fail, hang, go and come back, under pods and without any."""

from __future__ import annotations

import pytest

from dra_driver.kinds.gpu import pci_of
from e2e.installation import stays, until
from e2e.objects import A100, pod, request, template
from e2e.tests.space import Space


@pytest.mark.gate(DRADeviceTaints=True)
def test_a_lost_gpu_is_reported_kept_for_its_claim_and_comes_back(space: Space) -> None:
    space.run("pod", A100)
    (device,) = space.allocated("pod")
    machine, pci = space.on.machine("node-b"), str(pci_of(device))
    machine.lose_gpu(pci)
    try:
        taint = until("the taint", lambda: (space.published("node-b", device) or {}).get("taints"), 30)
        assert [(one["key"], one["effect"]) for one in taint] == [("gpu.nvidia.com/gpu-lost", "NoSchedule")]
        space.apply(template("gpu", request("gpu", A100, count=2)), pod("later", templates=["gpu"]))
        space.pending("later", "cannot allocate all claims")
    finally:
        machine.return_gpu(pci)
    until("the taint to go", lambda: not (space.published("node-b", device) or {"taints": 1}).get("taints"), 30)


@pytest.mark.gate(DRADeviceTaints=False)
def test_taints_that_the_api_server_does_not_store_are_told_once_and_not_written_again(space: Space) -> None:
    """The API server accepts the slice and drops what its feature gates do not know."""
    space.run("pod", A100)
    (device,) = space.allocated("pod")
    machine, pci = space.on.machine("node-b"), str(pci_of(device))
    said = space.listen("node-b")

    def told(words: str) -> list[str]:
        return [line["msg"] for line in said() if words in line["msg"]]

    machine.lose_gpu(pci)
    try:
        (line,) = until(
            "a line in the log", lambda: told("the API server stored devices.taints otherwise than sent"), 30
        )
        assert line.endswith("enable feature gate DRADeviceTaints on the API server")
        writes = space.on.writes()
        stays("what the API server stored is taken as it is", lambda: space.on.writes() == writes, 5)
        assert "taints" not in (space.published("node-b", device) or {"taints": "the whole device is missing"})
        assert len(told("otherwise than sent")) == 1
    finally:
        machine.return_gpu(pci)
    until("the GPU to be well again", lambda: told("GPU problem is over"), 30)
    stays("there is nothing to write", lambda: space.on.writes() == writes, 5)


def test_nothing_is_written_while_nothing_changes(space: Space) -> None:
    """The test agents look at the GPUs every 2 s."""
    space.run("pod")
    writes = space.on.writes()
    assert writes
    stays("no slice is written", lambda: space.on.writes() == writes, 5)


@pytest.mark.once
def test_a_gpu_that_is_pulled_out_disappears_and_is_back_when_inserted(space: Space) -> None:
    device = space.on.devices("node-b")[0]["name"]
    machine, pci = space.on.machine("node-b"), str(pci_of(device))
    machine.remove_gpu(pci)
    try:
        until("the device to disappear", lambda: space.published("node-b", device) is None, 30)
        assert len(space.on.devices("node-b")) == 5
    finally:
        machine.insert_gpu(pci)
    until("the device to be back", lambda: len(space.on.devices("node-b")) == 6, 30)


@pytest.mark.once
def test_a_gpu_that_hangs_is_left_out_and_all_others_can_be_used(space: Space) -> None:
    machine = space.on.machine("node-b")
    hanging = next(item["name"] for item in space.on.devices("node-b") if "A100" in str(item["attributes"]))
    with space.agent_with("node-b", nvml_timeout_s="1"):
        said = space.listen("node-b")
        machine.hang_call("*", which=str(pci_of(hanging)))
        try:
            until("the device to disappear", lambda: space.published("node-b", hanging) is None, 30)
            words = "no answer from NVML within 1 s"
            until("a line in the log", lambda: [line for line in said() if words in line["msg"]], 10)
            space.run("others", node="node-b", count=5)
            assert len(space.gpus("others")) == 5
        finally:
            machine.heal()
        until("the device to be back", lambda: space.published("node-b", hanging), 30)


@pytest.mark.once
def test_a_driver_reload_takes_all_devices_away_and_brings_them_back(space: Space) -> None:
    machine = space.on.machine("node-b")
    machine.unload_driver()
    try:
        until("no device to be published", lambda: not space.on.devices("node-b"), 30)
    finally:
        machine.load_driver()
    until("all devices to be back", lambda: len(space.on.devices("node-b")) == 6, 30)
    space.run("pod", A100)
    assert space.gpus("pod") == space.allocated_uuids("pod")


@pytest.mark.once
def test_a_gpu_lost_under_a_claim_stays_published_when_the_agent_restarts(space: Space) -> None:
    """An allocated device that is no longer published is forgotten by whoever counts what is free."""
    space.run("pod", A100)
    (device,) = space.allocated("pod")
    machine, pci = space.on.machine("node-b"), str(pci_of(device))
    machine.lose_gpu(pci)
    try:
        until("the taint", lambda: (space.published("node-b", device) or {}).get("taints"), 30)
        space.on.agents["node-b"].stop()
        space.on.start_agent("node-b")
        stays("the device is published", lambda: (space.published("node-b", device) or {}).get("taints"), 5)
    finally:
        machine.return_gpu(pci)
    until("the taint to go", lambda: not (space.published("node-b", device) or {"taints": 1}).get("taints"), 30)
