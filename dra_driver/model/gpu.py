"""Gpu: a fact about this machine, as its driver and its kernel state it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Where a device sits; `str()` is the sysfs form `0000:1b:00.0` (domain of four digits, more only when needed)."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Reads the sysfs form and NVML's (`00000000:1B:00.0`); ValueError for anything else."""
        match = _PCI.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a PCI address like 0000:1b:00.0")
        domain, bus, device, function = (int(part, 16) for part in match.groups())
        return cls(domain, bus, device, function)

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """A range of memory slices: `start` .. `start + size - 1`."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One GPU instance profile as NVML states it; `id` is what create calls take (not the enum that lists profiles)."""

    id: int
    name: str
    slices: int
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    max_instances: int
    placements: tuple[MigPlacement, ...]


@dataclass(frozen=True, slots=True)
class Mig:
    """MIG capability of a GPU that has it. `enabled` is the current mode, `pending` the one after the next reset."""

    enabled: bool
    pending: bool
    profiles: tuple[MigProfile, ...]


@dataclass(frozen=True, slots=True)
class Fabric:
    """NVLink fabric membership; `cluster_uuid` is all zero where NVLink does not leave the machine."""

    state: str
    cluster_uuid: str
    clique_id: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. None means: the driver says that this GPU has no such thing, or that it is unknown here."""

    uuid: str
    pci: PciAddress
    index: int
    minor: int
    product_name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    memory_bytes: int | None
    driver_version: str
    cuda_version: tuple[int, int]
    multiprocessors: int | None = None
    addressing_mode: str | None = None
    ecc_enabled: bool | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    pci_device_id: int | None = None
    serial: str | None = None
    module_id: int | None = None
    nvlinks: int | None = None
    fabric: Fabric | None = None
    mig: Mig | None = None


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """A GPU that could not be read; `where` is its PCI address if known, else `GPU index N`."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that the machine holds, GPUs sorted by PCI address. `driver_problem` is set when NVML as a whole is unusable;
    it then says why and what to do, and `gpus` is empty."""

    gpus: tuple[Gpu, ...]
    problems: tuple[GpuProblem, ...] = ()
    driver_problem: str | None = None
