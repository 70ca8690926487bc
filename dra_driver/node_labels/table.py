"""GPUs -> labels, with the names and formats of gpu-feature-discovery (k8s-device-plugin 0.20, internal/lm). Pure.

Where a machine has several products the labels tell of the one with most GPUs (there: of any), and count only those. What
that tool says of sharing is said as for GPUs that nobody shares. Its timestamp is left out: it would be written for nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dra_driver.model.gpu import Gpu

DOMAIN = "nvidia.com"
_MAX_VALUE = 63  # of a label, in Kubernetes
_MODES = {"0x030000": "graphics", "0x030200": "compute"}
# By CUDA compute capability; the first row whose version is not above.
_FAMILIES: tuple[tuple[tuple[int, int], str], ...] = (
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the kernel says beside NVML. `product` is the DMI product name, `pci_class` that of the first GPU (`0x030200`);
    empty where unknown."""

    product: str = ""
    pci_class: str = ""


def labels(gpus: Sequence[Gpu], machine: Machine) -> dict[str, str]:
    """Sorted by name; empty without GPUs."""
    if not gpus:
        return {}
    count = Counter(gpu.product_name for gpu in gpus)
    product = min(count, key=lambda name: (-count[name], name))
    # Those that are whole come first, as they are what pods get.
    gpu = min((one for one in gpus if one.product_name == product), key=lambda one: (_in_mig_mode(one), one.index))
    major, minor = gpu.compute_capability
    values = {
        "gpu.present": "true",
        "gpu.product": label_value(product),
        "gpu.count": str(count[product]),
        "gpu.replicas": "0" if _in_mig_mode(gpu) else "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": str(gpu.memory_bytes >> 20) if gpu.memory_bytes else "",
        "gpu.family": family(major, minor),
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.machine": label_value(machine.product) or "unknown",
        "gpu.mode": _MODES.get(machine.pci_class, "unknown"),
        "gpu.clique": _clique(gpus),
        "mig.capable": str(any(one.mig for one in gpus)).lower(),
        "mps.capable": "false",
        **_versions(gpu),
    }
    return {f"{DOMAIN}/{name}": value for name, value in sorted(values.items()) if value}


def family(major: int, minor: int) -> str:
    return next((name for least, name in _FAMILIES if (major, minor) >= least), "undefined")


def label_value(text: str) -> str:
    """`NVIDIA H100 80GB HBM3` -> `NVIDIA-H100-80GB-HBM3`: what cannot be in a label is left out."""
    joined = "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", text).split())
    return joined.strip("-_.")[:_MAX_VALUE].rstrip("-_.")


def _versions(gpu: Gpu) -> dict[str, str]:
    """Each under its new and its deprecated name. The revision of a version without one is left out."""
    driver = [*gpu.driver_version.split("."), "", ""][:3]
    cuda = [str(part) for part in gpu.cuda_version]
    return {
        **{
            f"cuda.driver-version.{name}": part
            for name, part in zip(("major", "minor", "revision"), driver, strict=True)
        },
        **{f"cuda.driver.{name}": part for name, part in zip(("major", "minor", "rev"), driver, strict=True)},
        **{f"cuda.runtime-version.{name}": part for name, part in zip(("major", "minor"), cuda, strict=True)},
        **{f"cuda.runtime.{name}": part for name, part in zip(("major", "minor"), cuda, strict=True)},
        "cuda.driver-version.full": label_value(gpu.driver_version),
        "cuda.runtime-version.full": ".".join(cuda),
    }


def _in_mig_mode(gpu: Gpu) -> bool:
    return gpu.mig is not None and gpu.mig.enabled


def _clique(gpus: Sequence[Gpu]) -> str:
    """Of the NVLink domain that leaves the machine, where all GPUs are in the same one."""
    found = {
        f"{gpu.fabric.cluster_uuid}.{gpu.fabric.clique_id}"
        if gpu.fabric and gpu.fabric.cluster_uuid.strip("0-")
        else ""
        for gpu in gpus
    }
    return found.pop() if len(found) == 1 else ""
