"""The adapter above the real pynvml and a simulated library: what it does when NVML or a GPU misbehaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from simulated_host import SimulatedHost, until

from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots
from dra_driver.hardware.sim.codes import Code
from dra_driver.model.errors import RetryLater, TellUser
from dra_driver.model.gpu import Inventory

Machines = Callable[..., SimulatedHost]


def addresses(inventory: Inventory) -> list[str]:
    return [str(gpu.pci) for gpu in inventory.gpus]


def test_a_lost_gpu_is_a_problem_and_the_others_are_published(machines: Machines) -> None:
    host = machines("t4")
    host.hardware.inventory()
    host.machine.lose_gpu(1)
    inventory = host.hardware.inventory()
    assert len(inventory.gpus) == 3
    (problem,) = inventory.problems
    assert problem.where == "0000:86:00.0"
    assert "lost" in problem.why
    assert "Xid" in problem.why
    assert host.hardware.gpu("0000:86:00.0") is None
    host.machine.return_gpu(1)
    assert len(host.hardware.inventory().gpus) == 4
    assert host.hardware.gpu("0000:86:00.0") is not None


def test_a_lost_gpu_is_not_there_for_a_prepare_even_before_the_next_inventory(machines: Machines) -> None:
    host = machines("t4")
    host.hardware.inventory()
    host.machine.lose_gpu(2)
    assert host.hardware.gpu("0000:af:00.0") is None
    assert host.hardware.gpu("0000:d8:00.0") is not None


def test_a_gpu_without_permission_is_a_problem(machines: Machines) -> None:
    host = machines("t4")
    host.machine.fail_call("nvmlDeviceGetHandleByIndex_v2", Code.NO_PERMISSION, which=0)
    inventory = host.hardware.inventory()
    assert len(inventory.gpus) == 3
    assert "permission" in inventory.problems[0].why
    assert "device node" in inventory.problems[0].why


def test_an_error_number_that_nobody_knows_is_told_as_it_is(machines: Machines) -> None:
    host = machines("t4")
    host.machine.fail_call("nvmlDeviceGetUUID", 4711, which=0)  # type: ignore[arg-type]
    inventory = host.hardware.inventory()
    assert len(inventory.gpus) == 3
    assert "4711" in inventory.problems[0].why
    assert inventory.problems[0].where == "0000:3b:00.0"


def test_a_removed_gpu_is_gone_and_back_under_the_same_name_when_inserted(machines: Machines) -> None:
    host = machines("t4")
    before = host.hardware.inventory()
    host.machine.remove_gpu(1)
    without = host.hardware.inventory()
    assert addresses(without) == [a for a in addresses(before) if a != "0000:86:00.0"]
    assert without.problems == ()
    assert [gpu.index for gpu in without.gpus] == [0, 1, 2]
    assert host.hardware.gpu("0000:86:00.0") is None
    host.machine.insert_gpu(1)
    assert host.hardware.inventory() == before


def test_a_prepare_finds_its_gpu_after_the_indexes_have_shifted(machines: Machines) -> None:
    host = machines("t4")
    before = host.hardware.inventory()
    host.machine.remove_gpu(0)
    found = host.hardware.gpu("0000:af:00.0")
    assert found is not None
    assert found.uuid == before.gpus[2].uuid
    assert found.index == 1


def test_mig_mode_turned_on_behind_our_back_is_seen_by_inventory_and_prepare(machines: Machines) -> None:
    host = machines("dgx-h100")
    host.hardware.inventory()
    host.machine.set_mig_mode(0, enabled=True)
    gpu = host.hardware.gpu("0000:1b:00.0")
    assert gpu is not None
    assert gpu.mig is not None
    assert gpu.mig.enabled
    seen = host.hardware.inventory().gpus
    assert [bool(gpu.mig and gpu.mig.enabled) for gpu in seen] == [True] + [False] * 7


def test_one_hanging_gpu_costs_one_time_limit_once_and_comes_back(machines: Machines) -> None:
    host = machines("dgx-h100", call_timeout_s=1.0)
    full = host.hardware.inventory()
    host.machine.hang_call("nvmlDeviceGetUUID", which=2)
    start = time.monotonic()
    inventory = host.hardware.inventory()
    assert time.monotonic() - start < 8, "one limit, not one for each GPU"
    assert len(inventory.gpus) == 7
    (problem,) = inventory.problems
    assert problem.where == str(full.gpus[2].pci)
    assert "no answer" in problem.why

    threads = threading.active_count()
    start = time.monotonic()
    assert host.hardware.inventory() == inventory, "the same words, so that nothing is published anew"
    assert time.monotonic() - start < 0.9, "it is not waited for again"
    assert threading.active_count() <= threads
    with pytest.raises(RetryLater, match="no answer"):
        host.hardware.gpu(str(full.gpus[2].pci))
    assert host.hardware.gpu(str(full.gpus[3].pci)) == full.gpus[3], "others are not kept waiting"

    host.machine.heal()
    until(lambda: host.hardware.inventory() == full)


def test_a_gpu_that_hangs_from_the_start_is_named_by_its_address_when_it_told_it(machines: Machines) -> None:
    host = machines("t4", call_timeout_s=0.2)
    host.machine.hang_call("nvmlDeviceGetName", which=3)
    inventory = host.hardware.inventory()
    assert [problem.where for problem in inventory.problems] == ["0000:d8:00.0"]
    host.machine.heal()
    until(lambda: len(host.hardware.inventory().gpus) == 4)


def test_all_gpus_hanging_is_still_answered(machines: Machines) -> None:
    host = machines("t4", call_timeout_s=0.1)
    host.machine.hang_call("nvmlDeviceGetHandleByIndex_v2")
    start = time.monotonic()
    inventory = host.hardware.inventory()
    assert time.monotonic() - start < 3
    assert inventory.gpus == ()
    assert [problem.where for problem in inventory.problems] == [f"GPU index {n}" for n in range(4)]
    host.machine.heal()
    until(lambda: len(host.hardware.inventory().gpus) == 4)


def test_an_initialisation_that_hangs_is_told_and_ends_by_itself(machines: Machines) -> None:
    host = machines("t4", call_timeout_s=0.1, init_timeout_s=0.2)
    host.machine.hang_call("nvmlInitWithFlags")
    host.hardware.start()
    problem = host.hardware.inventory().driver_problem
    assert problem is not None
    assert "no answer" in problem
    with pytest.raises(TellUser, match="no answer"):
        host.hardware.gpu("0000:3b:00.0")
    host.machine.heal()
    until(lambda: len(host.hardware.inventory().gpus) == 4)


def test_slow_gpus_are_read_in_time(machines: Machines) -> None:
    host = machines("t4", call_timeout_s=5)
    host.machine.delay_call("nvmlDeviceGetUUID", 0.05)
    assert len(host.hardware.inventory().gpus) == 4


@pytest.mark.parametrize(
    ("break_it", "mend_it", "words"),
    [
        ("unload_driver", "load_driver", ("not loaded", "modprobe nvidia", "nvidia-smi")),
        ("remove_library", "restore_library", ("libnvidia-ml.so.1", "driver root")),
    ],
)
def test_a_driver_that_goes_is_told_and_works_again_when_it_is_back(
    machines: Machines, break_it: str, mend_it: str, words: tuple[str, ...]
) -> None:
    host = machines("t4")
    full = host.hardware.inventory()
    getattr(host.machine, break_it)()
    inventory = host.hardware.inventory()
    assert inventory.gpus == ()
    assert inventory.driver_problem is not None
    for word in words:
        assert word.lower() in inventory.driver_problem.lower()
    with pytest.raises(TellUser):
        host.hardware.gpu("0000:3b:00.0")
    getattr(host.machine, mend_it)()
    assert host.hardware.inventory() == full
    assert host.hardware.gpu("0000:3b:00.0") == full.gpus[0]


def test_a_driver_that_was_reloaded_in_between_is_initialised_anew(machines: Machines) -> None:
    host = machines("t4")
    full = host.hardware.inventory()
    host.machine.unload_driver()
    host.machine.load_driver()
    assert host.hardware.gpu("0000:3b:00.0") == full.gpus[0]
    host.machine.unload_driver()
    host.machine.load_driver()
    assert host.hardware.inventory() == full


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.LIB_RM_VERSION_MISMATCH, ("different versions", "reboot")),
        (Code.NO_PERMISSION, ("permission", "privileged")),
        (Code.UNKNOWN, ("999", "nvidia-smi")),
    ],
)
def test_what_to_do_is_said_when_nvml_does_not_start(machines: Machines, code: Code, words: tuple[str, ...]) -> None:
    host = machines("t4")
    host.machine.fail_call("nvmlInitWithFlags", code)
    problem = host.hardware.inventory().driver_problem or ""
    for word in words:
        assert word in problem
    host.machine.heal()
    assert len(host.hardware.inventory().gpus) == 4


def test_a_version_mismatch_in_the_middle_leads_to_a_new_start(machines: Machines) -> None:
    host = machines("t4")
    full = host.hardware.inventory()
    host.machine.fail_call("nvmlDeviceGetUUID", Code.LIB_RM_VERSION_MISMATCH, which=1, times=1)
    assert host.hardware.inventory() == full
    assert host.library.calls.count("nvmlInitWithFlags") == 2
    assert host.library.calls.count("nvmlShutdown") == 1


def test_without_a_library_the_problem_says_where_it_was_looked_for(tmp_path: object) -> None:
    hardware = NvmlHardware(HostRoots(driver=str(tmp_path)))
    problem = hardware.inventory().driver_problem or ""
    assert str(tmp_path) in problem
    assert "usr/lib64" in problem
    assert "install" in problem
    hardware.stop()


def test_a_library_that_cannot_be_loaded_is_told_and_not_raised(tmp_path: object) -> None:
    from fake_host import FakeHost

    host = (
        FakeHost(tmp_path)
        .write("/usr/lib64/libnvidia-ml.so.580.1")
        .link(  # type: ignore[arg-type]
            "/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.580.1"
        )
    )
    hardware = NvmlHardware(host.roots())
    problem = hardware.inventory().driver_problem or ""
    assert "loading" in problem
    assert "libnvidia-ml.so.580.1" in problem
    hardware.stop()
