"""Kind `gpu` above the real adapter and a simulated machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_driver.hardware.sim.simulation import SimulatedMachine
from dra_driver.host import Host, host
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.device import Device
from dra_driver.model.record import Effect
from dra_driver.settings import load


class NoJournal:
    """A full GPU changes nothing, so it has nothing to put on record."""

    def intend(self, effect: Effect) -> None:
        raise AssertionError(f"{effect} was put on record")


@dataclass(frozen=True)
class Node:
    machine: SimulatedMachine
    host: Host
    kind: GpuKind

    def devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.kind.advertise(self.host.hardware.inventory())}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def make(machine: str) -> Node:
        directory = tmp_path / machine
        settings = load({"machine": machine, "simulation_dir": str(directory), "node_name": "worker-1"}, environment={})
        there = host(settings)
        there.hardware.start()
        made.append(Node(SimulatedMachine.open(directory), there, GpuKind(there.hardware, there.files)))
        return made[-1]

    yield make
    for one in made:
        one.machine.heal()
        one.host.hardware.stop()
