"""NVML as plain Python values with one exception, `NvmlFailure`. The only importer of pynvml.

Each function names the NVML call that it makes. Handles are ctypes pointers: two for one GPU are neither equal nor
hashable, and they die with a reset, so nobody keeps one beyond a reading.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NewType

import pynvml

from dra_driver.hardware import nvml_failure as failures
from dra_driver.hardware.nvml_failure import NvmlFailure
from dra_driver.model.gpu import PciAddress

Handle = NewType("Handle", object)
# Two numbers name a MIG profile, and each call takes only one of them: the enum lists, the ID creates and places.
ProfileEnum = NewType("ProfileEnum", int)

PROFILE_ENUMS = tuple(ProfileEnum(number) for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT))


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """nvmlGpuInstanceProfileInfo_t; `name` is None when the driver does not state it."""

    id: int
    name: str | None
    slices: int
    max_instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int


def _call(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        text = failures.text_of(error.value) or str(error)
        raise NvmlFailure(error.value, f"calling {function.__name__}", text) from error


def _check(code: Any, doing: str) -> None:
    if code:
        raise NvmlFailure(int(code), doing)


def _text(value: str | bytes) -> str:
    """pynvml returns str or bytes, depending on the function."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def use_library(library: object) -> None:
    """Makes pynvml call this library, also when it used another one before."""
    if pynvml.nvmlLib is not library:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()


def initialise() -> None:
    """nvmlInitWithFlags(NO_GPUS): succeeds on a node without a GPU; one may be plugged in later."""
    _call(pynvml.nvmlInitWithFlags, pynvml.NVML_INIT_FLAG_NO_GPUS)


def shut_down() -> None:
    _call(pynvml.nvmlShutdown)


def driver_version() -> str:
    return _text(_call(pynvml.nvmlSystemGetDriverVersion))


def cuda_version() -> tuple[int, int]:
    """13000 is 13.0. Older drivers only have the unversioned function."""
    try:
        number = int(_call(pynvml.nvmlSystemGetCudaDriverVersion_v2))
    except NvmlFailure as failure:
        if failure.code != failures.FUNCTION_NOT_FOUND:
            raise
        number = int(_call(pynvml.nvmlSystemGetCudaDriverVersion))
    return number // 1000, number % 1000 // 10


def gpu_count() -> int:
    return int(_call(pynvml.nvmlDeviceGetCount))


def handle_by_index(index: int) -> Handle:
    return Handle(_call(pynvml.nvmlDeviceGetHandleByIndex, index))


def gpu_uuid(handle: Handle) -> str:
    return _text(_call(pynvml.nvmlDeviceGetUUID, handle))


def pci_info(handle: Handle) -> tuple[PciAddress, int]:
    """Address and PCI device ID, the latter as (device << 16) | vendor."""
    info = _call(pynvml.nvmlDeviceGetPciInfo, handle)
    return PciAddress.parse(_text(info.busId)), int(info.pciDeviceId)


def minor_number(handle: Handle) -> int:
    return int(_call(pynvml.nvmlDeviceGetMinorNumber, handle))


def product_name(handle: Handle) -> str:
    return _text(_call(pynvml.nvmlDeviceGetName, handle))


def brand(handle: Handle) -> int:
    return int(_call(pynvml.nvmlDeviceGetBrand, handle))


def architecture(handle: Handle) -> int:
    return int(_call(pynvml.nvmlDeviceGetArchitecture, handle))


