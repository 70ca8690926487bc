"""`SimulatedNvml`: takes the place of `pynvml.nvmlLib`, where the loaded `libnvidia-ml.so.1` would be.

An attribute is a C function: called with ctypes arguments, it answers an nvmlReturn_t. A symbol that the machine's
driver does not have raises AttributeError, as the dynamic loader would have it. It may do what the C library does and
nothing more: tests and commands go through `simulation`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dra_driver.hardware.sim import (
    arguments,
    calls_device,
    calls_events,
    calls_health,
    calls_instances,
    calls_links,
    calls_mig,
    calls_system,
)
from dra_driver.hardware.sim.calls import Call, Subject
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.session import Session
from dra_driver.hardware.sim.state import ANY

_MODULES: Final = (
    calls_system,
    calls_device,
    calls_links,
    calls_health,
    calls_mig,
    calls_instances,
    calls_events,
)
CALLS: Final[dict[str, Call]] = {call.symbol: call for module in _MODULES for call in module.CALLS}

_HANDLE_KINDS: Final = {
    Subject.DEVICE: ("gpu", "mig"),
    Subject.GPU_INSTANCE: ("gi",),
    Subject.COMPUTE_INSTANCE: ("ci",),
}


class SimulatedNvml:
    """The library of the machine in `directory`. pynvml caches the functions it has looked up: after assigning another
    one to `pynvml.nvmlLib`, clear `pynvml._nvmlGetFunctionPointer_cache`."""

    def __init__(self, directory: Path | str) -> None:
        self._session = Session(Path(directory))

    def __getattr__(self, symbol: str) -> Callable[..., Any]:
        call = None if symbol.startswith("_") else CALLS.get(symbol)
        if call is None or call.since > self._session.machine.driver_branch:
            raise AttributeError(f"undefined symbol: {symbol}")

        def function(*given: Any) -> Any:
            try:
                answer = self._run(call, given)
            except Refused as refused:
                return int(refused.code)
            return 0 if answer is None else answer

        function.__name__ = symbol
        setattr(self, symbol, function)
        return function

    def _run(self, call: Call, given: tuple[Any, ...]) -> Any:
        session = self._session
        kinds = _HANDLE_KINDS.get(call.subject)
        if kinds is None:
            if call.symbol != "nvmlErrorString":  # it answers a text and cannot fail
                state = session.file.read()
                if call.subject is Subject.SYSTEM:
                    session.require_ready(state)
                session.gate(state, call.symbol, ANY)
            return call.function(session, *given)
        state = session.file.read()
        session.require_ready(state)
        key = session.key(arguments.handle(given[0]), *kinds)
        state = session.gate(state, call.symbol, ANY, key.pci)
        session.require_ready(state)  # the driver may have gone while the call waited
        target = session.target(key, state)
        if target.is_mig and kinds[0] == "gpu" and not call.mig:
            raise Refused(Code.NOT_SUPPORTED)
        return call.function(session, target, *given[1:])
