"""Event sets: register for a device's events, wait for them, free."""

from __future__ import annotations

import struct
import time
from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Subject, Target
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.session import EventSet, Session
from dra_driver.hardware.sim.state import Event, State

_WITHOUT_ECC: Final = 0x8 | 0x10 | 0x4  # XID, clock, P-state
_ECC_EVENTS: Final = 0x1 | 0x2
_RECOVERY_EVENTS: Final = 0x8000  # recovery action changed, from R570
_RECOVERY_SINCE: Final = 570


def supported_types(session: Session, target: Target, out: Any) -> None:
    c.put_long(out, _supported(session, target))


def _supported(session: Session, target: Target) -> int:
    types = _WITHOUT_ECC | (_ECC_EVENTS if target.gpu.product.ecc else 0)
    return types | (_RECOVERY_EVENTS if session.machine.driver_branch >= _RECOVERY_SINCE else 0)


def set_create(session: Session, out: Any) -> None:
    c.put_handle(out, session.new_event_set())


def set_free(session: Session, handle: Any) -> None:
    session.free_event_set(c.handle(handle))


def register(session: Session, target: Target, types: Any, handle: Any) -> None:
    """From now on: what happened before is not delivered. Registering again adds to the types."""
    wanted = c.number(types)
    events = session.event_set(c.handle(handle))
    if wanted & ~_supported(session, target):
        raise Refused(Code.NOT_SUPPORTED)
    with events.lock:
        since, before = events.registered.get(target.gpu.pci, (session.file.read()["last_number"], 0))
        events.registered[target.gpu.pci] = (since, before | wanted)


def wait(session: Session, handle: Any, out: Any, milliseconds: Any) -> None:
    """The oldest event not yet delivered. With a lost GPU in the set and no event left: GPU_IS_LOST, at once and each
    time, as nvml.h has it."""
    events = session.event_set(c.handle(handle))
    c.address(out, 32)
    end = time.monotonic() + c.number(milliseconds) / 1000
    while True:
        state = session.file.read()
        session.require_ready(state)
        event = _next(events, state)
        if event is not None:
            device = session.handle("gpu", event["gpu"])
            return c.put_bytes(
                out, struct.pack("<3Q2I", device, event["type"], event["data"], event["gi"], event["ci"])
            )
        if any(state["gpus"][pci]["lost"] for pci in list(events.registered)):
            raise Refused(Code.GPU_IS_LOST)
        left = end - time.monotonic()
        if left <= 0:
            raise Refused(Code.TIMEOUT)
        events.watch.wait(left)


def _next(events: EventSet, state: State) -> Event | None:
    with events.lock:
        for event in state["events"]:
            since, types = events.registered.get(event["gpu"], (0, 0))
            if event["type"] & types and event["seq"] > max(since, events.delivered):
                events.delivered = event["seq"]
                return event
    return None


CALLS: Final = (
    Call("nvmlEventSetCreate", set_create, Subject.SYSTEM),
    Call("nvmlEventSetFree", set_free, Subject.SYSTEM),
    Call("nvmlEventSetWait_v2", wait, Subject.SYSTEM),
    Call("nvmlDeviceRegisterEvents", register),
    Call("nvmlDeviceGetSupportedEventTypes", supported_types),
)
