"""`dra-driver`: the argument parser of all verbs. A verb's module is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dra_driver import __version__
from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.model.errors import DriverError
from dra_driver.settings import TABLE

DESCRIPTION = """\
Kubernetes Dynamic Resource Allocation driver for NVIDIA GPUs.

On every GPU node one `dra-driver agent` publishes the GPUs as ResourceSlices and prepares them for the pods whose
ResourceClaims were allocated to them. The other verbs need no cluster: they show, check and simulate.
"""

EPILOG = """\
examples:
  dra-driver machines                              which simulated machines there are
  dra-driver devices --machine dgx-h100            what a DGX H100 would publish, as a table
  dra-driver devices --machine t4 -o yaml          the same as ResourceSlices
  dra-driver validate deploy/examples/*.yaml       check the opaque configuration in manifests
  dra-driver agent --node-name $(hostname)         publish and prepare the GPUs of this node
  dra-driver record --scrub > my-machine.yaml      write this machine down, to simulate it elsewhere
  dra-driver simulate /tmp/sim create dgx-h100     make a simulated machine in a directory
  dra-driver simulate /tmp/sim lose 3              make its GPU 3 fall off the bus
"""

# What the verbs that look at a machine ask for; the agent takes every setting.
LOOKING = (
    "node_name",
    "driver_name",
    "driver_root",
    "dev_root",
    "proc_root",
    "sys_root",
    "host_root",
    "machine",
    "simulation_dir",
    "nvml_timeout_s",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the answer is no (invalid files, no GPU driver), 2 wrong usage or settings."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["simulate"]:  # a command line of its own, with its own --help
        return _finished(lambda: importlib.import_module("dra_driver.cli.simulate").run(given[1:]))
    parser, verbs = _parser()
    if not given:
        parser.print_help(sys.stderr)
        return 2
    if not given[0].startswith("-") and given[0] not in verbs:
        parser.error(f"there is no verb {given[0]!r}{_similar(given[0], verbs)}; the verbs are {', '.join(verbs)}")
    arguments, unknown = parser.parse_known_args(given)
    if unknown:
        verb = verbs[arguments.verb]
        verb.error(f"unknown argument {unknown[0]!r}{_similar(unknown[0].split('=')[0], verb._option_string_actions)}")
    return _finished(lambda: importlib.import_module(f"dra_driver.cli.{arguments.verb}").run(arguments))


def _finished(act: Callable[[], int]) -> int:
    try:
        status = act()
        sys.stdout.flush()  # here, where a reader that has gone away can still be caught
    except (DriverError, SimulationError) as error:
        print(f"dra-driver: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _forget_output()
        return 0
    except KeyboardInterrupt:
        return 130
    return int(status)
