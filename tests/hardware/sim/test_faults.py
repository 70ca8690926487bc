"""What is done to a machine while it runs, mostly by another process, as seen through real pynvml."""

import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning

import pytest
from asking import elsewhere, error

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.faults import apply_fault


def test_a_lost_gpu_is_counted_and_answers_nothing_until_it_is_back(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    elsewhere(h100, "lose", "3")
    assert nvml.nvmlDeviceGetCount() == 8
    for call, argument in (
        (nvml.nvmlDeviceGetUUID, handle),
        (nvml.nvmlDeviceGetMemoryInfo, handle),
        (nvml.nvmlDeviceGetHandleByIndex, 3),
        (nvml.nvmlDeviceGetHandleByUUID, h100.machine.gpus[3].uuid),
    ):
        assert error(call, argument) == nvml.NVML_ERROR_GPU_IS_LOST
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(4)) == h100.machine.gpus[4].uuid
    elsewhere(h100, "return", "3")
    assert nvml.nvmlDeviceGetUUID(handle) == h100.machine.gpus[3].uuid


def test_a_removed_gpu_is_gone_from_enumeration_and_from_the_host(nvml, h100) -> None:
    gone = h100.machine.gpus[0]
    paths = [
        h100.dev / "nvidia0",
        h100.dev / "dri/card1",
        h100.root / "proc/driver/nvidia/gpus" / gone.pci,
        h100.root / "sys/bus/pci/devices" / gone.pci,
    ]
    assert all(path.exists() for path in paths)
    elsewhere(h100, "remove", gone.uuid)
    assert nvml.nvmlDeviceGetCount() == 7
    assert nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(0)) == 1
    assert error(nvml.nvmlDeviceGetHandleByUUID, gone.uuid) == nvml.NVML_ERROR_NOT_FOUND
    assert not any(path.exists() or path.is_symlink() for path in paths)
    elsewhere(h100, "insert", gone.pci)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0)) == gone.uuid
    assert all(path.exists() for path in paths)


def test_a_call_fails_on_one_gpu_as_often_as_told(nvml, h100) -> None:
    zero, one = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))
    elsewhere(h100, "fail", "nvmlDeviceGetMemoryInfo", "--code", "UNKNOWN", "--gpu", "0", "--times", "2")
    assert error(nvml.nvmlDeviceGetMemoryInfo, zero) == nvml.NVML_ERROR_UNKNOWN
    nvml.nvmlDeviceGetMemoryInfo(one)
    nvml.nvmlDeviceGetUUID(zero)
    assert error(nvml.nvmlDeviceGetMemoryInfo, zero) == nvml.NVML_ERROR_UNKNOWN
    nvml.nvmlDeviceGetMemoryInfo(zero)


def test_a_failing_look_up_fails_for_that_gpu_only(nvml, h100) -> None:
    h100.fail_call("nvmlDeviceGetHandleByIndex", 4, which=2)
    h100.fail_call("nvmlInitWithFlags", 18)
    assert error(nvml.nvmlDeviceGetHandleByIndex, 2) == nvml.NVML_ERROR_NO_PERMISSION
    nvml.nvmlDeviceGetHandleByIndex(1)
    assert error(nvml.nvmlInit) == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    h100.heal(call="nvmlInitWithFlags")
    nvml.nvmlInit()
    assert error(nvml.nvmlDeviceGetHandleByIndex, 2) == nvml.NVML_ERROR_NO_PERMISSION
    h100.heal(which=2)
    nvml.nvmlDeviceGetHandleByIndex(2)


def test_a_failure_on_all_calls_does_not_strike_twice_in_one_look_up(nvml, h100) -> None:
    h100.fail_call("*", 999, times=1)
    assert error(nvml.nvmlDeviceGetHandleByIndex, 0) == nvml.NVML_ERROR_UNKNOWN
    assert h100.state()["faults"] == []
    assert nvml.nvmlErrorString(2) == "Invalid Argument"


def test_a_slow_gpu_is_slow_alone(nvml, h100) -> None:
    zero, one = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))
    elsewhere(h100, "delay", "1", "--gpu", "1")
    started = time.monotonic()
    nvml.nvmlDeviceGetUUID(zero)
    middle = time.monotonic()
    nvml.nvmlDeviceGetUUID(one)
    assert middle - started < 1 <= time.monotonic() - middle


