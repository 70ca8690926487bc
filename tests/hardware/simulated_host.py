"""A simulated machine with the real adapter above it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots
from dra_driver.hardware.sim.library import SimulatedNvml
from dra_driver.hardware.sim.simulation import SimulatedMachine


class Library:
    """The machine's library, with symbols taken away (as in an older driver) or replaced, and calls counted."""

    def __init__(self, below: SimulatedNvml, without: tuple[str, ...] = ()) -> None:
        self._below = below
        self._without = without
        self.calls: list[str] = []

    def __getattr__(self, symbol: str) -> Callable[..., Any]:
        if symbol in self._without:
            raise AttributeError(f"undefined symbol: {symbol}")
        function = getattr(self._below, symbol)

        def counted(*arguments: Any) -> Any:
            self.calls.append(symbol)
            return function(*arguments)

        counted.__name__ = symbol
        return counted


class SimulatedHost:
    def __init__(self, directory: Path, name: str | Path, without: tuple[str, ...] = (), **settings: float) -> None:
        self.machine = SimulatedMachine.create(directory, name)
        self.roots = HostRoots(
            proc=str(self.machine.root / "proc"),
            sys=str(self.machine.root / "sys"),
            dev=str(self.machine.dev),
            driver=str(self.machine.driver_root),
        )
        self.library = Library(SimulatedNvml(directory), without)
        self.hardware = NvmlHardware(self.roots, nvml_library=self.library, **settings)


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
