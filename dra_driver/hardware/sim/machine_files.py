"""Machines are data: reads `machines/*.yaml`, or a file that somebody recorded, into a `Machine`.

Schema of a machine file (`?` marks what may be left out):

    name: dgx-h100
    description: one line
    arch: x86_64 | aarch64              # of the CPUs; decides the library directory
    driver:
      version: "580.126.20"             # the branch (580) decides which symbols the library has
      nvml: "13.580.126.20"
      cuda: 13000                       # as nvmlSystemGetCudaDriverVersion gives it
      root: /                           # ? where the driver's files are on the host: / or /run/nvidia/driver
      dev_root: /                       # ? where /dev is; as root when left out
    virtualization: none                # ? none, passthrough, vgpu, host_vgpu, host_vsga
    gpus:                               # in any order; NVML's index follows the PCI address
      - product: h100-sxm5-80gb         # a key of products.yaml, or the same facts inline as a mapping
        pci: "0000:1b:00.0"
        pcie_root: "pci0000:15"         # first part of its path below /sys/devices
        bridges: ["0000:15:01.0"]       # ? ports and switches on that path, from root to GPU
        numa_node: 0                    # ? -1 or left out where sysfs says -1
        minor: 0                        # ? number of /dev/nvidia<minor>; the index when left out
        module_id: 2                    # ? position on the baseboard
        memory_numa_node: 2             # ? where the GPU's memory is a NUMA node of its own (Grace)
        nvlink_peer: "0000:b8:00.0"     # ? all links go to this GPU instead of to switches
        uuid: GPU-...                   # ? derived from machine name, seed and address when left out
        serial: "1650123456789"         # ? likewise; the product says whether there is one at all
    nvswitches: ["0000:05:00.0"]        # ? PCI addresses; none on NVLink 5 systems
    fabric:                             # ? left out: nvmlDeviceGetGpuFabricInfo answers NOT_SUPPORTED
      state: completed                  # not_started, in_progress, completed
      cluster_uuid: "00000000-..."      # all zero: no multi-node NVLink
      clique_id: 0
      status: 0                         # ?
      health_mask: 0                    # ?
    platform: {chassis_serial: "...", slot: 0, tray: 0, host: 1, peer_type: 1}   # ? rack systems
    mig_boards: {...}                   # ? boards that mig.yaml lacks, in its schema
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import (
    FABRIC_STATES,
    Fabric,
    Machine,
    MachineGpu,
    MigBoard,
    Platform,
    Product,
)
from dra_driver.hardware.sim.fields import PCI_ADDRESS, PCIE_ROOT, Fields
from dra_driver.hardware.sim.identity import gpu_serial, gpu_uuid
from dra_driver.hardware.sim.product_files import (
    HERE,
    boards,
    known_boards,
    known_products,
    product,
    refuse,
    yaml_document,
)

VIRTUALIZATION: Final = (
    "none",
    "passthrough",
    "vgpu",
    "host_vgpu",
    "host_vsga",
)  # nvml.h, in this order from 0
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GPU_UUID: Final = re.compile(r"GPU-" + _UUID.pattern)
_PCI_EXAMPLE: Final = '"0000:1b:00.0"'


@dataclass(frozen=True, slots=True)
class MachineSummary:
    name: str
    description: str
    gpu_count: int


def list_machines() -> tuple[MachineSummary, ...]:
    """The machines that come with the package, by name."""
    found = (load_machine(path) for path in sorted((HERE / "machines").glob("*.yaml")))
    return tuple(MachineSummary(m.name, m.description, len(m.gpus)) for m in found)


def load_machine(name_or_path: str | Path, *, seed: str = "") -> Machine:
    """A machine by name, or from a file. `seed` (say, a node's name) makes its UUIDs and serials its own.

    Raises SimulationError: no such machine (with the known names), or every mistake in the file with its path.
    """
    path = Path(name_or_path)
    if isinstance(name_or_path, str) and "/" not in name_or_path and path.suffix not in (".yaml", ".yml"):
        path = HERE / "machines" / f"{name_or_path}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in (HERE / "machines").glob("*.yaml")))
            raise SimulationError(
                f"loading machine {name_or_path!r}: there is none of that name; known are {known}; "
                "or give the path of a machine file"
            )
    mistakes: list[str] = []
    machine = _machine(Fields(yaml_document(path), "", mistakes), seed)
    refuse(path, mistakes)
    return machine


def _machine(row: Fields, seed: str) -> Machine:
    name = row.text("name")
    driver = row.inner("driver")
    own_boards = boards(row.take("mig_boards"), row.at("mig_boards"), row.mistakes) if "mig_boards" in row else {}
    all_boards = {**known_boards(), **own_boards}
    gpus = _gpus(row, name, seed, all_boards)
    used = {gpu.product.mig_board for gpu in gpus}
    root = driver.text("root", "/")
    found = Machine(
        name=name,
        description=row.text("description", name),
        seed=seed,
        arch=row.choice("arch", ("x86_64", "aarch64")),
        driver_version=driver.matching("version", re.compile(r"\d{3}\.\d+(\.\d+)?"), '"580.126.20"'),
        nvml_version=driver.text("nvml"),
        cuda_version=driver.integer("cuda"),
        driver_root=root,
        dev_root=driver.text("dev_root", root),
        virtualization=_virtualization(row),
        gpus=gpus,
        boards={key: board for key, board in all_boards.items() if key in used},
        nvswitches=row.texts("nvswitches", PCI_ADDRESS, _PCI_EXAMPLE),
        fabric=_fabric(row.inner("fabric")) if "fabric" in row else None,
        platform=_platform(row.inner("platform")) if "platform" in row else None,
    )
    driver.end()
    row.end()
    return found


def _virtualization(row: Fields) -> int:
    mode = row.choice("virtualization", VIRTUALIZATION, "none")
    return VIRTUALIZATION.index(mode) if mode in VIRTUALIZATION else 0


def _gpus(row: Fields, machine: str, seed: str, known: dict[str, MigBoard]) -> tuple[MachineGpu, ...]:
    rows = sorted(row.inner_rows("gpus"), key=lambda gpu: str(gpu.peek("pci")))
    gpus = [_gpu(gpu, index, machine, seed, known) for index, gpu in enumerate(rows)]
    if not gpus:
        row.wrong("gpus", "must name at least one GPU")
    for key in ("pci", "minor", "uuid"):
        values = [getattr(gpu, key) for gpu in gpus]
        for value in sorted({v for v in values if values.count(v) > 1}):
            row.wrong("gpus", f"{key} {value} is given to more than one GPU")
    for gpu in gpus:
        if gpu.nvlink_peer and gpu.nvlink_peer not in {other.pci for other in gpus}:
            row.wrong("gpus", f"nvlink_peer {gpu.nvlink_peer} of {gpu.pci} is no GPU of this machine")
    return tuple(gpus)


def _gpu(row: Fields, index: int, machine: str, seed: str, known: dict[str, MigBoard]) -> MachineGpu:
    facts = _product_of(row, known)
    pci = row.matching("pci", PCI_ADDRESS, _PCI_EXAMPLE)
    serial = row.optional_text("serial") or (gpu_serial(machine, seed, pci) if facts and facts.serial else None)
    found = MachineGpu(
        product=facts or next(iter(known_products().values())),
        pci=pci,
        uuid=row.matching("uuid", _GPU_UUID, "GPU-<uuid>") if "uuid" in row else gpu_uuid(machine, seed, pci),
        serial=serial,
        minor=row.integer("minor", index),
        numa_node=row.integer("numa_node", -1, least=-1),
        pcie_root=row.matching("pcie_root", PCIE_ROOT, '"pci0000:15"'),
        bridges=row.texts("bridges", PCI_ADDRESS, _PCI_EXAMPLE),
        module_id=row.optional_integer("module_id"),
        memory_numa_node=row.optional_integer("memory_numa_node"),
        nvlink_peer=row.optional_text("nvlink_peer"),
    )
    row.end()
    return found


def _product_of(row: Fields, known: dict[str, MigBoard]) -> Product | None:
    value = row.take("product")
    if isinstance(value, dict):
        found = product(Fields(value, row.at("product"), row.mistakes))
        if found.mig_board is not None and found.mig_board not in known:
            row.wrong("product.mig_board", f"{found.mig_board!r} is neither in mig.yaml nor in mig_boards")
        return found
    if value not in known_products():
        row.wrong("product", f"{value!r} is not in products.yaml: name one of it, or give its facts inline")
        return None
    return known_products()[value]


def _fabric(row: Fields) -> Fabric:
    found = Fabric(
        state=row.choice("state", tuple(FABRIC_STATES)),
        cluster_uuid=row.matching("cluster_uuid", _UUID, "a UUID in lower case"),
        clique_id=row.integer("clique_id"),
        status=row.integer("status", 0),
        health_mask=row.integer("health_mask", 0),
    )
    row.end()
    return found


def _platform(row: Fields) -> Platform:
    numbers = {key: row.integer(key, 0) for key in ("slot", "tray", "host", "peer_type")}
    found = Platform(chassis_serial=row.text("chassis_serial"), **numbers)
    row.end()
    return found
