"""The life of MIG instances through real pynvml: tables, collisions, identities, what may not be destroyed."""

from ctypes import byref, c_uint

import pynvml
import pytest
from asking import error

IN_USE = pynvml.NVML_ERROR_IN_USE
INVALID = pynvml.NVML_ERROR_INVALID_ARGUMENT
FULL = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES


@pytest.fixture
def gpu(nvml, h100):
    """A handle of an H100 with MIG on."""
    h100.set_mig_mode(0, enabled=True)
    return nvml.nvmlDeviceGetHandleByIndex(0)


def placement(start: int, size: int):
    return byref(pynvml.c_nvmlGpuInstancePlacement_t(start, size))


def gi(gpu, profile: int, start: int, size: int):
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, placement(start, size))


def device_of(instance, profile: int):
    """The MIG device of a new compute instance in `instance`."""
    ci = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile)
    return ci, pynvml.nvmlComputeInstanceGetInfo(ci).device


def placements(gpu, profile: int) -> list[tuple[int, int]]:
    count = c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, None, byref(count))
    rows = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, rows, byref(count))
    return [(row.start, row.size) for row in rows]


def test_profiles_are_asked_by_enum_and_answer_with_another_number_as_id(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    by_enum = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    by_id = nvml.nvmlDeviceGetGpuInstanceProfileInfoById(handle, 9)
    first_form = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE, version=1)
    assert by_enum.name == by_id.name == "MIG 3g.40gb"
    assert {row.id for row in (by_enum, by_id, first_form)} == {9}
    assert {row.multiprocessorCount for row in (by_enum, first_form)} == {60}
    assert {row.memorySizeMB for row in (by_enum, first_form)} == {40448}
    assert (by_enum.sliceCount, by_enum.instanceCount, by_enum.copyEngineCount, by_enum.ofaCount) == (
        3,
        2,
        3,
        0,
    )


def test_an_unknown_enum_is_invalid_and_one_the_board_lacks_not_supported(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert error(nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, 99) == INVALID
    missing = nvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX
    assert error(nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, missing) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_placements_do_not_depend_on_the_mode_nor_on_what_is_free(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert placements(handle, 15) == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert error(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity, handle, 15) == nvml.NVML_ERROR_NOT_SUPPORTED
    h100.set_mig_mode(0, enabled=True)
    gi(handle, 0, 0, 8)
    assert placements(handle, 15) == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, 15) == 0


def test_twelve_memory_slices_are_placed_by_threes(make, attach) -> None:
    nvml = attach(make("rtx-pro-server"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert placements(handle, 14) == [(0, 3), (3, 3), (6, 3), (9, 3)]
    assert placements(handle, 0) == [(0, 12)]


def test_overlapping_placements_collide(gpu) -> None:
    gi(gpu, 9, 4, 4)
    assert error(gi, gpu, 19, 5, 1) == FULL
    assert error(gi, gpu, 0, 0, 8) == FULL
    gi(gpu, 5, 0, 4)
    assert error(gi, gpu, 19, 0, 1) == FULL


def test_a_placement_the_profile_does_not_have_is_invalid(gpu) -> None:
    assert error(gi, gpu, 9, 2, 4) == INVALID
    assert error(gi, gpu, 9, 0, 3) == INVALID
    assert error(gi, gpu, 12345, 0, 1) == INVALID


def test_the_media_extensions_are_given_out_once(gpu) -> None:
    gi(gpu, 20, 0, 1)
    assert error(gi, gpu, 20, 1, 1) == FULL
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 20) == 0
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 6


def test_graphics_profiles_share_the_engines_they_use(make, attach) -> None:
    machine = make("rtx-pro-server")
    nvml = attach(machine)
    machine.set_mig_mode(0, enabled=True)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    gi(handle, 65, 0, 3)  # +me.all takes every decoder
    assert error(gi, handle, 14, 3, 3) == FULL
    gi(handle, 67, 3, 3)  # -me needs none


def test_instances_without_mig_mode_are_not_supported(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert error(gi, handle, 19, 0, 1) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert error(nvml.nvmlDeviceGetGpuInstanceById, handle, 7) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_an_instance_describes_itself(gpu) -> None:
    instance = gi(gpu, 9, 4, 4)
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.profileId, info.placement.start, info.placement.size) == (9, 4, 4)
    assert pynvml.nvmlDeviceGetUUID(info.device) == pynvml.nvmlDeviceGetUUID(gpu)
    again = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(gpu, info.id))
    assert again.id == info.id == 2
    rows, count = (pynvml.c_nvmlGpuInstance_t * 2)(), c_uint(2)
    pynvml.nvmlDeviceGetGpuInstances(gpu, 9, rows, byref(count))
    assert count.value == 1
    assert pynvml.nvmlGpuInstanceGetInfo(rows[0]).id == info.id
    assert error(pynvml.nvmlDeviceGetGpuInstanceById, gpu, 13) == pynvml.NVML_ERROR_NOT_FOUND
    assert error(pynvml.nvmlDeviceGetGpuInstances, gpu, 9, None, byref(count)) == INVALID


def test_a_mig_device_is_a_device_of_its_own(gpu) -> None:
    instance = gi(gpu, 9, 0, 4)
    ci, device = device_of(instance, 2)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(gpu).value == 0
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    uuid = pynvml.nvmlDeviceGetUUID(device)
    assert uuid.startswith("MIG-")
    assert pynvml.nvmlDeviceGetGpuInstanceId(device) == 1
    assert pynvml.nvmlDeviceGetComputeInstanceId(device) == 0
    assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 40448 << 20
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(gpu)
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    attributes = pynvml.nvmlDeviceGetAttributes(device)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (60, 40448)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    assert attributes.sharedCopyEngineCount == 3
    info = pynvml.nvmlComputeInstanceGetInfo(ci)
    assert pynvml.nvmlGpuInstanceGetInfo(info.gpuInstance).id == 1
    for call in (pynvml.nvmlDeviceGetBrand, pynvml.nvmlDeviceGetMigMode):
        assert error(call, device) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error(pynvml.nvmlDeviceGetAttributes, gpu) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_gpu_instance_can_be_split_into_compute_instances(gpu) -> None:
    instance = gi(gpu, 9, 0, 4)
    one = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 0, 0)
    assert (one.name, one.sliceCount, one.instanceCount, one.multiprocessorCount) == (
        "MIG 1c.3g.40gb",
        1,
        3,
        16,
    )
    assert one.sharedCopyEngineCount == 3
    assert error(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, 3, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, 42, 0) == INVALID
    names = [pynvml.nvmlDeviceGetName(device_of(instance, profile)[1]) for profile in (0, 0, 0)]
    assert names == ["NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"] * 3
    assert error(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, 0) == FULL
    assert error(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, 2) == FULL
    assert pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 0


