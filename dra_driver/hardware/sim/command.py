"""The command line of a simulated machine: `DIR VERB ARGUMENTS`. Words in, one call, words out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.faults import apply_fault
from dra_driver.hardware.sim.mig_rules import device_name, mig_devices
from dra_driver.hardware.sim.simulation import HEALTH, SimulatedMachine


def main(argv: Sequence[str]) -> int:
    """0 when done, 1 with a line on stderr when it could not be, 2 for a wrong command line (by argparse)."""
    given = vars(parser().parse_args(argv))
    directory: Path = given.pop("directory")
    try:
        if given["verb"] == "create":
            machine = SimulatedMachine.create(directory, given["machine"], seed=given["seed"])
            print(_shown(machine))
        elif given["verb"] == "show":
            print(_shown(SimulatedMachine.open(directory)))
        else:
            apply_fault(directory, given)
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="dra-driver simulate", description="Makes and disturbs a simulated GPU machine.")
    top.add_argument("directory", type=Path, metavar="DIR", help="where the machine's state and host root are")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    create = verbs.add_parser("create", help="make the machine, or keep the one that is there")
    create.add_argument("machine", help="a known machine, or a machine file")
    create.add_argument("--seed", default="", help="makes UUIDs and serials this node's own: say, its name")
    verbs.add_parser("show", help="the machine and its state")

    for verb, does in (
        ("lose", "it falls off the bus: enumerated, every call fails"),
        ("return", "a lost GPU is back"),
        ("remove", "it is pulled out: gone from NVML, /dev, /proc and /sys"),
        ("insert", "a removed GPU is back"),
        ("reset", "MIG instances and processes go, a pending MIG mode becomes active"),
    ):
        verbs.add_parser(verb, help=does).add_argument("gpu", help="index, PCI address or UUID")

    fail = verbs.add_parser("fail", help="a call answers an error")
    fail.add_argument("call", help="C symbol, with or without version, or '*'")
    fail.add_argument("--code", required=True, help="name or number of an NVML code, such as UNKNOWN")
    fail.add_argument("--times", type=int, default=0, help="how often; without end when left out")
    delay = verbs.add_parser("delay", help="calls take this much longer")
    delay.add_argument("seconds", type=float)
    delay.add_argument("--call", help="only this one")
    hang = verbs.add_parser("hang", help="calls do not return until healed")
    hang.add_argument("--call", help="only this one")
    heal = verbs.add_parser("heal", help="take back failures, delays and hangs")
    heal.add_argument("--call", help="only of this call")
    for verb_parser in (fail, delay, hang, heal):
        verb_parser.add_argument("--gpu", help="only on this GPU")

    xid = verbs.add_parser("xid", help="the GPU reports an XID error")
    xid.add_argument("gpu")
    xid.add_argument("xid", type=int)
    health = verbs.add_parser("health", help="set a health counter or flag")
    health.add_argument("gpu")
    health.add_argument("field", choices=HEALTH)
    health.add_argument("value", type=int)
    mig = verbs.add_parser("mig", help="set MIG mode at once, as it was before anything ran")
    mig.add_argument("gpu")
    mig.add_argument("enabled", type=_on_or_off, metavar="on|off")
    process = verbs.add_parser("process", help="a process uses the GPU")
    process.add_argument("gpu")
    process.add_argument("pid", type=int)
    process.add_argument("--memory-mib", type=int, default=512)
    process.add_argument("--end", action="store_true", help="it uses it no more")
    for verb_parser in (xid, process):
        verb_parser.add_argument("--gi", type=int, help="id of the GPU instance it is in")
        verb_parser.add_argument("--ci", type=int, help="id of the compute instance it is in")

    for verb, does in (
        ("reboot", "a new boot: instances, processes and compute modes are gone"),
        ("driver-unload", "the kernel driver is unloaded"),
        ("driver-load", "the kernel driver is loaded again"),
        ("library-remove", "libnvidia-ml is missing"),
        ("library-restore", "libnvidia-ml is there again"),
    ):
        verbs.add_parser(verb, help=does)
    return top


def _on_or_off(word: str) -> bool:
    if word not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{word!r} is neither on nor off")
    return word == "on"


def _shown(machine: SimulatedMachine) -> str:
    facts, state = machine.machine, machine.state()
    nodes = "device nodes" if machine.device_nodes_are_real else "files in place of device nodes"
    driver = "loaded" if state["driver_loaded"] else "not loaded"
    library = "" if state["library_present"] else ", library missing"
    lines = [
        f"{facts.name}: {facts.description}",
        f"driver {facts.driver_version} {driver}{library}; boot {state['boot_id']}; /dev holds {nodes}",
        f"host root {machine.root}",
    ]
    for index, gpu in enumerate(facts.gpus):
        found = state["gpus"][gpu.pci]
        condition = "removed" if not found["present"] else "lost" if found["lost"] else "ok"
        mig = "" if facts.board(gpu) is None else f", MIG {'on' if found['mig'] else 'off'}"
        processes = f", {len(found['processes'])} process(es)" if found["processes"] else ""
        lines.append(
            f"GPU {index} {gpu.pci} nvidia{gpu.minor} {gpu.product.name} {gpu.uuid}: {condition}{mig}{processes}"
        )
        board = facts.board(gpu)
        for gi, ci in mig_devices(found) if board else ():
            assert board is not None
            lines.append(f"  GI {gi['id']} CI {ci['id']} {device_name(board, gi, ci)} at {gi['start']}: {ci['uuid']}")
    for fault in state["faults"]:
        seconds = f" {fault['seconds']} s" if fault["kind"] == "delay" else ""
        lines.append(f"fault: {fault['kind']}{seconds} {fault['call']} on {fault['gpu']}")
    return "\n".join(lines)
