"""`dra-driver machines`: the simulated machines that come with the driver."""

from __future__ import annotations

import argparse

from dra_driver.cli.table import print_table
from dra_driver.hardware.sim.machine_files import list_machines


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - as every command
    print_table(("MACHINE", "DESCRIPTION"), [(machine.name, machine.description) for machine in list_machines()])
    return 0
