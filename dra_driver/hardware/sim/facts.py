"""What a simulated machine is: facts that do not change while it runs, and their compact JSON form.

State that does change (lost GPUs, MIG instances, faults) is in `state`, never here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

ARCHITECTURES: Final = {
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}  # nvml.h NVML_DEVICE_ARCH_*
BRANDS: Final = {"quadro": 1, "tesla": 2, "geforce": 5, "quadro_rtx": 12, "nvidia_rtx": 13, "nvidia": 14}
ADDRESSING_MODES: Final = {"none": 0, "hmm": 1, "ats": 2}
FABRIC_STATES: Final = {"not_started": 1, "in_progress": 2, "completed": 3}
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One GPU instance profile; `memory` in MiB, placements in memory slices."""

    name: str
    id: int
    enum: int
    slices: int
    memory: int
    sm: int
    max: int
    ce: int
    dec: int
    enc: int
    jpeg: int
    ofa: int
    size: int
    starts: tuple[int, ...]

    @property
    def engines(self) -> tuple[int, int, int, int, int]:
        return self.ce, self.dec, self.enc, self.jpeg, self.ofa


@dataclass(frozen=True, slots=True)
class MigBoard:
    """The MIG table of one board; `profiles` in the order of the source."""

    compute_slices: int
    memory_slices: int
    max_devices: int
    reset_to_enable: bool
    profiles: tuple[MigProfile, ...]

    @property
    def whole(self) -> MigProfile:
        """The profile that takes all of the GPU: its engines are all there are."""
        return max(self.profiles, key=lambda p: (p.slices, p.size))

    def profile(self, profile_id: int) -> MigProfile | None:
        return next((p for p in self.profiles if p.id == profile_id), None)


@dataclass(frozen=True, slots=True)
class Product:
    """What NVML says of every board of one kind; memory in MiB."""

    name: str
    architecture: str
    brand: str
    compute_capability: str
    memory_mib: int
    reserved_mib: int
    multiprocessors: int
    cores: int
    power_limit_w: int
    pci_device_id: int
    pci_subsystem_id: int
    memory_bus_bits: int | None = None
    ecc: bool = True
    serial: bool = True
    nvlink_version: int = 0
    nvlink_links: int = 0
    c2c: bool = False
    addressing_mode: str = "none"
    mig_board: str | None = None

    @property
    def memory_bytes(self) -> int:
        return self.memory_mib * MIB


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """One GPU in its slot. `pci` is the sysfs form (`0000:1b:00.0`); `numa_node` is -1 where sysfs says -1."""

    product: Product
    pci: str
    uuid: str
    serial: str | None
    minor: int
    numa_node: int
    pcie_root: str
    bridges: tuple[str, ...]
    module_id: int | None = None
    memory_numa_node: int | None = None
    nvlink_peer: str | None = None

    @property
    def bus_id(self) -> str:
        """As NVML writes it: `00000000:1B:00.0`."""
        domain, rest = self.pci.split(":", 1)
        return f"{int(domain, 16):08X}:{rest.upper()}"


@dataclass(frozen=True, slots=True)
class Fabric:
    state: str
    cluster_uuid: str
    clique_id: int
    status: int = 0
    health_mask: int = 0


@dataclass(frozen=True, slots=True)
class Platform:
    chassis_serial: str
    slot: int
    tray: int
    host: int
    peer_type: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A whole machine; `gpus` in PCI order, which is the order of NVML's indices."""

    name: str
    description: str
    seed: str
    arch: str
    driver_version: str
    nvml_version: str
    cuda_version: int
    driver_root: str
    dev_root: str
    virtualization: int
    gpus: tuple[MachineGpu, ...]
    boards: dict[str, MigBoard]
    nvswitches: tuple[str, ...] = ()
    fabric: Fabric | None = None
    platform: Platform | None = None

    @property
    def driver_branch(self) -> int:
        """580 of 580.126.20: which symbols the library has depends on it."""
        return int(self.driver_version.split(".", 1)[0])

    def board(self, gpu: MachineGpu) -> MigBoard | None:
        return None if gpu.product.mig_board is None else self.boards[gpu.product.mig_board]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def machine_from_json(text: str) -> Machine:
    """The inverse of `Machine.to_json`: of our own file only, so its shape is not checked."""
    wire: dict[str, Any] = json.loads(text)
    products: dict[str, Product] = {}

    def gpu(row: dict[str, Any]) -> MachineGpu:
        product = products.setdefault(row["product"]["name"], Product(**row["product"]))
        return MachineGpu(**{**row, "product": product, "bridges": tuple(row["bridges"])})

    def board(row: dict[str, Any]) -> MigBoard:
        profiles = tuple(MigProfile(**{**p, "starts": tuple(p["starts"])}) for p in row["profiles"])
        return MigBoard(**{**row, "profiles": profiles})

    return Machine(
        **{
            **wire,
            "gpus": tuple(gpu(row) for row in wire["gpus"]),
            "boards": {key: board(row) for key, row in wire["boards"].items()},
            "nvswitches": tuple(wire["nvswitches"]),
            "fabric": None if wire["fabric"] is None else Fabric(**wire["fabric"]),
            "platform": None if wire["platform"] is None else Platform(**wire["platform"]),
        }
    )