def test_hoppers_double_memory_slice_offers_a_larger_revision(gpu) -> None:
    instance = gi(gpu, 15, 0, 2)
    rows = [pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, 0) for enum in (0, 7)]
    assert [(row.id, row.sliceCount, row.multiprocessorCount) for row in rows] == [(0, 1, 16), (7, 1, 26)]


def test_mig_devices_are_indexed_by_instance_id_without_gaps(gpu) -> None:
    late, early = gi(gpu, 19, 6, 1), gi(gpu, 9, 0, 4)
    uuids = [pynvml.nvmlDeviceGetUUID(device_of(instance, profile)[1]) for instance, profile in ((late, 0), (early, 2))]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7
    found = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index) for index in (0, 1)]
    assert [pynvml.nvmlDeviceGetUUID(device) for device in found] == uuids[::-1]
    assert [pynvml.nvmlDeviceGetIndex(device) for device in found] == [0, 1]
    assert error(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2) == pynvml.NVML_ERROR_NOT_FOUND
    assert error(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 7) == INVALID


def test_a_gpu_instance_with_compute_instances_may_not_be_destroyed(gpu) -> None:
    instance = gi(gpu, 19, 0, 1)
    ci, _ = device_of(instance, 0)
    assert error(pynvml.nvmlGpuInstanceDestroy, instance) == IN_USE
    pynvml.nvmlComputeInstanceDestroy(ci)
    pynvml.nvmlGpuInstanceDestroy(instance)


def test_an_instance_with_processes_may_not_be_destroyed(gpu, h100) -> None:
    instance = gi(gpu, 19, 0, 1)
    ci, device = device_of(instance, 0)
    h100.start_process(0, 99, gi=7, ci=0)
    assert error(pynvml.nvmlComputeInstanceDestroy, ci) == IN_USE
    assert [row.pid for row in pynvml.nvmlDeviceGetComputeRunningProcesses(device)] == [99]
    h100.end_process(0, 99)
    pynvml.nvmlComputeInstanceDestroy(ci)


