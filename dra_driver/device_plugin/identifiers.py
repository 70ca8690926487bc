"""What device plugins call GPUs -> UUIDs. Pure.

GPU-<uuid>, MIG-<uuid>       NVIDIA's plugin (k8s-device-plugin), with any device-id-strategy
GPU-<uuid>::3                the same with time-slicing or MPS replicas
MIG-GPU-<uuid>/1/0           MIG devices under drivers before R470
GPU-<uuid>-3                 HAMi
nvidia0, nvidia0/vgpu1       GKE (container-engine-accelerators): the number of /dev/nvidia0
nvidia0/gi1                  the same for MIG: the GPU as a whole is not published then, its instances have UUIDs of their own
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dra_driver.model.gpu import Gpu

_GPU = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MINOR = re.compile(r"nvidia(\d+)(/vgpu\d+)?")


def uuid_of(identifier: str, gpus: Iterable[Gpu]) -> str | None:
    """The UUID of the GPU or MIG device; None for what is no GPU, or none that is known by its number."""
    if identifier.startswith("MIG-"):
        return identifier.partition("::")[0]
    if match := _GPU.match(identifier):
        return match[0]
    if match := _MINOR.fullmatch(identifier):
        return next((gpu.uuid for gpu in gpus if gpu.minor == int(match[1])), None)
    return None


def by_uuid(identifiers: Mapping[str, Iterable[str]], gpus: Iterable[Gpu]) -> dict[str, frozenset[str]]:
    """Resource -> identifiers becomes resource -> UUIDs; resources that are no GPUs are left out."""
    known = tuple(gpus)
    found = {
        resource: frozenset(uuid for identifier in given if (uuid := uuid_of(identifier, known)))
        for resource, given in identifiers.items()
    }
    return {resource: uuids for resource, uuids in sorted(found.items()) if uuids}
