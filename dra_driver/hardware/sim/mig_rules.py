"""The rules of MIG as values: what fits where, which id it gets, what a compute instance may be. No state, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dra_driver.hardware.sim.calls import Target
from dra_driver.hardware.sim.facts import Machine, MigBoard, MigProfile
from dra_driver.hardware.sim.state import ComputeInstance, GpuInstance, GpuState

COMPUTE_PROFILES: Final = 9  # nvml.h NVML_COMPUTE_INSTANCE_PROFILE_COUNT
_REV1: Final = 7
# Per slices of the GPU instance: (enum and id, slices, max, starts). From `nvidia-smi mig -lcip` of A100 and H100;
# placements, A30 and Blackwell by rule.
_COMPUTE_ROWS: Final[dict[int, tuple[tuple[int, int, int, tuple[int, ...]], ...]]] = {
    1: ((0, 1, 1, (0,)),),
    2: ((0, 1, 2, (0, 1)), (1, 2, 1, (0,))),
    3: ((0, 1, 3, (0, 1, 2)), (1, 2, 1, (0,)), (2, 3, 1, (0,))),
    4: ((0, 1, 4, (0, 1, 2, 3)), (1, 2, 2, (0, 2)), (3, 4, 1, (0,))),
    7: (
        (0, 1, 7, (0, 1, 2, 3, 4, 5, 6)),
        (1, 2, 3, (0, 2, 4)),
        (2, 3, 2, (0, 4)),
        (3, 4, 1, (0,)),
        (4, 7, 1, (0,)),
    ),
}


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """A compute instance profile inside one GPU instance; its enum and its id are the same number."""

    id: int
    slices: int
    max: int
    starts: tuple[int, ...]
    sm: int
    name: str


def profile_count(driver_branch: int) -> int:
    """How many GPU instance profile enums the library knows; a higher one is INVALID_ARGUMENT."""
    if driver_branch < 570:
        return 10
    return 17 if driver_branch < 610 else 18


def fits(board: MigBoard, instances: Sequence[GpuInstance], profile: MigProfile, start: int) -> bool:
    """Whether the profile can be created at `start`: free memory slices, compute slices, engines, and its limit."""
    if any(start < gi["start"] + gi["size"] and gi["start"] < start + profile.size for gi in instances):
        return False
    if sum(gi["profile"] == profile.id for gi in instances) >= profile.max:
        return False
    there = [found for gi in instances if (found := board.profile(gi["profile"])) is not None]
    if sum(p.slices for p in there) + profile.slices > board.compute_slices:
        return False
    used = (sum(column) for column in zip(*(p.engines for p in there), strict=True)) if there else (0,) * 5
    return all(u + need <= all_ for u, need, all_ in zip(used, profile.engines, board.whole.engines, strict=True))


def free_starts(board: MigBoard, instances: Sequence[GpuInstance], profile: MigProfile) -> tuple[int, ...]:
    return tuple(start for start in profile.starts if fits(board, instances, profile, start))


def remaining(board: MigBoard, instances: Sequence[GpuInstance], profile: MigProfile) -> int:
    """How many instances of the profile could still be created, one after the other."""
    there = list(instances)
    count = 0
    for start in profile.starts:
        if fits(board, there, profile, start):
            there.append(
                {
                    "id": 0,
                    "profile": profile.id,
                    "start": start,
                    "size": profile.size,
                    "token": 0,
                    "compute": [],
                }
            )
            count += 1
    return count


def instance_id(board: MigBoard, size: int, start: int) -> int:
    """Ids come in ranges by size, largest first: 0; 1-2; 3-6; 7-14 on boards of 8 memory slices."""
    base = 0
    for larger in sorted({p.size for p in board.profiles if p.size > size}, reverse=True):
        base += board.memory_slices // larger
    return base + start // size


def compute_profiles(board: MigBoard, profile: MigProfile) -> tuple[ComputeProfile, ...]:
    one = min((p for p in board.profiles if p.slices == 1), key=lambda p: (p.size, p.sm))

    def row(number: int, slices: int, most: int, starts: tuple[int, ...], sm: int) -> ComputeProfile:
        prefix = "" if slices == profile.slices else f"{slices}c."
        return ComputeProfile(number, slices, most, starts, sm, prefix + profile.name)

    rows = [
        row(number, slices, most, starts, profile.sm if slices == profile.slices else slices * one.sm)
        for number, slices, most, starts in _COMPUTE_ROWS.get(profile.slices, ())
    ]
    if profile.slices == 1 and profile.sm > one.sm:  # Hopper's double-memory 1g: the larger SM count is a revision
        rows = [row(0, 1, 1, (0,), one.sm), row(_REV1, 1, 1, (0,), profile.sm)]
    return tuple(rows)


def compute_fits(there: Sequence[ComputeInstance], profile: ComputeProfile, start: int) -> bool:
    if any(start < ci["start"] + ci["size"] and ci["start"] < start + profile.slices for ci in there):
        return False
    return sum(ci["profile"] == profile.id for ci in there) < profile.max


def compute_free_starts(there: Sequence[ComputeInstance], profile: ComputeProfile) -> tuple[int, ...]:
    return tuple(start for start in profile.starts if compute_fits(there, profile, start))


def mig_devices(state: GpuState) -> list[tuple[GpuInstance, ComputeInstance]]:
    """In the order of MIG device indices: by GPU instance id, then compute instance id, without gaps."""
    return [
        (gi, ci)
        for gi in sorted(state["instances"], key=lambda row: row["id"])
        for ci in sorted(gi["compute"], key=lambda row: row["id"])
    ]


def mig_name(machine: Machine, target: Target) -> str:
    """`3g.40gb`, or `1c.3g.40gb` where the compute instance is a part of its GPU instance."""
    board = machine.board(target.gpu)
    return device_name(board, target.instance, target.compute) if board else ""


def device_name(board: MigBoard, gi: GpuInstance, ci: ComputeInstance) -> str:
    profile = board.profile(gi["profile"])
    if profile is None:
        return ""
    return next((p.name for p in compute_profiles(board, profile) if p.id == ci["profile"]), profile.name)
