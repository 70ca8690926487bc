"""`dra-driver record`: this machine as a simulated-machine file on standard output."""

from __future__ import annotations

import argparse

import yaml

from dra_driver.cli.devices import report
from dra_driver.cli.settings_of import from_arguments
from dra_driver.hardware.record import machine_document
from dra_driver.host import host


def run(arguments: argparse.Namespace) -> int:
    machine = host(from_arguments(arguments))
    machine.hardware.start()
    inventory = machine.hardware.inventory()
    machine.hardware.stop()
    if report(inventory):
        return 1
    document = {**machine_document(inventory, machine.roots, scrub=arguments.scrub), "name": arguments.name}
    print(yaml.safe_dump(document, sort_keys=False, width=120), end="")
    return 0
