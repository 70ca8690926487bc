"""`dra-driver record`: this machine as a simulated-machine file on standard output."""

from __future__ import annotations

import argparse
import dataclasses
import platform

import yaml

from dra_driver.cli.looking import looked_at, node_name, report
from dra_driver.cli.settings_of import from_arguments
from dra_driver.hardware.driver_root import CANDIDATES, find_driver_root
from dra_driver.hardware.record import machine_document
from dra_driver.settings import Settings


def run(arguments: argparse.Namespace) -> int:
    settings = from_arguments(arguments)
    settings = dataclasses.replace(settings, node_name=node_name(settings))
    with looked_at(settings) as (machine, inventory):
        if report(inventory, "record"):
            return 1
        arch, driver_root = _installation(settings)
        document = machine_document(inventory, machine.roots, scrub=arguments.scrub, driver_root=driver_root, arch=arch)
    if arguments.name:
        document["name"] = arguments.name
    print(yaml.safe_dump(document, sort_keys=False, width=120), end="")
    return 0


def _installation(settings: Settings) -> tuple[str, str]:
    """What NVML does not tell: the CPU architecture, and where on the host the driver's files are."""
    if settings.machine:
        from dra_driver.hardware.sim.machine_files import load_machine

        simulated = load_machine(settings.machine)
        return simulated.arch, simulated.driver_root
    candidates = (settings.driver_root,) if settings.driver_root else CANDIDATES
    return platform.machine(), find_driver_root(candidates, settings.host_root).host
