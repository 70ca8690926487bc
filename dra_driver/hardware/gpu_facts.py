"""One GPU's facts: what cannot change is read once, what can is read each time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dra_driver.hardware import nvml_api, nvml_failure, sysfs
from dra_driver.hardware.mig_profiles import full_gpu_multiprocessors, read_profiles
from dra_driver.hardware.nvml_api import Handle
from dra_driver.hardware.nvml_failure import NvmlFailure
from dra_driver.hardware.nvml_names import ADDRESSING_MODES, ARCHITECTURES, BRANDS, FABRIC_STATES, UNKNOWN
from dra_driver.hardware.roots import HostRoots
from dra_driver.model.gpu import Fabric, Gpu, Mig, PciAddress

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverVersions:
    driver: str
    cuda: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Mutable:
    """What a reset, an administrator or the fabric manager can change under way."""

    index: int
    minor: int
    ecc_enabled: bool | None
    mig_mode: tuple[bool, bool] | None
    fabric: Fabric | None


class _Reading:
    """Optional facts of one GPU. `steady` turns False when one failed in an unforeseen way: then nothing is kept."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.steady = True

    def optional(self, read: Callable[[Handle], T]) -> T | None:
        """None when the GPU or the driver has no such thing. Raises when GPU or library are gone."""
        try:
            return read(self.handle)
        except NvmlFailure as failure:
            if failure.code in nvml_failure.LIBRARY_LEVEL | nvml_failure.GPU_LEVEL:
                raise
            if failure.code not in nvml_failure.ABSENT:
                self.steady = False
                _log.info("fact of a GPU left out: %s", failure)
        return None


class GpuReader:
    """Reads GPUs by index, and remembers what cannot change by UUID, address and driver version."""

    def __init__(self, roots: HostRoots) -> None:
        self._roots = roots
        self._known: dict[str, Gpu] = {}
        self._addresses: dict[int, PciAddress] = {}

    def read(self, index: int, versions: DriverVersions) -> Gpu:
        """NvmlFailure when this GPU does not answer; ValueError when it states no PCI address."""
        handle = nvml_api.handle_by_index(index)
        pci, device_id = nvml_api.pci_info(handle)
        self._addresses[index] = pci
        uuid = nvml_api.gpu_uuid(handle)
        reading = _Reading(handle)
        mutable = _Mutable(
            index=index,
            minor=nvml_api.minor_number(handle),
            ecc_enabled=reading.optional(nvml_api.ecc_enabled),
            mig_mode=reading.optional(nvml_api.mig_mode),
            fabric=_fabric(reading),
        )
        known = self._known.get(uuid)
        if known is not None and _still_valid(known, pci, versions, mutable):
            return known
        gpu = self._read_all(reading, uuid, pci, device_id, versions, mutable)
        if reading.steady:
            self._known[uuid] = gpu
        else:
            self._known.pop(uuid, None)
        return gpu

    def prove(self, gpu: Gpu, versions: DriverVersions) -> Gpu:
        """The GPU at this index as it is now, with four calls when nothing has changed."""
        handle = nvml_api.handle_by_index(gpu.index)
        mode = _Reading(handle).optional(nvml_api.mig_mode)
        same = nvml_api.gpu_uuid(handle) == gpu.uuid and nvml_api.minor_number(handle) == gpu.minor
        if same and mode == (gpu.mig and (gpu.mig.enabled, gpu.mig.pending)):
            return gpu
        return self.read(gpu.index, versions)

    def address(self, index: int) -> PciAddress | None:
        """Where the GPU of this index was when it last said so; also known of one that failed later in its reading."""
        return self._addresses.get(index)

    def forget_addresses(self) -> None:
        """After NVML was initialised anew the indexes may mean other GPUs."""
        self._addresses.clear()

    def _read_all(
        self, reading: _Reading, uuid: str, pci: PciAddress, device_id: int, versions: DriverVersions, mutable: _Mutable
    ) -> Gpu:
        handle = reading.handle
        memory = reading.optional(nvml_api.memory_total)
        gpu = Gpu(
            uuid=uuid,
            pci=pci,
            index=mutable.index,
            minor=mutable.minor,
            product_name=nvml_api.product_name(handle),
            brand=BRANDS.get(_or(reading.optional(nvml_api.brand), 0), UNKNOWN),
            architecture=ARCHITECTURES.get(_or(reading.optional(nvml_api.architecture), -1), UNKNOWN),
            compute_capability=nvml_api.compute_capability(handle),
            memory_bytes=memory,
            driver_version=versions.driver,
            cuda_version=versions.cuda,
            addressing_mode=ADDRESSING_MODES.get(_or(reading.optional(nvml_api.addressing_mode), -1)),
            ecc_enabled=mutable.ecc_enabled,
            numa_node=sysfs.numa_node(self._roots, pci),
            pcie_root=sysfs.pcie_root(self._roots, pci),
            pci_device_id=device_id,
            serial=reading.optional(nvml_api.serial) or None,
            module_id=reading.optional(nvml_api.module_id),
            nvlinks=reading.optional(nvml_api.active_nvlinks),
            fabric=mutable.fabric,
        )
        if mutable.mig_mode is None:
            return gpu
        profiles = reading.optional(lambda handle: read_profiles(handle, memory)) or ()
        enabled, pending = mutable.mig_mode
        return replace(gpu, mig=Mig(enabled, pending, profiles), multiprocessors=full_gpu_multiprocessors(profiles))


def _still_valid(known: Gpu, pci: PciAddress, versions: DriverVersions, mutable: _Mutable) -> bool:
    return (
        known.pci == pci
        and known.driver_version == versions.driver
        and known.index == mutable.index
        and known.minor == mutable.minor
        and known.ecc_enabled == mutable.ecc_enabled
        and known.fabric == mutable.fabric
        and (known.mig and (known.mig.enabled, known.mig.pending)) == mutable.mig_mode
    )


def _fabric(reading: _Reading) -> Fabric | None:
    answer = reading.optional(nvml_api.fabric)
    if answer is None or answer[0] not in FABRIC_STATES:
        return None
    state, cluster, clique = answer
    return Fabric(FABRIC_STATES[state], cluster, clique)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
