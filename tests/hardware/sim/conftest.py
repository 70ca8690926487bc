"""Machines in temporary directories, and real pynvml on top of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from dra_driver.hardware.sim.library import SimulatedNvml
from dra_driver.hardware.sim.simulation import SimulatedMachine

sys.path.insert(0, str(Path(__file__).parent))  # `asking` beside the tests

Make = Callable[..., SimulatedMachine]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make("t4")` makes that machine; `make("t4", "other")` another one beside it."""

    def made(name: str | Path, directory: str = "machine", *, seed: str = "") -> SimulatedMachine:
        return SimulatedMachine.create(tmp_path / directory, name, seed=seed)

    return made


@pytest.fixture
def attach() -> Iterator[Callable[[SimulatedMachine], ModuleType]]:
    """pynvml on the given machine, initialised."""

    def attached(machine: SimulatedMachine) -> ModuleType:
        pynvml.nvmlLib = SimulatedNvml(machine.directory)
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlInit()
        return pynvml

    yield attached
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def h100(make: Make) -> SimulatedMachine:
    return make("dgx-h100")


@pytest.fixture
def nvml(h100: SimulatedMachine, attach: Callable[[SimulatedMachine], ModuleType]) -> ModuleType:
    """pynvml on a DGX H100."""
    return attach(h100)
