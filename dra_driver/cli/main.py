"""`dra-driver`: the argument parser of all verbs. A verb's module is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dra_driver import __version__
from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.model.errors import DriverError
from dra_driver.setting_rows import Row
from dra_driver.settings import TABLE
from dra_driver.webhook_settings import WEBHOOK_TABLE

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
  dra-driver webhook --tls-cert /tls/tls.crt --tls-key /tls/tls.key      the same checks as validate, for the API server
  dra-driver uninstall --kubeconfig FILE           is a GPU in use? if not, take the driver's slices away
  dra-driver migrate worker-1                      how to leave worker-1 to claims instead of a device plugin
  dra-driver simulate /tmp/sim create dgx-h100     make a simulated machine in a directory
  dra-driver simulate /tmp/sim lose 3              make its GPU 3 fall off the bus
"""

# What concerns a look at a machine; the agent takes every setting.
_LOOKING = (
    *("node_name", "driver_name", "driver_root", "dev_root", "proc_root", "sys_root", "host_root"),
    *("machine", "simulation_dir", "nvml_timeout_s"),
)
LOOKING = tuple(row for row in TABLE if row.name in _LOOKING)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the answer is no (invalid files, no GPU driver), 2 wrong usage or settings."""
    given = list(sys.argv[1:] if argv is None else argv)
    return _finished(lambda: _run(given))


def _run(given: list[str]) -> int:
    if given[:1] == ["simulate"]:  # a command line of its own, with its own --help
        return int(_verb("simulate").run(given[1:]))
    parser, verbs = _parser()
    if not given:
        parser.print_help(sys.stderr)
        return 2
    if not given[0].startswith("-") and given[0] not in verbs:
        import difflib

        similar = difflib.get_close_matches(given[0], verbs, 1)
        meant = f"; did you mean {similar[0]}?" if similar else ""
        parser.error(f"there is no verb {given[0]!r}{meant} (the verbs are {', '.join(verbs)})")
    arguments, unknown = parser.parse_known_args(given)
    if unknown:
        verbs[arguments.verb].error(f"unknown argument {unknown[0]}; see `dra-driver {arguments.verb} --help`")
    return int(_verb(arguments.verb).run(arguments))


def _verb(name: str) -> Any:
    return importlib.import_module(f"dra_driver.cli.{name}")


def _finished(act: Callable[[], int]) -> int:
    try:
        try:
            return act()
        finally:
            sys.stdout.flush()  # here, where a reader that has gone away is still noticed; --help ends by an exception
    except (DriverError, SimulationError) as error:
        print(f"dra-driver: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        print(f"dra-driver: {error.strerror}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """What could not be written is still in the buffer: without this the interpreter would try, and complain, again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of the verbs by name."""
    parser = argparse.ArgumentParser(
        "dra-driver",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dra-driver {__version__}")
    added = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    agent = added.add_parser(
        "agent",
        usage="dra-driver agent --node-name NAME [--config FILE] [--SETTING VALUE ...]",
        help="publish and prepare the GPUs of this node",
        description="Runs until SIGTERM. Every setting is a flag, an environment variable (DRA_DRIVER_...), or a line of "
        "--config FILE (YAML, `node-name: worker-1`); a flag beats a variable beats the file.",
        allow_abbrev=False,
    )
    _settings(agent, TABLE)

    devices = added.add_parser(
        "devices",
        usage="dra-driver devices [-o FORMAT] [--machine MACHINE] [--config FILE] [--SETTING VALUE ...]",
        help="print what this machine would publish",
        description="Prints the devices that the agent would publish for this machine, or for a simulated one with "
        "--machine. Needs no cluster and changes nothing. What cannot be published is said on standard error. Exit "
        "status 1 if there is no usable NVIDIA driver.",
        allow_abbrev=False,
    )
    devices.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("table", "wide", "yaml", "json"),
        default="table",
        help="table, wide (with UUIDs and MIG profiles), yaml or json (ResourceSlices) (default %(default)s)",
    )
    _settings(devices, LOOKING)

    validate = added.add_parser(
        "validate",
        usage="dra-driver validate [--driver-name NAME] FILE [FILE ...]\n       dra-driver validate --schema",
        help="check opaque configuration in manifests",
        description="Checks the configuration for this driver inside ResourceClaims, ResourceClaimTemplates and "
        "DeviceClasses (YAML or JSON, several documents in a file, - for standard input) and prints every mistake with "
        "its path. Exit status 1 if there is one. What is right, but asks for what this driver does not offer, is a warning.",
        allow_abbrev=False,
    )
    validate.add_argument("files", metavar="FILE", nargs="*", help="manifests, or - for standard input")
    validate.add_argument("--driver-name", default="gpu.nvidia.com", help="whose configuration (default %(default)s)")
    validate.add_argument("--schema", action="store_true", help="print the JSON Schema of the configuration instead")

    record = added.add_parser(
        "record",
        usage="dra-driver record [--scrub] [--name NAME] [--config FILE] [--SETTING VALUE ...]",
        help="write this machine down as a simulated machine",
        description="Prints a machine file (YAML) for `--machine FILE`, from what NVML and the kernel say here.",
        allow_abbrev=False,
    )
    record.add_argument(
        "--scrub", action="store_true", help="replace UUIDs, serial numbers and fabric ids by made-up ones"
    )
    record.add_argument("--name", default="", help="name of the machine (default: recorded-<number>-<product>)")
    _settings(record, LOOKING)

    webhook = added.add_parser(
        "webhook",
        usage="dra-driver webhook --tls-cert FILE --tls-key FILE [--config FILE] [--SETTING VALUE ...]\n"
        "       dra-driver webhook --tls-secret NAMESPACE/NAME --tls-names NAME[,NAME] [...]",
        help="refuse wrong configuration when it is created",
        description="The admission webhook: answers the API server's reviews (POST /validate, AdmissionReview v1) of "
        "ResourceClaims, ResourceClaimTemplates and DeviceClasses, and refuses wrong configuration for this driver with "
        "the sentences of `dra-driver validate`, warnings among them. Certificates are given as files, or made and "
        "renewed in a Secret. Runs until SIGTERM; settings as of `dra-driver agent`.",
        allow_abbrev=False,
    )
    _settings(webhook, WEBHOOK_TABLE)

    uninstall = added.add_parser(
        "uninstall",
        usage="dra-driver uninstall [--daemonset NAMESPACE/NAME] [--force] [--driver-name NAME] [--kubeconfig FILE]",
        help="take the driver out of a cluster, unless its GPUs are in use",
        description="What the Helm chart runs before it is uninstalled: refuses while GPUs are allocated, naming the claims; "
        "then deletes the agents' DaemonSet, waits until they have cleaned up, and deletes the ResourceSlices that are left. "
        "Exit status 1 if GPUs are in use.",
        allow_abbrev=False,
    )
    uninstall.add_argument("--driver-name", default="gpu.nvidia.com", help="whose GPUs (default %(default)s)")
    uninstall.add_argument("--daemonset", metavar="NAMESPACE/NAME", default="", help="the agents' DaemonSet")
    uninstall.add_argument("--force", action="store_true", help="also while GPUs are in use")
    uninstall.add_argument(
        "--timeout-s", default="120", help="how long agents may take to end [s] (default %(default)s)"
    )
    uninstall.add_argument("--kubeconfig", default="", help="path; empty: the pod's service account")

    migrate = added.add_parser(
        "migrate",
        usage="dra-driver migrate [NODE ...] [--driver-name NAME] [--kubeconfig FILE]",
        help="say how to move nodes over from a device plugin",
        description="Looks at nodes, pods, DaemonSets, DeviceClasses and ResourceSlices, and says of each node with GPUs who gives "
        "them away, which pods would break, and the steps from a device plugin to claims, as commands in their order. "
        "Changes nothing. Exit status 1 if pods would break.",
        allow_abbrev=False,
    )
    migrate.add_argument("nodes", metavar="NODE", nargs="*", help="nodes to move; none: all that have GPUs")
    migrate.add_argument("--driver-name", default="gpu.nvidia.com", help="of the driver (default %(default)s)")
    migrate.add_argument("--kubeconfig", default="", help="path; empty: $KUBECONFIG, ~/.kube/config")

    added.add_parser("machines", help="list the simulated machines", description="Lists the machines for --machine.")
    added.add_parser("simulate", help="make and break a simulated machine")
    return parser, dict(added.choices)


def _settings(parser: argparse.ArgumentParser, rows: Sequence[Row]) -> None:
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings file (YAML)")
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        default = f" (default {row.default})" if row.default else ""
        variables = ", ".join(f"${name}" for name in (row.env, *row.also))
        group.add_argument(
            row.flag,
            dest=row.name,
            metavar="VALUE",
            help=f"{row.meaning}{unit}{default}; {variables}".replace("%", "%%"),
        )


if __name__ == "__main__":
    sys.exit(main())
