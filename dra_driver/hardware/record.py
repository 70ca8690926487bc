"""Records the machine that was found as a document from which the same machine can be simulated.

Schema: `dra_driver/hardware/sim/machine_files.py`; products and MIG boards are written inline. So a defect seen on
somebody's hardware can be reproduced, and a new GPU model gets its tests, without that hardware.
"""

from __future__ import annotations

import re
from typing import Any

from dra_driver.hardware import sysfs
from dra_driver.hardware.roots import HostRoots
from dra_driver.model.errors import TellUser
from dra_driver.model.gpu import Fabric, Gpu, Inventory, Mig, MigProfile

_MIB = 1024 * 1024

_ARCHITECTURES = {
    "Turing": "turing",
    "Ampere": "ampere",
    "Ada Lovelace": "ada",
    "Hopper": "hopper",
    "Blackwell": "blackwell",
}
_BRANDS = {
    "Quadro": "quadro",
    "Tesla": "tesla",
    "GeForce": "geforce",
    "QuadroRTX": "quadro_rtx",
    "NvidiaRTX": "nvidia_rtx",
    "Nvidia": "nvidia",
}
_ADDRESSING_MODES = {"HMM": "hmm", "ATS": "ats"}
# Not stated by any fact that we keep; nothing of ours depends on it.
_NVLINK_VERSIONS = {"ampere": 3, "hopper": 4, "blackwell": 5}

# nvml.h, NVML_GPU_INSTANCE_PROFILE_*: the enum by suffix of the name and number of slices.
_PROFILE_ENUMS = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6},
    "+me": {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12, 3: 17},
    "-me": {1: 13, 2: 14},
    "+me.all": {1: 15, 2: 16},
}
_ONE_SLICE_MORE_MEMORY = 9  # 1_SLICE_REV2
_SUFFIX = re.compile(r"gb(.*)$")

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_SCRUBBED_CLUSTER = "5c8b0000-0000-4000-8000-000000000001"


def machine_document(
    inventory: Inventory, roots: HostRoots, *, scrub: bool, driver_root: str = "/", arch: str = "x86_64"
) -> dict[str, Any]:
    """The machine as plain data for YAML or JSON; equal products are one and the same object, so that YAML writes them
    once. `scrub` leaves out what identifies the hardware (UUIDs and serial numbers, which the simulation then derives from
    address and name) and replaces the cluster UUID; PCI addresses stay, and no host name is ever in it. `driver_root` is
    the host path, `arch` that of the CPUs (x86_64, aarch64).

    What the schema cannot say is not recorded: MIG mode and instances, ECC turned off. TellUser when there is nothing to
    record, or a GPU of a kind that the simulation does not know."""
    if not inventory.gpus:
        why = inventory.driver_problem or "; ".join(f"{problem.where}: {problem.why}" for problem in inventory.problems)
        raise TellUser(
            "recording this machine", why or "no GPU was found", "record it where `nvidia-smi -L` lists GPUs"
        )
    products: dict[str, dict[str, Any]] = {}
    boards: dict[str, dict[str, Any]] = {}
    gpus = [_gpu(gpu, roots, products, boards, scrub=scrub) for gpu in inventory.gpus]
    first = inventory.gpus[0]
    major, minor = first.cuda_version
    names = sorted({gpu.product_name for gpu in inventory.gpus})
    document: dict[str, Any] = {
        "name": "-".join(("recorded", str(len(gpus)), *(_slug(name) for name in names)))[:63].rstrip("-"),
        "description": f"Recorded: {len(gpus)} GPU(s), {', '.join(names)}",
        "arch": arch,
        "driver": {
            "version": first.driver_version,
            "nvml": f"{major}.{first.driver_version}",
            "cuda": major * 1000 + minor * 10,
            "root": driver_root,
        },
        "gpus": gpus,
    }
    fabric = next((gpu.fabric for gpu in inventory.gpus if gpu.fabric is not None), None)
    if fabric is not None:
        document["fabric"] = _fabric(fabric, scrub=scrub)
    if boards:
        document["mig_boards"] = boards
    return document


