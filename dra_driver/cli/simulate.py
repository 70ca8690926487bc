"""`dra-driver simulate`: makes, shows and breaks a simulated machine; the command line is the simulation's own."""

from __future__ import annotations

from collections.abc import Sequence

from dra_driver.hardware.sim.command import main


def run(arguments: Sequence[str]) -> int:
    return main(arguments)
