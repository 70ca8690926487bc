"""The table of attributes of a full GPU. One row is one attribute: to add one, add a row and update one golden file.

Names without a domain are published under the driver's own name. Names, types and value formats are those of the
existing NVIDIA driver (reference sheet, section 2.1); the rows marked `ours` go beyond it. A value of None is not
published; where it can be helped no value is None, because a CEL expression that meets a missing key keeps its pod from
being scheduled on any node. Strings hold at most 64 bytes, versions are semantic versions 2.0.0 (API limits).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dra_driver.model.device import AttributeValue, Version
from dra_driver.model.gpu import Gpu

STANDARD = "resource.kubernetes.io"
MAX_STRING_BYTES = 64


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    meaning: str
    value: Callable[[Gpu], AttributeValue | None]
    ours: bool = False


def semantic_version(text: str) -> Version | None:
    """`570.124.06` -> 570.124.6: leading zeros are not allowed, three parts are required. None if it is no version."""
    match = re.match(r"^(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return Version(".".join(str(int(part or 0)) for part in match.groups())) if match else None


def _mig_profiles(gpu: Gpu, part: int) -> str:
    """The names joined by commas, cut at a comma where an attribute's 64 bytes are full; `part` counts from 0."""
    lines = [""]
    for profile in sorted({profile.name for profile in gpu.mig.profiles} if gpu.mig else ()):
        joined = f"{lines[-1]},{profile}" if lines[-1] else profile
        if len(joined) <= MAX_STRING_BYTES:
            lines[-1] = joined
        else:
            lines.append(profile)
    return lines[part] if part < len(lines) else ""


def _clique(gpu: Gpu) -> str | None:
    """`<cluster UUID>.<clique>`, the format of the nvidia.com/gpu.clique label; None when NVLink ends at this machine."""
    if gpu.fabric is None or not gpu.fabric.cluster_uuid.strip("0-"):
        return None
    return f"{gpu.fabric.cluster_uuid}.{gpu.fabric.clique_id}"


GPU_ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("type", "always `gpu`", lambda _: "gpu"),
    Attribute("uuid", "UUID as `nvidia-smi -L` prints it", lambda gpu: gpu.uuid),
    Attribute("productName", "product name as NVML states it", lambda gpu: gpu.product_name),
    Attribute("brand", "brand as NVML states it", lambda gpu: gpu.brand),
    Attribute("architecture", "Turing, Ampere, Ada Lovelace, Hopper, Blackwell", lambda gpu: gpu.architecture),
    Attribute(
        "cudaComputeCapability",
        "CUDA compute capability as major.minor.0",
        lambda gpu: Version(f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}.0"),
    ),
    Attribute(
        "driverVersion", "driver version without leading zeros", lambda gpu: semantic_version(gpu.driver_version)
    ),
    Attribute(
        "cudaDriverVersion",
        "newest CUDA version that the driver supports",
        lambda gpu: Version(f"{gpu.cuda_version[0]}.{gpu.cuda_version[1]}.0"),
    ),
    Attribute("addressingMode", "HMM, ATS or None", lambda gpu: gpu.addressing_mode),
    Attribute(f"{STANDARD}/pciBusID", "PCI address in sysfs form", lambda gpu: str(gpu.pci)),
    Attribute(f"{STANDARD}/pcieRoot", "root complex, as NICs state it too", lambda gpu: gpu.pcie_root),
    Attribute(f"{STANDARD}/numaNode", "NUMA node of the CPU side", lambda gpu: gpu.numa_node),
    Attribute("migCapable", "the GPU can be partitioned by MIG", lambda gpu: gpu.mig is not None, ours=True),
    Attribute("migEnabled", "MIG mode is on", lambda gpu: gpu.mig is not None and gpu.mig.enabled, ours=True),
    Attribute("migProfiles", "MIG profiles, comma separated", lambda gpu: _mig_profiles(gpu, 0), ours=True),
    Attribute("migProfiles2", "more MIG profiles, past 64 bytes", lambda gpu: _mig_profiles(gpu, 1), ours=True),
    Attribute("eccEnabled", "ECC protects the GPU's memory", lambda gpu: bool(gpu.ecc_enabled), ours=True),
    Attribute("nvlinks", "NVLinks that are up", lambda gpu: gpu.nvlinks or 0, ours=True),
    Attribute("nvlinkClique", "multi-node NVLink domain as <cluster UUID>.<clique>", _clique, ours=True),
)

GPU_CAPACITY: tuple[tuple[str, str, Callable[[Gpu], int | None]], ...] = (
    ("memory", "bytes of GPU memory, as NVML states them", lambda gpu: gpu.memory_bytes),
)
