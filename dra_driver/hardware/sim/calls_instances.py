"""The life of MIG instances: create, look up, describe, destroy; each change also shows in the host's files."""

from __future__ import annotations

import struct
from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Subject, Target
from dra_driver.hardware.sim.calls_mig import board_of, profile_by_id, require_mig
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.facts import MigProfile
from dra_driver.hardware.sim.identity import new_mig_uuid
from dra_driver.hardware.sim.instance_files import show_instances
from dra_driver.hardware.sim.mig_rules import (
    COMPUTE_PROFILES,
    ComputeProfile,
    compute_fits,
    compute_free_starts,
    compute_profiles,
    fits,
    free_starts,
    instance_id,
)
from dra_driver.hardware.sim.session import Session
from dra_driver.hardware.sim.state import ComputeInstance, GpuInstance, next_number

_COMPUTE_V2: Final = 0x02000088


def create(session: Session, target: Target, number: Any, out: Any) -> None:
    _create(session, target, profile_by_id(board_of(session, target), number), None, out)


def create_with_placement(session: Session, target: Target, number: Any, placement: Any, out: Any) -> None:
    profile = profile_by_id(board_of(session, target), number)
    start, size = struct.unpack("<II", c.read_bytes(placement, 8))
    if size != profile.size or start not in profile.starts:
        raise Refused(Code.INVALID_ARGUMENT)
    _create(session, target, profile, start, out)


def _create(session: Session, target: Target, profile: MigProfile, start: int | None, out: Any) -> None:
    require_mig(target)
    board = board_of(session, target)
    c.address(out, 8)
    with session.file.change() as state:
        gpu = session.reachable(target.gpu.pci, state)
        if start is None:
            start = next(iter(free_starts(board, gpu["instances"], profile)), None)
        if start is None or not fits(board, gpu["instances"], profile, start):
            raise Refused(Code.INSUFFICIENT_RESOURCES)
        instance: GpuInstance = {
            "id": instance_id(board, profile.size, start),
            "profile": profile.id,
            "start": start,
            "size": profile.size,
            "token": next_number(state),
            "compute": [],
        }
        gpu["instances"].append(instance)
        show_instances(session.directory, session.machine, target.gpu, state)
    c.put_handle(out, session.handle("gi", target.gpu.pci, instance["token"]))


def gpu_instances(session: Session, target: Target, number: Any, out: Any, count: Any) -> None:
    """Writes all of the profile's instances: the caller brings room for as many as there can be."""
    require_mig(target)
    profile = profile_by_id(board_of(session, target), number)
    rows = [gi for gi in target.state["instances"] if gi["profile"] == profile.id]
    c.put_bytes(out, b"".join(_pointer(session, "gi", target, gi["token"]) for gi in _by_id(rows)))
    c.put_int(count, len(rows))


def gpu_instance_by_id(session: Session, target: Target, number: Any, out: Any) -> None:
    require_mig(target)
    for gi in target.state["instances"]:
        if gi["id"] == c.number(number):
            return c.put_handle(out, session.handle("gi", target.gpu.pci, gi["token"]))
    raise Refused(Code.NOT_FOUND)


def gpu_instance_info(session: Session, target: Target, out: Any) -> None:
    gi = target.instance
    device = session.handle("gpu", target.gpu.pci)
    c.put_bytes(out, struct.pack("<Q4I", device, gi["id"], gi["profile"], gi["start"], gi["size"]))


def destroy_gpu_instance(session: Session, target: Target) -> None:
    with session.file.change() as state:
        gpu = session.reachable(target.gpu.pci, state)
        found = next((gi for gi in gpu["instances"] if gi["token"] == target.instance["token"]), None)
        if found is None:
            raise Refused(Code.INVALID_ARGUMENT)
        if found["compute"] or any(p["gi"] == found["id"] for p in gpu["processes"]):
            raise Refused(Code.IN_USE)
        gpu["instances"].remove(found)
        show_instances(session.directory, session.machine, target.gpu, state)


def compute_profile_info(session: Session, target: Target, enum: Any, engines: Any, out: Any) -> None:
    profile, row = _compute_by_enum(session, target, enum, engines)
    c.put_bytes(out, struct.pack("<9I", row.id, row.slices, row.max, row.sm, *profile.engines))


def compute_profile_info_v2(session: Session, target: Target, enum: Any, engines: Any, out: Any) -> None:
    c.struct_version(out, _COMPUTE_V2)
    profile, row = _compute_by_enum(session, target, enum, engines)
    numbers = (row.id, row.slices, row.max, row.sm, *profile.engines)
    c.put_bytes(out, struct.pack("<10I96s", _COMPUTE_V2, *numbers, f"MIG {row.name}".encode()))


def _compute_by_enum(session: Session, target: Target, enum: Any, engines: Any) -> tuple[MigProfile, ComputeProfile]:
    if not 0 <= c.number(enum) < COMPUTE_PROFILES or c.number(engines) != 0:
        raise Refused(Code.INVALID_ARGUMENT)
    try:
        return _compute_by_id(session, target, enum)
    except Refused:
        raise Refused(Code.NOT_SUPPORTED) from None


def _compute_by_id(session: Session, target: Target, number: Any) -> tuple[MigProfile, ComputeProfile]:
    board = board_of(session, target)
    profile = profile_by_id(board, target.instance["profile"])
    row = next((p for p in compute_profiles(board, profile) if p.id == c.number(number)), None)
    if row is None:
        raise Refused(Code.INVALID_ARGUMENT)
    return profile, row


def compute_placements(session: Session, target: Target, number: Any, out: Any, count: Any) -> None:
    _, row = _compute_by_id(session, target, number)
    c.put_row(out, count, [struct.pack("<II", start, row.slices) for start in row.starts])


