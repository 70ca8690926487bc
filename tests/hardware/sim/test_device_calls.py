"""What real pynvml reads from the simulated library: values, layouts, and what a GPU does not have."""

import ctypes

import pynvml
import pytest
from asking import error

from dra_driver.hardware.sim.library import CALLS, SimulatedNvml


def handles(nvml):
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def test_nothing_works_before_init_and_inits_are_counted(h100) -> None:
    pynvml.nvmlLib = SimulatedNvml(h100.directory)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert error(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 8
    pynvml.nvmlShutdown()
    assert error(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert error(pynvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED


def test_versions_are_those_of_the_machine(nvml) -> None:
    assert nvml.nvmlSystemGetDriverVersion() == "580.126.20"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.126.20"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert nvml.nvmlErrorString(15) == "GPU is lost"


def test_a_gpu_is_found_by_uuid_serial_and_any_form_of_its_pci_address(nvml, h100) -> None:
    gpu = h100.machine.gpus[2]
    for found in (
        nvml.nvmlDeviceGetHandleByUUID(gpu.uuid),
        nvml.nvmlDeviceGetHandleBySerial(gpu.serial),
        nvml.nvmlDeviceGetHandleByPciBusId("0000:52:00.0"),
        nvml.nvmlDeviceGetHandleByPciBusId("00000000:52:00.0"),
        nvml.nvmlDeviceGetHandleByPciBusId(gpu.bus_id),
    ):
        assert nvml.nvmlDeviceGetIndex(found) == 2
    assert error(nvml.nvmlDeviceGetHandleByUUID, "GPU-none") == nvml.NVML_ERROR_NOT_FOUND
    assert error(nvml.nvmlDeviceGetHandleByPciBusId, "0000:99:00.0") == nvml.NVML_ERROR_NOT_FOUND
    assert error(nvml.nvmlDeviceGetHandleByIndex, 8) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_memory_comes_in_two_forms_that_agree(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    one, two = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    assert one.total == two.total == 85520809984
    assert one.free == two.free
    assert one.used == two.used + two.reserved
    assert two.version == nvml.nvmlMemory_v2


def test_an_unknown_structure_version_is_a_mismatch(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    wrong = nvml.c_nvmlGpuFabricInfo_v2_t()
    wrong.version = 0x09000024
    for call in (
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, 0x03000028),
        lambda: nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(wrong)),
    ):
        assert error(call) == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_pci_info_is_laid_out_as_in_nvml_h(nvml) -> None:
    info = nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    assert (info.busId, info.busIdLegacy) == ("00000000:1B:00.0", "0000:1B:00.0")
    assert (info.domain, info.bus, info.device) == (0, 0x1B, 0)
    assert (info.pciDeviceId, info.pciSubSystemId) == (0x233010DE, 0x16C010DE)


def test_a_domain_above_zero_shows_in_the_bus_id(make, attach) -> None:
    nvml = attach(make("gb200"))
    info = nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(2))
    assert (info.busId, info.domain) == ("00000018:01:00.0", 0x18)


def test_what_a_gpu_is_reads_as_its_product_says(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetBrand(handle) == nvml.NVML_BRAND_NVIDIA
    assert nvml.nvmlDeviceGetArchitecture(handle) == nvml.NVML_DEVICE_ARCH_HOPPER
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert nvml.nvmlDeviceGetNumGpuCores(handle) == 16896
    assert nvml.nvmlDeviceGetMemoryBusWidth(handle) == 5120
    assert nvml.nvmlDeviceGetEccMode(handle) == [1, 1]
    assert nvml.nvmlDeviceGetAddressingMode(handle) == 0
    assert nvml.nvmlDeviceGetVirtualizationMode(handle) == 0
    assert nvml.nvmlDeviceGetModuleId(handle, ctypes.c_uint()) == 2
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
    assert len(nvml.nvmlDeviceGetSerial(handle)) == 13
    assert nvml.nvmlSystemGetConfComputeState().ccFeature == 0


def test_a_geforce_has_no_serial_no_ecc_and_no_mig(make, attach) -> None:
    nvml = attach(make("rtx-workstation"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (
        nvml.nvmlDeviceGetSerial,
        nvml.nvmlDeviceGetEccMode,
        nvml.nvmlDeviceGetMigMode,
        nvml.nvmlDeviceGetRemappedRows,
        nvml.nvmlDeviceGetNumaNodeId,
    ):
        assert error(call, handle) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert error(nvml.nvmlDeviceGetMemoryAffinity, handle, 1, 0) == nvml.NVML_ERROR_NOT_SUPPORTED  # node -1
    assert nvml.nvmlDeviceGetBrand(handle) == nvml.NVML_BRAND_GEFORCE


@pytest.mark.parametrize(("name", "index"), [("t4", 0), ("l40s-a100", 0)])
def test_a_gpu_without_mig_says_so_everywhere(name: str, index: int, make, attach) -> None:
    nvml = attach(make(name))
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    assert error(nvml.nvmlDeviceGetMigMode, handle) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert error(nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, 0) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(handle) == 0
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    if name != "t4":  # its driver has no such symbol
        assert error(nvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_an_old_driver_lacks_the_newer_symbols(make, attach) -> None:
    nvml = attach(make("dgx-a100"))  # R550
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert error(nvml.nvmlDeviceGetAddressingMode, handle) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert error(nvml.nvmlDeviceGetNumaNodeId, handle) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert error(nvml.nvmlDeviceGetGpuInstanceProfileInfoById, handle, 19) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert error(nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, 10) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetFieldValues(handle, [230])[0].nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def test_a_symbol_that_nobody_wrote_is_missing_and_not_wrong(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert error(nvml.nvmlDeviceGetFanSpeed, handle) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_grace_gpus_are_numa_nodes_with_a_rack_and_a_fabric(make, attach) -> None:
    machine = make("gb200")
    nvml = attach(machine)
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetNumaNodeId(handle) == 10
    assert nvml.nvmlDeviceGetAddressingMode(handle) == nvml.NVML_DEVICE_ADDRESSING_MODE_ATS
    assert nvml.nvmlDeviceGetC2cModeInfoV(handle).isC2cEnabled == 1
    fabric = nvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(fabric))
    assert bytes(fabric.clusterUuid).hex() == machine.machine.fabric.cluster_uuid.replace("-", "")
    assert (fabric.cliqueId, fabric.state, fabric.status, fabric.healthSummary) == (32766, 3, 0, 1)
    platform = nvml.c_nvmlPlatformInfo_v2_t()
    nvml.nvmlDeviceGetPlatformInfo(handle, ctypes.byref(platform))
    raw = ctypes.string_at(ctypes.addressof(platform), ctypes.sizeof(platform))
    assert raw[20:33] == b"1820025180411"
    assert list(raw[36:41]) == [0, 0, 1, 1, 1]


def test_a_single_node_fabric_has_no_cluster(nvml) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for info in (nvml.c_nvmlGpuFabricInfo_v2_t(), nvml.c_nvmlGpuFabricInfo_v3_t()):
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        assert bytes(info.clusterUuid) == bytes(16)
        assert (info.state, info.cliqueId) == (nvml.NVML_GPU_FABRIC_STATE_COMPLETED, 0)
    assert (
        error(nvml.nvmlDeviceGetPlatformInfo, handle, ctypes.byref(nvml.c_nvmlPlatformInfo_v2_t()))
        == nvml.NVML_ERROR_NOT_SUPPORTED
    )


def test_nvlinks_go_to_switches_or_to_the_bridged_gpu(nvml, make, attach) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert [nvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(18)] == [1] * 18
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, 0) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert {nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).bus for link in range(18)} == {5, 6, 7, 8}
    assert error(nvml.nvmlDeviceGetNvLinkState, handle, 18) == nvml.NVML_ERROR_INVALID_ARGUMENT
    nvml = attach(make("l40s-a100", "mixed"))
    l40s, _, _, _, one, two = handles(nvml)
    assert error(nvml.nvmlDeviceGetNvLinkState, l40s, 0) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert error(nvml.nvmlDeviceGetNvLinkState, one, 12) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(one, 0) == nvml.NVML_NVLINK_DEVICE_TYPE_GPU
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(one, 3).busId == nvml.nvmlDeviceGetPciInfo(two).busId


def test_topology_follows_switches_roots_and_numa_nodes(make, attach) -> None:
    nvml = attach(make("l40s-a100"))
    one, same_switch, same_node, _, other_node, _ = handles(nvml)
    levels = [nvml.nvmlDeviceGetTopologyCommonAncestor(one, two) for two in (same_switch, same_node, other_node)]
    assert levels == [nvml.NVML_TOPOLOGY_SINGLE, nvml.NVML_TOPOLOGY_NODE, nvml.NVML_TOPOLOGY_SYSTEM]


def test_modes_are_kept_and_wrong_ones_refused(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetComputeMode(handle, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    nvml.nvmlDeviceSetPersistenceMode(handle, 1)
    assert nvml.nvmlDeviceGetComputeMode(handle) == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == 1
    assert error(nvml.nvmlDeviceSetComputeMode, handle, 7) == nvml.NVML_ERROR_INVALID_ARGUMENT
    h100.set_mig_mode(0, enabled=True)
    assert error(nvml.nvmlDeviceSetComputeMode, handle, 0) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_processes_are_listed_with_their_memory(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    h100.start_process(0, 4711, memory_mib=100)
    h100.start_process(0, 4712)
    rows = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(row.pid, row.usedGpuMemory >> 20) for row in rows] == [(4711, 100), (4712, 512)]
    assert nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used == 612 << 20
    h100.end_process(0, 4711)
    assert [row.pid for row in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [4712]


def test_health_reads_as_it_was_set(nvml, h100) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    h100.set_health(0, "ecc_uncorrected", 3)
    h100.set_health(0, "remap_pending", 1)
    h100.set_health(0, "sram_threshold", 1)
    h100.set_health(0, "recovery_action", 2)
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0) == 3
    assert nvml.nvmlDeviceGetRemappedRows(handle) == (0, 3, 1, 0)
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    assert status.bThresholdExceeded == 1
    known, unknown = nvml.nvmlDeviceGetFieldValues(handle, [230, 1])
    assert (known.nvmlReturn, known.value.uiVal) == (0, 2)
    assert unknown.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def test_what_would_crash_a_real_process_is_a_type_error_here(nvml) -> None:
    library = pynvml.nvmlLib
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(TypeError, match="overrun"):
        library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(nvml.c_nvmlMemory_t()))
    with pytest.raises(TypeError, match="crash"):
        library.nvmlDeviceGetCount_v2(5)
    assert library.nvmlDeviceGetCount_v2(None) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert library.nvmlDeviceGetUUID(nvml.c_nvmlDevice_t(), None, 0) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_short_buffer_is_refused(nvml) -> None:
    buffer = ctypes.create_string_buffer(8)
    code = pynvml.nvmlLib.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0), buffer, ctypes.c_uint(8))
    assert code == nvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_one_gpu_always_has_one_handle_and_gpus_do_not_share(nvml) -> None:
    def value(handle):
        return ctypes.cast(handle, ctypes.c_void_p).value

    found = [value(handle) for handle in handles(nvml)]
    assert found == [value(handle) for handle in handles(nvml)]
    assert len(set(found)) == 8


def test_symbols_are_named_as_in_the_bindings() -> None:
    with open(pynvml.__file__) as file:
        source = file.read()
    known_elsewhere = {"nvmlInit_v2"}  # C's own nvmlInit; the bindings call nvmlInitWithFlags
    assert [name for name in CALLS if f'"{name}"' not in source and name not in known_elsewhere] == []
