"""A look at all GPUs for several prepares: it counts for a moment, and costs nothing where it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from simulated_host import SimulatedHost, until

from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import Inventory

Machines = Callable[..., SimulatedHost]


def look_has_ended(hardware: NvmlHardware) -> bool:
    look = hardware._look
    return look is None or look[0].finished


def looked(host: SimulatedHost) -> Inventory:
    """All GPUs, after a look ahead that has ended."""
    inventory = host.hardware.inventory()
    host.library.calls.clear()
    host.hardware.look_ahead()
    until(lambda: len(host.library.calls) == 4 * len(inventory.gpus))
    until(lambda: look_has_ended(host.hardware))
    host.library.calls.clear()
    return inventory


def test_after_a_look_ahead_no_gpu_is_read_again(machines: Machines) -> None:
    host = machines("dgx-h100", look_holds_s=60)
    for gpu in looked(host).gpus:
        assert host.hardware.gpu(str(gpu.pci)) is gpu
    host.hardware.look_ahead()
    assert host.library.calls == []


def test_a_look_ahead_holds_for_a_moment_only(machines: Machines) -> None:
    host = machines("t4", look_holds_s=0)
    looked(host)
    host.machine.lose_gpu(1)
    assert host.hardware.gpu("0000:86:00.0") is None


def test_a_gpu_that_a_look_ahead_finds_lost_is_read_for_itself(machines: Machines) -> None:
    host = machines("t4", look_holds_s=60)
    host.hardware.inventory()
    host.machine.lose_gpu(1)
    host.hardware.look_ahead()
    until(lambda: look_has_ended(host.hardware))
    assert host.hardware.gpu("0000:86:00.0") is None
    host.machine.return_gpu(1)
    assert host.hardware.gpu("0000:86:00.0") is not None


def test_a_look_ahead_that_hangs_costs_one_thread_and_keeps_nobody_waiting(machines: Machines) -> None:
    host = machines("dgx-h100", call_timeout_s=1.0, look_holds_s=0)
    gpus = host.hardware.inventory().gpus
    host.machine.hang_call("nvmlDeviceGetUUID", which=0)
    before = threading.active_count()
    for _ in range(20):
        host.hardware.look_ahead()
    assert threading.active_count() <= before + 1
    assert host.hardware.gpu(str(gpus[5].pci)) is gpus[5]
    with pytest.raises(RetryLater, match="no answer"):
        host.hardware.gpu(str(gpus[0].pci))
    host.machine.heal()
    until(lambda: look_has_ended(host.hardware))


def test_a_look_ahead_without_a_driver_does_nothing(tmp_path: object) -> None:
    hardware = NvmlHardware(HostRoots(driver=str(tmp_path)))
    hardware.look_ahead()
    assert look_has_ended(hardware)
    hardware.stop()