def compute_capability(handle: Handle) -> tuple[int, int]:
    major, minor = _call(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return int(major), int(minor)


def memory_total(handle: Handle) -> int:
    """Bytes. The second version first; a driver that lacks it or refuses its struct is asked in the first."""
    try:
        return int(_call(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2).total)
    except NvmlFailure as failure:
        if failure.code not in (failures.FUNCTION_NOT_FOUND, failures.ARGUMENT_VERSION_MISMATCH):
            raise
    return int(_call(pynvml.nvmlDeviceGetMemoryInfo, handle).total)


def serial(handle: Handle) -> str:
    return _text(_call(pynvml.nvmlDeviceGetSerial, handle))


def module_id(handle: Handle) -> int:
    # Its default argument is one object shared by all calls and threads, so it gets one of its own; then it returns
    # the code instead of raising.
    number = ctypes.c_uint()
    _check(_call(pynvml.nvmlDeviceGetModuleId, handle, ctypes.byref(number)), "calling nvmlDeviceGetModuleId")
    return number.value


def addressing_mode(handle: Handle) -> int:
    return int(_call(pynvml.nvmlDeviceGetAddressingMode, handle))


def ecc_enabled(handle: Handle) -> bool:
    return bool(_call(pynvml.nvmlDeviceGetEccMode, handle)[0])


def mig_mode(handle: Handle) -> tuple[bool, bool]:
    """(current, pending)."""
    current, pending = _call(pynvml.nvmlDeviceGetMigMode, handle)
    return bool(current), bool(pending)


def active_nvlinks(handle: Handle) -> int:
    """Links that are up. The first link number that the GPU does not have ends the list."""
    active = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += int(_call(pynvml.nvmlDeviceGetNvLinkState, handle, link))
        except NvmlFailure as failure:
            if failure.code not in (failures.NOT_SUPPORTED, failures.INVALID_ARGUMENT):
                raise
            if link == 0:
                raise NvmlFailure(failures.NOT_SUPPORTED, failure.doing) from failure
            break
    return active


def fabric(handle: Handle) -> tuple[int, str, int]:
    """(state, cluster UUID, clique ID), with the newest struct that the driver knows."""
    for struct in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = struct()
        try:
            _call(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info))
            break
        except NvmlFailure as failure:
            if failure.code == failures.FUNCTION_NOT_FOUND:
                return _fabric_v1(handle)
            if failure.code not in (failures.ARGUMENT_VERSION_MISMATCH, failures.INVALID_ARGUMENT):
                raise
    else:
        return _fabric_v1(handle)
    return int(info.state), str(uuid.UUID(bytes=bytes(info.clusterUuid))), int(info.cliqueId)


def _fabric_v1(handle: Handle) -> tuple[int, str, int]:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    _call(pynvml.nvmlDeviceGetGpuFabricInfo, handle, ctypes.byref(info))
    return int(info.state), str(uuid.UUID(bytes=bytes(info.clusterUuid))), int(info.cliqueId)


def gpu_instance_profile(handle: Handle, number: ProfileEnum) -> ProfileInfo:
    """NOT_SUPPORTED where the GPU lacks it, INVALID_ARGUMENT where the driver does not know the enum."""
    name: str | None = None
    try:
        info = _call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 2)
        # Read as raw bytes: the field access of pynvml decodes and raises UnicodeDecodeError on anything odd.
        raw = ctypes.string_at(ctypes.addressof(info) + type(info).name.offset, type(info).name.size)
        name = raw.split(b"\0", 1)[0].decode("utf-8", "replace").removeprefix("MIG ").strip() or None
    except NvmlFailure as failure:
        if failure.code not in (failures.FUNCTION_NOT_FOUND, failures.ARGUMENT_VERSION_MISMATCH):
            raise
        info = _call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
    return ProfileInfo(
        id=info.id,
        name=name,
        slices=info.sliceCount,
        max_instances=info.instanceCount,
        multiprocessors=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
        memory_mib=info.memorySizeMB,
    )


def gpu_instance_placements(handle: Handle, profile_id: int) -> tuple[tuple[int, int], ...]:
    """(start, size) in memory slices, sorted."""
    count = ctypes.c_uint()
    _call(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile_id, None, ctypes.byref(count))
    if not count.value:
        return ()
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    _call(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile_id, array, ctypes.byref(count))
    return tuple(sorted((int(item.start), int(item.size)) for item in array[: count.value]))
