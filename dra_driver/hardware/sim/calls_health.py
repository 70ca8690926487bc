"""How a device is: ECC counters, row remapping, page retirement, recovery action."""

# ruff: noqa: ARG001 - the arguments are those of the C function, needed or not

from __future__ import annotations

import struct
from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Target
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.session import Session

_SRAM_V1: Final = 0x01000068
_REPAIR_V1: Final = 0x0100000C
_UNREPAIRABLE_V1: Final = 0x01000008
_FIELD_BYTES: Final = 40
_RECOVERY_ACTION: Final = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_RECOVERY_SINCE: Final = 570
_UNSIGNED_INT: Final = 1  # NVML_VALUE_TYPE_UNSIGNED_INT
_ROW_REMAPPING: Final = ("ampere", "ada", "hopper", "blackwell")


def ecc_mode(session: Session, target: Target, current: Any, pending: Any) -> None:
    _require_ecc(target)
    c.put_int(current, 1)
    c.put_int(pending, 1)


def total_ecc_errors(session: Session, target: Target, kind: Any, counter: Any, out: Any) -> None:
    """kind 0 corrected, 1 uncorrected; counter 0 volatile, 1 aggregate, which are the same here."""
    _require_ecc(target)
    c.put_long(out, _ecc(target, c.number(kind)))


def memory_error_counter(session: Session, target: Target, kind: Any, counter: Any, place: Any, out: Any) -> None:
    _require_ecc(target)
    c.put_long(out, _ecc(target, c.number(kind)) if c.number(place) == 2 else 0)  # 2: device memory


def _ecc(target: Target, kind: int) -> int:
    if kind not in (0, 1):
        raise Refused(Code.INVALID_ARGUMENT)
    return target.state["ecc_uncorrected"] if kind else target.state["ecc_corrected"]


def sram_ecc_status(session: Session, target: Target, out: Any) -> None:
    c.struct_version(out, _SRAM_V1)
    _require_ecc(target)
    c.put_bytes(out, struct.pack("<I4x11QI4x", _SRAM_V1, *([0] * 11), target.state["sram_threshold"]))


def remapped_rows(
    session: Session, target: Target, corrected: Any, uncorrected: Any, pending: Any, failure: Any
) -> None:
    _require_remapping(target)
    c.put_int(corrected, 0)
    c.put_int(uncorrected, target.state["ecc_uncorrected"])
    c.put_int(pending, target.state["remap_pending"])
    c.put_int(failure, target.state["remap_failure"])


def row_remapper_histogram(session: Session, target: Target, out: Any) -> None:
    """Banks by what they have left: all, much, some, little, none. The numbers are made up."""
    _require_remapping(target)
    failed = target.state["remap_failure"]
    c.put_bytes(out, struct.pack("<5I", 640 - failed, 0, 0, 0, failed))


def retired_pages(session: Session, target: Target, cause: Any, count: Any, pages: Any, times: Any = None) -> None:
    if target.gpu.product.architecture in _ROW_REMAPPING or not target.gpu.product.ecc:
        raise Refused(Code.NOT_SUPPORTED)
    c.put_int(count, 0)


def retired_pages_pending(session: Session, target: Target, out: Any) -> None:
    if target.gpu.product.architecture in _ROW_REMAPPING or not target.gpu.product.ecc:
        raise Refused(Code.NOT_SUPPORTED)
    c.put_int(out, 0)


def repair_status(session: Session, target: Target, out: Any) -> None:
    c.struct_version(out, _REPAIR_V1)
    _require_blackwell(target)
    c.put_bytes(out, struct.pack("<III", _REPAIR_V1, 0, 0))


def unrepairable_memory(session: Session, target: Target, out: Any) -> None:
    c.struct_version(out, _UNREPAIRABLE_V1)
    _require_blackwell(target)
    c.put_bytes(out, struct.pack("<II", _UNREPAIRABLE_V1, 0))


def field_values(session: Session, target: Target, count: Any, out: Any) -> None:
    """Succeeds as a whole; each row has its own code. Only the recovery action is known here."""
    for row in range(c.number(count)):
        start = row * _FIELD_BYTES
        field = int.from_bytes(c.read_bytes(out, start + 4)[start:], "little")
        known = field == _RECOVERY_ACTION
        if known and session.machine.driver_branch >= _RECOVERY_SINCE:
            body = struct.pack("<qqIIQ", 0, 0, _UNSIGNED_INT, Code.SUCCESS, target.state["recovery_action"])
        else:
            body = struct.pack("<qqIIQ", 0, 0, 0, Code.NOT_SUPPORTED, 0)
        c.put_bytes(out, body, offset=start + 8)


def _require_ecc(target: Target) -> None:
    if not target.gpu.product.ecc:
        raise Refused(Code.NOT_SUPPORTED)


def _require_remapping(target: Target) -> None:
    if target.gpu.product.architecture not in _ROW_REMAPPING or not target.gpu.product.ecc:
        raise Refused(Code.NOT_SUPPORTED)


def _require_blackwell(target: Target) -> None:
    if target.gpu.product.architecture != "blackwell":
        raise Refused(Code.NOT_SUPPORTED)


CALLS: Final = (
    Call("nvmlDeviceGetEccMode", ecc_mode),
    Call("nvmlDeviceGetTotalEccErrors", total_ecc_errors),
    Call("nvmlDeviceGetMemoryErrorCounter", memory_error_counter),
    Call("nvmlDeviceGetSramEccErrorStatus", sram_ecc_status, since=550),
    Call("nvmlDeviceGetRemappedRows", remapped_rows),
    Call("nvmlDeviceGetRowRemapperHistogram", row_remapper_histogram),
    Call("nvmlDeviceGetRetiredPages_v2", retired_pages),
    Call("nvmlDeviceGetRetiredPagesPendingStatus", retired_pages_pending),
    Call("nvmlDeviceGetRepairStatus", repair_status, since=580),
    Call("nvmlDeviceGetUnrepairableMemoryFlag_v1", unrepairable_memory, since=610),
    Call("nvmlDeviceGetFieldValues", field_values),
)
