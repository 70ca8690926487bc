"""MIG as seen from a device: mode, profiles, placements, and the handles of MIG devices that exist."""

# ruff: noqa: ARG001 - the arguments are those of the C function, needed or not

from __future__ import annotations

import struct
from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Target
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.facts import MigBoard, MigProfile
from dra_driver.hardware.sim.instance_files import show_instances
from dra_driver.hardware.sim.mig_rules import compute_profiles, mig_devices, profile_count, remaining
from dra_driver.hardware.sim.session import Session

_PROFILE_V2: Final = 0x02000098


def board_of(session: Session, target: Target) -> MigBoard:
    board = session.machine.board(target.gpu)
    if board is None:
        raise Refused(Code.NOT_SUPPORTED)
    return board


def profile_by_id(board: MigBoard, number: Any) -> MigProfile:
    profile = board.profile(c.number(number))
    if profile is None:
        raise Refused(Code.INVALID_ARGUMENT)
    return profile


def mig_mode(session: Session, target: Target, current: Any, pending: Any) -> None:
    board_of(session, target)
    c.put_int(current, target.state["mig"])
    c.put_int(pending, target.state["mig_pending"])


def set_mig_mode(session: Session, target: Target, mode: Any, activation: Any) -> None:
    """Succeeds when the request is accepted; whether the mode is active now is in `activation`."""
    board = board_of(session, target)
    wanted = c.number(mode)
    if wanted not in (0, 1):
        raise Refused(Code.INVALID_ARGUMENT)
    with session.file.change() as state:
        gpu = session.reachable(target.gpu.pci, state)
        if gpu["instances"] and not wanted:
            raise Refused(Code.IN_USE)
        gpu["mig_pending"] = wanted
        if gpu["mig"] == wanted:
            status = Code.SUCCESS
        elif gpu["processes"]:
            status = Code.IN_USE
        elif board.reset_to_enable:
            status = Code.RESET_REQUIRED
        else:
            status = Code.SUCCESS
            gpu["mig"] = wanted
            gpu["compute_mode"] = 0
        show_instances(session.directory, session.machine, target.gpu, state)
    c.put_int(activation, status)


def profile_info(session: Session, target: Target, enum: Any, out: Any) -> None:
    profile = _profile_by_enum(session, target, enum)
    c.put_bytes(out, struct.pack("<10IQ", *_numbers(profile), profile.memory))


def profile_info_v2(session: Session, target: Target, enum: Any, out: Any) -> None:
    c.struct_version(out, _PROFILE_V2)
    _put_profile_v2(_profile_by_enum(session, target, enum), out)


def profile_info_by_id(session: Session, target: Target, number: Any, out: Any) -> None:
    c.struct_version(out, _PROFILE_V2)
    _put_profile_v2(profile_by_id(board_of(session, target), number), out)


def _profile_by_enum(session: Session, target: Target, enum: Any) -> MigProfile:
    board = board_of(session, target)
    wanted = c.number(enum)
    if not 0 <= wanted < profile_count(session.machine.driver_branch):
        raise Refused(Code.INVALID_ARGUMENT)
    profile = next((p for p in board.profiles if p.enum == wanted), None)
    if profile is None:
        raise Refused(Code.NOT_SUPPORTED)
    return profile


def _numbers(p: MigProfile) -> tuple[int, ...]:
    """id, peer to peer (never), slices, instances, SMs, copy, decoder, encoder, JPEG, OFA."""
    return p.id, 0, p.slices, p.max, p.sm, p.ce, p.dec, p.enc, p.jpeg, p.ofa


def _put_profile_v2(p: MigProfile, out: Any) -> None:
    name = f"MIG {p.name}".encode()
    c.put_bytes(out, struct.pack("<11I4xQ96s", _PROFILE_V2, *_numbers(p), p.memory, name))


def possible_placements(session: Session, target: Target, number: Any, out: Any, count: Any) -> None:
    """All placements, whether free or not and whether MIG is on or not. NULL asks for their number."""
    profile = profile_by_id(board_of(session, target), number)
    c.put_row(out, count, [struct.pack("<II", start, profile.size) for start in profile.starts])


def remaining_capacity(session: Session, target: Target, number: Any, out: Any) -> None:
    board = board_of(session, target)
    profile = profile_by_id(board, number)
    require_mig(target)
    c.put_int(out, remaining(board, target.state["instances"], profile))


def require_mig(target: Target) -> None:
    if not target.state["mig"]:
        raise Refused(Code.NOT_SUPPORTED)


def max_mig_devices(session: Session, target: Target, out: Any) -> None:
    """0 where MIG is unknown or off."""
    board = session.machine.board(target.gpu)
    c.put_int(out, board.max_devices if board and target.state["mig"] else 0)


def mig_device_by_index(session: Session, target: Target, index: Any, out: Any) -> None:
    board = board_of(session, target)
    wanted = c.number(index)
    if not target.state["mig"] or not 0 <= wanted < board.max_devices:
        raise Refused(Code.INVALID_ARGUMENT)
    devices = mig_devices(target.state)
    if wanted >= len(devices):
        raise Refused(Code.NOT_FOUND)
    c.put_handle(out, session.handle("mig", target.gpu.pci, devices[wanted][1]["token"]))


def is_mig_device(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, int(target.is_mig))


def parent(session: Session, target: Target, out: Any) -> None:
    _require_mig_device(target)
    c.put_handle(out, session.handle("gpu", target.gpu.pci))


def gpu_instance_id(session: Session, target: Target, out: Any) -> None:
    _require_mig_device(target)
    c.put_int(out, target.instance["id"])


def compute_instance_id(session: Session, target: Target, out: Any) -> None:
    _require_mig_device(target)
    c.put_int(out, target.compute["id"])


def attributes(session: Session, target: Target, out: Any) -> None:
    """SMs, shared engines, slices of both instances, memory in MiB; of MIG devices only."""
    if not target.is_mig:
        raise Refused(Code.NOT_SUPPORTED)
    board = board_of(session, target)
    gi = profile_by_id(board, target.instance["profile"])
    ci = next(p for p in compute_profiles(board, gi) if p.id == target.compute["profile"])
    c.put_bytes(out, struct.pack("<8IQ", ci.sm, *gi.engines, gi.slices, ci.slices, gi.memory))


def _require_mig_device(target: Target) -> None:
    if not target.is_mig:
        raise Refused(Code.INVALID_ARGUMENT)


CALLS: Final = (
    Call("nvmlDeviceGetMigMode", mig_mode),
    Call("nvmlDeviceSetMigMode", set_mig_mode),
    Call("nvmlDeviceGetGpuInstanceProfileInfo", profile_info),
    Call("nvmlDeviceGetGpuInstanceProfileInfoV", profile_info_v2),
    Call("nvmlDeviceGetGpuInstanceProfileInfoByIdV", profile_info_by_id, since=580),
    Call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", possible_placements),
    Call("nvmlDeviceGetGpuInstanceRemainingCapacity", remaining_capacity),
    Call("nvmlDeviceGetMaxMigDeviceCount", max_mig_devices),
    Call("nvmlDeviceGetMigDeviceHandleByIndex", mig_device_by_index),
    Call("nvmlDeviceIsMigDeviceHandle", is_mig_device, mig=True),
    Call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", parent, mig=True),
    Call("nvmlDeviceGetGpuInstanceId", gpu_instance_id, mig=True),
    Call("nvmlDeviceGetComputeInstanceId", compute_instance_id, mig=True),
    Call("nvmlDeviceGetAttributes_v2", attributes, mig=True),
)
