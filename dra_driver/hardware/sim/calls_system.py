"""Initialisation, versions, and the ways to a device handle."""

# ruff: noqa: ARG001 - the arguments are those of the C function, needed or not

from __future__ import annotations

from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Subject
from dra_driver.hardware.sim.codes import ERROR_STRINGS, Code, Refused
from dra_driver.hardware.sim.session import Session
from dra_driver.hardware.sim.state import State

_INIT_NO_GPUS: Final = 1


def init_with_flags(session: Session, flags: Any) -> None:
    state = session.file.read()
    if not state["library_present"]:
        raise Refused(Code.LIBRARY_NOT_FOUND)
    if not state["driver_loaded"]:
        raise Refused(Code.DRIVER_NOT_LOADED)
    if not session.present(state) and not c.number(flags) & _INIT_NO_GPUS:
        raise Refused(Code.GPU_NOT_FOUND)
    session.start(state["epoch"])


def init(session: Session) -> None:
    init_with_flags(session, 0)


def shutdown(session: Session) -> None:
    if not session.stop():
        raise Refused(Code.UNINITIALIZED)


def error_string(session: Session, code: Any) -> bytes:
    return ERROR_STRINGS.get(c.number(code), "Unknown Error").encode()


def driver_version(session: Session, out: Any, length: Any) -> None:
    c.put_text(out, length, session.machine.driver_version)


def nvml_version(session: Session, out: Any, length: Any) -> None:
    c.put_text(out, length, session.machine.nvml_version)


def cuda_version(session: Session, out: Any) -> None:
    c.put_int(out, session.machine.cuda_version)


def conf_compute_state(session: Session, out: Any) -> None:
    """Environment, feature and developer tools mode, all off; only from Hopper on."""
    _require_conf_compute(session)
    c.put_bytes(out, bytes(12))


def conf_compute_capabilities(session: Session, out: Any) -> None:
    _require_conf_compute(session)
    c.put_bytes(out, bytes(8))


def _require_conf_compute(session: Session) -> None:
    if not any(gpu.product.architecture in ("hopper", "blackwell") for gpu in session.machine.gpus):
        raise Refused(Code.NOT_SUPPORTED)


def count(session: Session, out: Any) -> None:
    c.put_int(out, len(session.present(session.file.read())))


def handle_by_index(session: Session, index: Any, out: Any) -> None:
    state = session.file.read()
    gpus = session.present(state)
    wanted = c.number(index)
    if not 0 <= wanted < len(gpus):
        raise Refused(Code.INVALID_ARGUMENT)
    _put_gpu(session, state, "nvmlDeviceGetHandleByIndex_v2", gpus[wanted].pci, out)


def handle_by_uuid(session: Session, uuid: Any, out: Any) -> None:
    wanted = c.text(uuid)
    state = session.file.read()
    for gpu in session.present(state):
        if gpu.uuid == wanted:
            return _put_gpu(session, state, "nvmlDeviceGetHandleByUUID", gpu.pci, out)
        for gi in state["gpus"][gpu.pci]["instances"]:
            for ci in gi["compute"]:
                if ci["uuid"] == wanted:
                    state = session.gate(state, "nvmlDeviceGetHandleByUUID", gpu.pci)
                    session.reachable(gpu.pci, state)
                    return c.put_handle(out, session.handle("mig", gpu.pci, ci["token"]))
    raise Refused(Code.NOT_FOUND)


def handle_by_serial(session: Session, serial: Any, out: Any) -> None:
    wanted = c.text(serial)
    state = session.file.read()
    for gpu in session.present(state):
        if gpu.serial == wanted:
            return _put_gpu(session, state, "nvmlDeviceGetHandleBySerial", gpu.pci, out)
    raise Refused(Code.NOT_FOUND)


def handle_by_pci(session: Session, bus_id: Any, out: Any) -> None:
    """Takes `0000:1b:00.0`, `00000000:1B:00.0` and `1b:00.0`, as the real one."""
    parts = c.text(bus_id).lower().split(":")
    if len(parts) not in (2, 3):
        raise Refused(Code.INVALID_ARGUMENT)
    try:
        domain = int(parts[0], 16) if len(parts) == 3 else 0
    except ValueError:
        raise Refused(Code.INVALID_ARGUMENT) from None
    wanted = f"{domain:04x}:{parts[-2]}:{parts[-1]}"
    state = session.file.read()
    for gpu in session.present(state):
        if gpu.pci == wanted:
            return _put_gpu(session, state, "nvmlDeviceGetHandleByPciBusId_v2", gpu.pci, out)
    raise Refused(Code.NOT_FOUND)


def _put_gpu(session: Session, state: State, symbol: str, pci: str, out: Any) -> None:
    session.reachable(pci, session.gate(state, symbol, pci))
    c.put_handle(out, session.handle("gpu", pci))


CALLS: Final = (
    Call("nvmlInit_v2", init, Subject.LIBRARY),
    Call("nvmlInitWithFlags", init_with_flags, Subject.LIBRARY),
    Call("nvmlShutdown", shutdown, Subject.LIBRARY),
    Call("nvmlErrorString", error_string, Subject.LIBRARY),
    Call("nvmlSystemGetDriverVersion", driver_version, Subject.SYSTEM),
    Call("nvmlSystemGetNVMLVersion", nvml_version, Subject.SYSTEM),
    Call("nvmlSystemGetCudaDriverVersion", cuda_version, Subject.SYSTEM),
    Call("nvmlSystemGetCudaDriverVersion_v2", cuda_version, Subject.SYSTEM),
    Call("nvmlSystemGetConfComputeState", conf_compute_state, Subject.SYSTEM),
    Call("nvmlSystemGetConfComputeCapabilities", conf_compute_capabilities, Subject.SYSTEM),
    Call("nvmlDeviceGetCount_v2", count, Subject.SYSTEM),
    Call("nvmlDeviceGetHandleByIndex_v2", handle_by_index, Subject.SYSTEM),
    Call("nvmlDeviceGetHandleByUUID", handle_by_uuid, Subject.SYSTEM),
    Call("nvmlDeviceGetHandleBySerial", handle_by_serial, Subject.SYSTEM),
    Call("nvmlDeviceGetHandleByPciBusId_v2", handle_by_pci, Subject.SYSTEM),
)
