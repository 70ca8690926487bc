"""MIG profiles of one GPU as its driver states them."""

from __future__ import annotations

from dra_driver.hardware import nvml_api, nvml_failure
from dra_driver.hardware.nvml_api import Handle, ProfileInfo
from dra_driver.hardware.nvml_failure import NvmlFailure
from dra_driver.hardware.nvml_names import MIG_SUFFIXES
from dra_driver.model.gpu import MigPlacement, MigProfile

_MIB = 1024 * 1024
_GIB = 1024 * _MIB

_NO_SUCH_PROFILE = nvml_failure.ABSENT | {nvml_failure.INVALID_ARGUMENT}


def read_profiles(handle: Handle, total_bytes: int | None) -> tuple[MigProfile, ...]:
    """All profiles with their placements, sorted by slices, memory and ID. `total_bytes` is the GPU's memory (for the
    names, where the driver does not state them)."""
    found: dict[int, MigProfile] = {}
    for number in nvml_api.PROFILE_ENUMS:
        try:
            info = nvml_api.gpu_instance_profile(handle, number)
        except NvmlFailure as failure:
            if failure.code in _NO_SUCH_PROFILE:
                continue
            raise
        if info.id not in found:
            found[info.id] = _profile(handle, number, info, total_bytes)
    return tuple(sorted(found.values(), key=lambda profile: (profile.slices, profile.memory_mib, profile.id)))


def _profile(handle: Handle, number: int, info: ProfileInfo, total_bytes: int | None) -> MigProfile:
    try:
        placements = nvml_api.gpu_instance_placements(handle, info.id)
    except NvmlFailure as failure:
        # Some drivers tell them only while MIG is on, or only to the privileged. They are read anew when the mode changes.
        if failure.code not in _NO_SUCH_PROFILE:
            raise
        placements = ()
    return MigProfile(
        id=info.id,
        name=info.name or computed_name(info.slices, info.memory_mib, total_bytes, MIG_SUFFIXES.get(number, "")),
        slices=info.slices,
        memory_mib=info.memory_mib,
        multiprocessors=info.multiprocessors,
        copy_engines=info.copy_engines,
        decoders=info.decoders,
        encoders=info.encoders,
        jpeg_engines=info.jpeg_engines,
        ofa_engines=info.ofa_engines,
        max_instances=info.max_instances,
        placements=tuple(MigPlacement(start, size) for start, size in placements),
    )


def computed_name(slices: int, memory_mib: int, total_bytes: int | None, suffix: str) -> str:
    """`1g.10gb+me` for drivers that do not state the name: memory in eighths of the GPU's, rounded up, then to whole
    gigabytes with halves going up (NVIDIA says 23 where Python's round() says 22). Source: mig-profiles.yaml, rules."""
    if total_bytes:
        eighths = -(-8 * memory_mib * _MIB // total_bytes)
        gigabytes = (eighths * -(-total_bytes // _GIB) * 2 + 8) // 16
    else:
        gigabytes = (memory_mib * 2 + 1024) // 2048
    return f"{slices}g.{gigabytes}gb{suffix}"


def full_gpu_multiprocessors(profiles: tuple[MigProfile, ...]) -> int | None:
    """Multiprocessors of the profile that takes the whole GPU; None when none does. No NVML call states the number of a
    full GPU; on A100 this is what MIG can use (98 of 108)."""
    whole = [
        profile for profile in profiles if profile.max_instances == 1 and _size(profile) == max(map(_size, profiles))
    ]
    return max((profile.multiprocessors for profile in whole), default=None)


def _size(profile: MigProfile) -> int:
    return max((placement.size for placement in profile.placements), default=0)