def compute_capacity(session: Session, target: Target, number: Any, out: Any) -> None:
    _, row = _compute_by_id(session, target, number)
    there = list(target.instance["compute"])
    for start in row.starts:
        if compute_fits(there, row, start):
            there.append(_compute_row(row, 0, start, "", 0))
    c.put_int(out, len(there) - len(target.instance["compute"]))


def create_compute(session: Session, target: Target, number: Any, out: Any) -> None:
    _create_compute(session, target, number, None, out)


def create_compute_with_placement(session: Session, target: Target, number: Any, placement: Any, out: Any) -> None:
    _, row = _compute_by_id(session, target, number)
    start, size = struct.unpack("<II", c.read_bytes(placement, 8))
    if size != row.slices or start not in row.starts:
        raise Refused(Code.INVALID_ARGUMENT)
    _create_compute(session, target, number, start, out)


def _create_compute(session: Session, target: Target, number: Any, start: int | None, out: Any) -> None:
    _, row = _compute_by_id(session, target, number)
    c.address(out, 8)
    with session.file.change() as state:
        gpu = session.reachable(target.gpu.pci, state)
        gi = next((gi for gi in gpu["instances"] if gi["token"] == target.instance["token"]), None)
        if gi is None:
            raise Refused(Code.INVALID_ARGUMENT)
        if start is None:
            start = next(iter(compute_free_starts(gi["compute"], row)), None)
        if start is None or not compute_fits(gi["compute"], row, start):
            raise Refused(Code.INSUFFICIENT_RESOURCES)
        taken = {ci["id"] for ci in gi["compute"]}
        lowest = next(i for i in range(len(taken) + 1) if i not in taken)
        compute = _compute_row(row, lowest, start, new_mig_uuid(), next_number(state))
        gi["compute"].append(compute)
        show_instances(session.directory, session.machine, target.gpu, state)
    c.put_handle(out, session.handle("ci", target.gpu.pci, compute["token"]))


def _compute_row(row: ComputeProfile, number: int, start: int, uuid: str, token: int) -> ComputeInstance:
    return {"id": number, "profile": row.id, "start": start, "size": row.slices, "uuid": uuid, "token": token}


def compute_instances(session: Session, target: Target, number: Any, out: Any, count: Any) -> None:
    _, row = _compute_by_id(session, target, number)
    rows = [ci for ci in target.instance["compute"] if ci["profile"] == row.id]
    c.put_bytes(out, b"".join(_pointer(session, "ci", target, ci["token"]) for ci in rows))
    c.put_int(count, len(rows))


def compute_instance_by_id(session: Session, target: Target, number: Any, out: Any) -> None:
    for ci in target.instance["compute"]:
        if ci["id"] == c.number(number):
            return c.put_handle(out, session.handle("ci", target.gpu.pci, ci["token"]))
    raise Refused(Code.NOT_FOUND)


def compute_instance_info(session: Session, target: Target, out: Any) -> None:
    """`device` is the handle of the MIG device, not of the GPU."""
    ci, pci = target.compute, target.gpu.pci
    handles = session.handle("mig", pci, ci["token"]), session.handle("gi", pci, target.instance["token"])
    c.put_bytes(out, struct.pack("<2Q4I", *handles, ci["id"], ci["profile"], ci["start"], ci["size"]))


def destroy_compute(session: Session, target: Target) -> None:
    with session.file.change() as state:
        gpu = session.reachable(target.gpu.pci, state)
        for gi in gpu["instances"]:
            for ci in gi["compute"]:
                if ci["token"] == target.compute["token"]:
                    if any((p["gi"], p["ci"]) == (gi["id"], ci["id"]) for p in gpu["processes"]):
                        raise Refused(Code.IN_USE)
                    gi["compute"].remove(ci)
                    return show_instances(session.directory, session.machine, target.gpu, state)
        raise Refused(Code.INVALID_ARGUMENT)


def _pointer(session: Session, kind: Any, target: Target, token: int) -> bytes:
    return struct.pack("<Q", session.handle(kind, target.gpu.pci, token))


def _by_id(rows: list[GpuInstance]) -> list[GpuInstance]:
    return sorted(rows, key=lambda gi: gi["id"])


_GI: Final = Subject.GPU_INSTANCE
_CI: Final = Subject.COMPUTE_INSTANCE
CALLS: Final = (
    Call("nvmlDeviceCreateGpuInstance", create),
    Call("nvmlDeviceCreateGpuInstanceWithPlacement", create_with_placement),
    Call("nvmlDeviceGetGpuInstances", gpu_instances),
    Call("nvmlDeviceGetGpuInstanceById", gpu_instance_by_id),
    Call("nvmlGpuInstanceGetInfo", gpu_instance_info, _GI),
    Call("nvmlGpuInstanceDestroy", destroy_gpu_instance, _GI),
    Call("nvmlGpuInstanceGetComputeInstanceProfileInfo", compute_profile_info, _GI),
    Call("nvmlGpuInstanceGetComputeInstanceProfileInfoV", compute_profile_info_v2, _GI),
    Call("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", compute_capacity, _GI),
    Call("nvmlGpuInstanceGetComputeInstancePossiblePlacements", compute_placements, _GI),
    Call("nvmlGpuInstanceCreateComputeInstance", create_compute, _GI),
    Call("nvmlGpuInstanceCreateComputeInstanceWithPlacement", create_compute_with_placement, _GI),
    Call("nvmlGpuInstanceGetComputeInstances", compute_instances, _GI),
    Call("nvmlGpuInstanceGetComputeInstanceById", compute_instance_by_id, _GI),
    Call("nvmlComputeInstanceGetInfo_v2", compute_instance_info, _CI),
    Call("nvmlComputeInstanceDestroy", destroy_compute, _CI),
)
