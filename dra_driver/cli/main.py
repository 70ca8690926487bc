"""`dra-driver`: the argument parser of all verbs. A verb's module is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from dra_driver import __version__
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
  dra-driver simulate /tmp/sim lose 3              make GPU 3 of a simulated machine fall off the bus
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the answer is no (invalid files, no GPU driver), 2 wrong usage or settings."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    verb = importlib.import_module(f"dra_driver.cli.{arguments.verb}")
    try:
        return int(verb.run(arguments))
    except DriverError as error:
        print(f"dra-driver: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("dra-driver", description=DESCRIPTION, epilog=EPILOG, formatter_class=formatter)
    parser.add_argument("--version", action="version", version=f"dra-driver {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    agent = verbs.add_parser(
        "agent",
        help="publish and prepare the GPUs of this node",
        description="Runs until SIGTERM. Every setting is a flag, an environment variable (DRA_DRIVER_...), or a line of "
        "--config FILE (YAML, `node-name: worker-1`); a flag beats a variable beats the file.",
    )
    _settings(agent)

    devices = verbs.add_parser(
        "devices",
        help="print what this machine would publish",
        description="Prints the devices that the agent would publish for this machine, or for a simulated one with "
        "--machine. Needs no cluster.",
    )
    devices.add_argument("-o", "--output", choices=("table", "wide", "yaml", "json"), default="table")
    _settings(devices)

    validate = verbs.add_parser(
        "validate",
        help="check opaque configuration in manifests",
        description="Checks the configuration for this driver inside ResourceClaims, ResourceClaimTemplates and "
        "DeviceClasses (YAML or JSON, several documents in a file, - for standard input) and prints every mistake with "
        "its path. Exit status 1 if there is one.",
    )
    validate.add_argument("files", metavar="FILE", nargs="*", help="manifests, or - for standard input")
    validate.add_argument("--driver-name", default="gpu.nvidia.com", help="whose configuration (default %(default)s)")
    validate.add_argument("--schema", action="store_true", help="print the JSON Schema of the configuration instead")

    record = verbs.add_parser(
        "record",
        help="write this machine down as a simulated machine",
        description="Prints a machine file (YAML) for `--machine FILE`, from what NVML and the kernel say here.",
    )
    record.add_argument(
        "--scrub", action="store_true", help="replace UUIDs, serial numbers and fabric ids by made-up ones"
    )
    record.add_argument("--name", default="recorded", help="name of the machine (default %(default)s)")
    _settings(record)

    verbs.add_parser("machines", help="list the simulated machines", description="Lists the machines for --machine.")

    simulate = verbs.add_parser(
        "simulate", help="make and break a simulated machine", add_help=False, description="See `simulate --help`."
    )
    simulate.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def _settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings file (YAML)")
    for row in TABLE:
        unit = f" [{row.unit}]" if row.unit else ""
        default = f" (default {row.default})" if row.default else ""
        variables = ", ".join((row.env, *row.also))
        group.add_argument(
            row.flag,
            dest=row.name,
            metavar="VALUE",
            help=f"{row.meaning}{unit}{default}; ${variables}".replace("%", "%%"),
        )


if __name__ == "__main__":
    sys.exit(main())