def _gpu(
    gpu: Gpu, roots: HostRoots, products: dict[str, dict[str, Any]], boards: dict[str, dict[str, Any]], *, scrub: bool
) -> dict[str, Any]:
    product = _product(gpu)
    if gpu.mig is not None and gpu.mig.profiles:
        board = _board(gpu, gpu.mig)
        key = next((key for key, known in boards.items() if known == board), f"recorded-{len(boards)}")
        product["mig_board"] = key
        boards.setdefault(key, board)
    row: dict[str, Any] = {
        "product": products.setdefault(repr(product), product),
        "pci": str(gpu.pci),
        "pcie_root": gpu.pcie_root or f"pci{gpu.pci.domain:04x}:{gpu.pci.bus:02x}",
        "minor": gpu.minor,
    }
    between = sysfs.bridges(roots, gpu.pci)
    if between:
        row["bridges"] = list(between)
    if gpu.numa_node is not None:
        row["numa_node"] = gpu.numa_node
    if gpu.module_id is not None:
        row["module_id"] = gpu.module_id
    if not scrub:
        row["uuid"] = gpu.uuid
        if gpu.serial is not None:
            row["serial"] = gpu.serial
    return row


def _product(gpu: Gpu) -> dict[str, Any]:
    architecture = _known(gpu, "architecture", gpu.architecture, _ARCHITECTURES)
    if gpu.memory_bytes is None:
        raise _unknown(gpu, "its memory is not stated (shared with the CPU)")
    product: dict[str, Any] = {
        "name": gpu.product_name,
        "architecture": architecture,
        "brand": _known(gpu, "brand", gpu.brand, _BRANDS),
        "compute_capability": "{}.{}".format(*gpu.compute_capability),
        "memory_mib": gpu.memory_bytes // _MIB,
        "multiprocessors": gpu.multiprocessors or 0,
        "pci_device_id": gpu.pci_device_id or 0,
        "ecc": gpu.ecc_enabled is not None,
        "serial": gpu.serial is not None,
        "addressing_mode": _ADDRESSING_MODES.get(gpu.addressing_mode or "", "none"),
    }
    if gpu.nvlinks:
        product["nvlink"] = {"version": _NVLINK_VERSIONS.get(architecture, 1), "links": gpu.nvlinks}
    return product


def _board(gpu: Gpu, mig: Mig) -> dict[str, Any]:
    small = min((profile.memory_mib for profile in mig.profiles if profile.slices == 1), default=0)
    placed = [profile for profile in mig.profiles if profile.placements]
    if not placed:
        raise _unknown(gpu, "its driver states no MIG placements; record with more privileges or with MIG mode on")
    return {
        "compute_slices": max(profile.slices for profile in placed),
        "memory_slices": max(place.start + place.size for profile in placed for place in profile.placements),
        "max_devices": max(profile.max_instances for profile in placed),
        "reset_to_enable": gpu.architecture == "Ampere",
        "profiles": [_profile(gpu, profile, small) for profile in placed],
    }


def _profile(gpu: Gpu, profile: MigProfile, small: int) -> dict[str, Any]:
    match = _SUFFIX.search(profile.name)
    suffix = match[1] if match else ""
    number = _PROFILE_ENUMS.get(suffix, {}).get(profile.slices)
    if number == 0 and profile.memory_mib > small:
        number = _ONE_SLICE_MORE_MEMORY
    if number is None:
        raise _unknown(gpu, f"its MIG profile {profile.name} has no known number in NVML")
    return {
        "name": profile.name,
        "id": profile.id,
        "enum": number,
        "slices": profile.slices,
        "memory": profile.memory_mib,
        "sm": profile.multiprocessors,
        "max": profile.max_instances,
        "ce": profile.copy_engines,
        "dec": profile.decoders,
        "enc": profile.encoders,
        "jpeg": profile.jpeg_engines,
        "ofa": profile.ofa_engines,
        "size": profile.placements[0].size,
        "starts": [place.start for place in profile.placements],
    }


def _fabric(fabric: Fabric, *, scrub: bool) -> dict[str, Any]:
    secret = scrub and fabric.cluster_uuid != _NO_CLUSTER
    return {
        "state": fabric.state,
        "cluster_uuid": _SCRUBBED_CLUSTER if secret else fabric.cluster_uuid,
        "clique_id": fabric.clique_id,
    }


def _known(gpu: Gpu, what: str, value: str, table: dict[str, str]) -> str:
    if value not in table:
        raise _unknown(gpu, f"its {what} {value!r} is none of {', '.join(table)}")
    return table[value]


def _unknown(gpu: Gpu, why: str) -> TellUser:
    return TellUser(
        f"recording the GPU at {gpu.pci} ({gpu.product_name})", why, "report this GPU, with `nvidia-smi -q`"
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
