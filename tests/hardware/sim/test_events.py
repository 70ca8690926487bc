"""Event sets through real pynvml, with events from another thread or process."""

import time
from concurrent.futures import ThreadPoolExecutor

import pynvml
import pytest
from asking import elsewhere, error

from dra_driver.hardware.sim.watch import ChangeWatch

XID = pynvml.nvmlEventTypeXidCriticalError
LONG_MS = 30_000


@pytest.fixture
def events(nvml):
    """An event set registered for XIDs of the first two GPUs."""
    found = nvml.nvmlEventSetCreate()
    for index in (0, 1):
        nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), XID, found)
    return found


def test_waiting_in_vain_times_out(nvml, events) -> None:
    assert error(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT
    assert error(nvml.nvmlEventSetWait, events, 30) == nvml.NVML_ERROR_TIMEOUT


def test_an_xid_from_another_process_wakes_the_waiting_one(nvml, events, h100) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(nvml.nvmlEventSetWait, events, LONG_MS)
        elsewhere(h100, "xid", "1", "79")
        event = waiting.result(timeout=60)
    assert (event.eventType, event.eventData) == (XID, 79)
    assert nvml.nvmlDeviceGetUUID(event.device) == h100.machine.gpus[1].uuid
    assert event.gpuInstanceId == event.computeInstanceId == 0xFFFFFFFF


def test_events_come_one_at_a_time_in_their_order_and_once(nvml, events, h100) -> None:
    h100.emit_xid(1, 31)
    h100.emit_xid(0, 48, gi=1, ci=0)
    first, second = nvml.nvmlEventSetWait(events, 0), nvml.nvmlEventSetWait(events, 0)
    assert [first.eventData, second.eventData] == [31, 48]
    assert (second.gpuInstanceId, second.computeInstanceId) == (1, 0)
    assert error(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT


def test_only_what_was_registered_for_is_delivered(nvml, events, h100) -> None:
    h100.emit_xid(2, 79)
    assert error(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT


def test_what_happened_before_the_registration_is_lost(nvml, h100) -> None:
    h100.emit_xid(0, 79)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(0), XID, events)
    assert error(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT


def test_two_sets_each_get_every_event(nvml, events, h100) -> None:
    other = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(0), XID, other)
    h100.emit_xid(0, 94)
    assert [nvml.nvmlEventSetWait(found, 0).eventData for found in (events, other)] == [94, 94]


def test_a_lost_gpu_is_reported_after_the_events_that_are_left(nvml, events, h100) -> None:
    h100.emit_xid(0, 79)
    h100.lose_gpu(0)
    assert nvml.nvmlEventSetWait(events, 0).eventData == 79
    assert error(nvml.nvmlEventSetWait, events, LONG_MS) == nvml.NVML_ERROR_GPU_IS_LOST


def test_an_unloaded_driver_ends_the_waiting(nvml, events, h100) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(error, nvml.nvmlEventSetWait, events, LONG_MS)
        h100.unload_driver()
        assert waiting.result(timeout=60) == nvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_types_a_gpu_does_not_have_and_mig_devices_are_refused(nvml, events, h100, make, attach) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetSupportedEventTypes(handle) & XID
    assert error(nvml.nvmlDeviceRegisterEvents, handle, 1 << 40, events) == nvml.NVML_ERROR_NOT_SUPPORTED
    h100.set_mig_mode(0, enabled=True)
    instance = nvml.nvmlDeviceCreateGpuInstance(handle, 19)
    ci = nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    device = nvml.nvmlComputeInstanceGetInfo(ci).device
    assert error(nvml.nvmlDeviceRegisterEvents, device, XID, events) == nvml.NVML_ERROR_NOT_SUPPORTED
    geforce = attach(make("rtx-workstation", "geforce"))
    assert not geforce.nvmlDeviceGetSupportedEventTypes(geforce.nvmlDeviceGetHandleByIndex(0)) & 0x3  # no ECC


def test_a_freed_set_is_no_more(nvml, events) -> None:
    nvml.nvmlEventSetFree(events)
    assert error(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert error(nvml.nvmlEventSetFree, events) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_waiting_costs_no_processor_time(nvml, events) -> None:
    before = time.process_time()
    assert error(nvml.nvmlEventSetWait, events, 500) == nvml.NVML_ERROR_TIMEOUT
    assert time.process_time() - before < 0.05


def test_without_inotify_events_arrive_all_the_same(tmp_path) -> None:
    watch = ChangeWatch(tmp_path / "nowhere")  # as where the kernel refuses the descriptor
    watch.start()
    started = time.monotonic()
    watch.wait(30)
    assert time.monotonic() - started < 10
    watch.stop()
