"""`dra-driver simulate`: makes, shows and breaks a simulated machine; what follows is the simulation's own command."""

from __future__ import annotations

import argparse

from dra_driver.hardware.sim.command import main


def run(arguments: argparse.Namespace) -> int:
    return main(arguments.rest)