def test_a_hanging_call_returns_when_it_is_healed_and_others_go_on(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    elsewhere(h100, "hang", "--gpu", "0", "--call", "nvmlDeviceGetUUID")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(nvml.nvmlDeviceGetUUID, handle)
        with pytest.raises(StillRunning):
            hanging.result(timeout=0.1)
        assert nvml.nvmlDeviceGetMinorNumber(handle) == 0
        elsewhere(h100, "heal")
        assert hanging.result(timeout=30) == h100.machine.gpus[0].uuid


def test_a_gpu_lost_while_a_call_hangs_on_it_answers_so(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    h100.hang_call("*", which=0)
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(error, nvml.nvmlDeviceGetUUID, handle)
        h100.lose_gpu(0)
        h100.heal()
        assert hanging.result(timeout=30) == nvml.NVML_ERROR_GPU_IS_LOST


def test_an_unloaded_driver_ends_every_session(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    elsewhere(h100, "driver-unload")
    assert error(nvml.nvmlDeviceGetUUID, handle) == nvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert error(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert not (h100.root / "proc/driver/nvidia").exists()
    assert "nvidia" not in (h100.root / "proc/devices").read_text()
    elsewhere(h100, "driver-load")
    assert error(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 8
    assert error(nvml.nvmlDeviceGetUUID, handle) == nvml.NVML_ERROR_INVALID_ARGUMENT  # of a session that is over
    assert (h100.root / "proc/driver/nvidia/version").exists()


def test_a_missing_library_is_missing_for_nvml_and_on_disk(nvml, h100) -> None:
    directory = h100.driver_root / "usr/lib/x86_64-linux-gnu"
    before = sorted(path.name for path in directory.glob("libnvidia-ml*"))
    h100.remove_library()
    assert error(nvml.nvmlInit) == nvml.NVML_ERROR_LIBRARY_NOT_FOUND
    assert list(directory.glob("libnvidia-ml*")) == []
    h100.restore_library()
    nvml.nvmlInit()
    assert sorted(path.name for path in directory.glob("libnvidia-ml*")) == before


def test_a_reboot_is_a_new_boot_with_everything_as_after_power_on(nvml, h100) -> None:
    boot_id = h100.root / "proc/sys/kernel/random/boot_id"
    before = boot_id.read_text()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetComputeMode(handle, 3)
    h100.start_process(0, 7)
    h100.lose_gpu(1)
    h100.remove_gpu(2)
    elsewhere(h100, "reboot")
    assert boot_id.read_text() != before
    assert error(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeMode(handle) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(1)) == h100.machine.gpus[1].uuid
    assert nvml.nvmlDeviceGetCount() == 7  # pulled out is pulled out


def test_without_gpus_init_fails_unless_told_that_none_is_fine(make, attach) -> None:
    machine = make("rtx-workstation")
    nvml = attach(machine)
    machine.remove_gpu(0)
    assert error(nvml.nvmlInit) == nvml.NVML_ERROR_GPU_NOT_FOUND
    nvml.nvmlInitWithFlags(nvml.NVML_INIT_FLAG_NO_GPUS)
    assert nvml.nvmlDeviceGetCount() == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"verb": "explode"}, "no such verb; known are lose, return"),
        ({"verb": "lose"}, "needs a GPU"),
        ({"verb": "lose", "gpu": "12"}, r"there is none; known are 0 \(0000:1b:00.0\)"),
        ({"verb": "fail", "call": "x", "code": "BAD"}, "no such NVML code; known are UNINITIALIZED"),
        ({"verb": "health", "gpu": 0, "field": "mood"}, "no such health field; known are ecc_corrected"),
    ],
)
def test_what_cannot_be_done_says_what_can(spec, message, h100) -> None:
    with pytest.raises(SimulationError, match=message):
        apply_fault(h100.directory, spec)


def test_a_directory_without_a_machine_says_so(tmp_path) -> None:
    with pytest.raises(SimulationError, match="create it first"):
        apply_fault(tmp_path, {"verb": "reboot"})
