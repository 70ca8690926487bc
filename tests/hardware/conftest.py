"""Fixtures of the hardware room's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `fake_host` beside the tests

from fake_host import FakeHost
from simulated_host import SimulatedHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    path = tmp_path / "host"
    path.mkdir()
    return FakeHost(path)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., SimulatedHost]]:
    """Makes simulated machines with the real adapter and the real pynvml above them; stops what was made."""
    made: list[SimulatedHost] = []

    def make(name: str | Path = "dgx-h100", *, without: tuple[str, ...] = (), **settings: float) -> SimulatedHost:
        made.append(SimulatedHost(tmp_path / f"machine-{len(made)}", name, without, **settings))
        return made[-1]

    yield make
    for host in made:
        host.machine.heal()
        host.hardware.stop()
