"""A look at this machine or at a simulated one, for the verbs that show it: reads, never changes."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dra_driver.host import Host, host
from dra_driver.model.gpu import Inventory
from dra_driver.settings import Settings


@contextmanager
def looked_at(settings: Settings) -> Iterator[tuple[Host, Inventory]]:
    """The machine and what it holds; the files of a simulated one are there until the end, unless they have a place."""
    with ExitStack() as stack:
        if settings.machine and not settings.simulation_dir:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-driver-"))
            settings = dataclasses.replace(settings, simulation_dir=directory)
        machine = host(settings)
        machine.hardware.start()
        stack.callback(machine.hardware.stop)
        yield machine, machine.hardware.inventory()


def node_name(settings: Settings) -> str:
    """The name that a look from outside a cluster goes by: that of the machine."""
    return settings.node_name or Path(settings.machine).stem or "this-node"


def report(inventory: Inventory, verb: str) -> int:
    """Says on standard error what is wrong with the machine; 1 if there is no usable driver."""
    for gpu in inventory.gpus:
        if gpu.mig and gpu.mig.enabled:
            print(f"not published as a whole: {gpu.pci} {gpu.product_name} is in MIG mode", file=sys.stderr)
    for problem in inventory.problems:
        print(f"not published: {problem.where}: {problem.why}", file=sys.stderr)
    if inventory.driver_problem:
        print(
            f"no GPUs: {inventory.driver_problem}\n"
            "  a driver that is installed elsewhere:  "
            f"dra-driver {verb} --driver-root DIRECTORY\n"
            "  without GPUs, on a simulated machine:  "
            f"dra-driver {verb} --machine dgx-h100   (`dra-driver machines` lists them)",
            file=sys.stderr,
        )
        return 1
    return 0