def test_handles_die_with_their_instance_even_when_the_id_comes_back(gpu) -> None:
    instance = gi(gpu, 19, 0, 1)
    ci, device = device_of(instance, 0)
    uuid, number = pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlGpuInstanceGetInfo(instance).id
    pynvml.nvmlComputeInstanceDestroy(ci)
    pynvml.nvmlGpuInstanceDestroy(instance)
    again = gi(gpu, 19, 0, 1)
    _, new_device = device_of(again, 0)
    assert pynvml.nvmlGpuInstanceGetInfo(again).id == number
    assert pynvml.nvmlDeviceGetUUID(new_device) != uuid
    assert error(pynvml.nvmlGpuInstanceGetInfo, instance) == INVALID
    assert error(pynvml.nvmlComputeInstanceGetInfo, ci) == INVALID
    assert error(pynvml.nvmlDeviceGetUUID, device) == INVALID
    assert error(pynvml.nvmlDeviceGetHandleByUUID, uuid) == pynvml.NVML_ERROR_NOT_FOUND


def test_capability_files_come_and_go_with_the_instances(make, attach) -> None:
    machine = make("l40s-a100")
    nvml = attach(machine)
    machine.set_mig_mode(5, enabled=True)
    capabilities = machine.root / "proc/driver/nvidia/capabilities/gpu1/mig"  # the minor, not the index
    handle = nvml.nvmlDeviceGetHandleByIndex(5)
    instance = gi(handle, 9, 4, 4)
    ci, _ = device_of(instance, 2)
    assert "DeviceFileMinor: 156\nDeviceFileMode: 292\n" in (capabilities / "gi2/access").read_text()
    assert "DeviceFileMinor: 157\n" in (capabilities / "gi2/ci0/access").read_text()
    minors = (machine.root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    assert {"gpu0/gi7/access 66", "gpu0/gi7/ci0/access 67", "gpu1/gi2/access 156"} <= set(minors)
    nvml.nvmlComputeInstanceDestroy(ci)
    nvml.nvmlGpuInstanceDestroy(instance)
    assert list(capabilities.iterdir()) == []


def test_hopper_switches_at_once_and_only_when_idle(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    h100.start_process(0, 5)
    assert nvml.nvmlDeviceSetMigMode(handle, 1) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(handle) == [0, 1]
    h100.end_process(0, 5)
    assert nvml.nvmlDeviceSetMigMode(handle, 1) == 0
    assert nvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    gi(handle, 19, 0, 1)
    assert error(nvml.nvmlDeviceSetMigMode, handle, 0) == IN_USE


def test_ampere_waits_for_a_reset_and_remembers_through_a_reboot(make, attach) -> None:
    machine = make("dgx-a100")
    nvml = attach(machine)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceSetMigMode(handle, 1) == nvml.NVML_ERROR_RESET_REQUIRED
    assert nvml.nvmlDeviceGetMigMode(handle) == [0, 1]
    machine.reset_gpu(0)
    assert nvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    gi(handle, 19, 0, 1)
    machine.reboot()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, 19) == 7


def test_hopper_forgets_its_mode_in_a_reboot(gpu, nvml, h100) -> None:
    gi(gpu, 19, 0, 1)
    h100.reboot()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(handle) == [0, 0]
    assert not (h100.root / "proc/driver/nvidia/capabilities/gpu0").exists()


def test_every_profile_of_every_board_can_be_created_as_often_as_it_says(make, attach) -> None:
    for name, index in (
        ("dgx-a100", 0),
        ("dgx-b200", 0),
        ("gb200", 0),
        ("rtx-pro-server", 0),
        ("l40s-a100", 4),
    ):
        machine = make(name, name)
        nvml = attach(machine)
        machine.set_mig_mode(index, enabled=True)
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        for enum in range(17 if machine.machine.driver_branch >= 570 else 10):
            try:
                profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum)
            except nvml.NVMLError_NotSupported:
                continue
            made = [nvml.nvmlDeviceCreateGpuInstance(handle, profile.id) for _ in range(profile.instanceCount)]
            assert error(nvml.nvmlDeviceCreateGpuInstance, handle, profile.id) == FULL
            assert len({nvml.nvmlGpuInstanceGetInfo(instance).id for instance in made}) == len(made)
            for instance in made:
                nvml.nvmlGpuInstanceDestroy(instance)
