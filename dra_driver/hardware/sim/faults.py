"""`apply_fault`: one thing that is done to a simulated machine, as a flat mapping that a command line or a test can
carry. The table below is the whole language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.codes import NO_INSTANCE, Code
from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.simulation import HEALTH, SimulatedMachine
from dra_driver.hardware.sim.state import ANY

Spec = Mapping[str, str | int | float | bool | None]


def apply_fault(directory: Path | str, spec: Spec) -> None:
    """Does `spec["verb"]` to the machine in `directory`; the other keys are the verb's arguments:

    lose, return, remove, insert, reset  gpu
    fail                                 call, code (name or number), gpu?, times?
    delay                                seconds, call?, gpu?
    hang                                 call?, gpu?
    heal                                 call?, gpu?
    xid                                  gpu, xid, gi?, ci?
    health                               gpu, field, value
    mig                                  gpu, enabled
    process                              gpu, pid, memory_mib?, gi?, ci?, end?
    reboot, driver-unload, driver-load, library-remove, library-restore

    `gpu` is an index, a PCI address or a UUID; left out of fail, delay, hang and heal it means all, as does a call that
    is left out. Raises SimulationError when the machine, the GPU or the verb is not there.
    """
    verb = str(spec.get("verb"))
    action = _ACTIONS.get(verb)
    if action is None:
        raise SimulationError(f"doing {verb!r}: there is no such verb; known are {', '.join(_ACTIONS)}")
    action(SimulatedMachine.open(directory), spec)


def _gpu(spec: Spec, default: str | None = None) -> str:
    value = spec.get("gpu")
    if value is None and default is None:
        raise SimulationError(f"doing {spec.get('verb')!r}: it needs a GPU; give an index, a PCI address or a UUID")
    return str(default if value is None else value)


def _text(spec: Spec, key: str, default: str) -> str:
    value = spec.get(key)
    return default if value is None else str(value)


def _integer(spec: Spec, key: str, default: int) -> int:
    value = spec.get(key)
    return default if value is None else int(value)


def _code(spec: Spec) -> Code:
    value = str(spec.get("code"))
    try:
        return Code(int(value)) if value.isdigit() else Code[value.upper().removeprefix("NVML_ERROR_")]
    except (KeyError, ValueError):
        known = ", ".join(code.name for code in Code if code)
        raise SimulationError(f"failing a call with {value!r}: no such NVML code; known are {known}") from None


def _fail(machine: SimulatedMachine, spec: Spec) -> None:
    machine.fail_call(_text(spec, "call", ANY), _code(spec), which=_gpu(spec, ANY), times=_integer(spec, "times", 0))


def _delay(machine: SimulatedMachine, spec: Spec) -> None:
    seconds = float(spec.get("seconds") or 0)
    machine.delay_call(_text(spec, "call", ANY), seconds, which=_gpu(spec, ANY))


def _hang(machine: SimulatedMachine, spec: Spec) -> None:
    machine.hang_call(_text(spec, "call", ANY), which=_gpu(spec, ANY))


def _heal(machine: SimulatedMachine, spec: Spec) -> None:
    machine.heal(call=_text(spec, "call", ANY), which=_gpu(spec, ANY))


def _xid(machine: SimulatedMachine, spec: Spec) -> None:
    gi, ci = _integer(spec, "gi", NO_INSTANCE), _integer(spec, "ci", NO_INSTANCE)
    machine.emit_xid(_gpu(spec), _integer(spec, "xid", 0), gi=gi, ci=ci)


def _health(machine: SimulatedMachine, spec: Spec) -> None:
    field = str(spec.get("field"))
    if field not in HEALTH:
        raise SimulationError(f"setting {field!r}: no such health field; known are {', '.join(HEALTH)}")
    machine.set_health(_gpu(spec), field, _integer(spec, "value", 0))


def _mig(machine: SimulatedMachine, spec: Spec) -> None:
    machine.set_mig_mode(_gpu(spec), enabled=bool(spec.get("enabled")))


def _process(machine: SimulatedMachine, spec: Spec) -> None:
    pid = _integer(spec, "pid", 0)
    if spec.get("end"):
        machine.end_process(_gpu(spec), pid)
        return
    gi, ci = _integer(spec, "gi", NO_INSTANCE), _integer(spec, "ci", NO_INSTANCE)
    machine.start_process(_gpu(spec), pid, memory_mib=_integer(spec, "memory_mib", 512), gi=gi, ci=ci)


_ACTIONS: Final[dict[str, Callable[[SimulatedMachine, Spec], None]]] = {
    "lose": lambda machine, spec: machine.lose_gpu(_gpu(spec)),
    "return": lambda machine, spec: machine.return_gpu(_gpu(spec)),
    "remove": lambda machine, spec: machine.remove_gpu(_gpu(spec)),
    "insert": lambda machine, spec: machine.insert_gpu(_gpu(spec)),
    "reset": lambda machine, spec: machine.reset_gpu(_gpu(spec)),
    "fail": _fail,
    "delay": _delay,
    "hang": _hang,
    "heal": _heal,
    "xid": _xid,
    "health": _health,
    "mig": _mig,
    "process": _process,
    "reboot": lambda machine, _: machine.reboot(),
    "driver-unload": lambda machine, _: machine.unload_driver(),
    "driver-load": lambda machine, _: machine.load_driver(),
    "library-remove": lambda machine, _: machine.remove_library(),
    "library-restore": lambda machine, _: machine.restore_library(),
}
