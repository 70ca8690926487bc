"""`dra-driver devices`: what this machine, or a simulated one, would publish. Needs no cluster and changes nothing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.cli.settings_of import from_arguments
from dra_driver.cli.table import print_table
from dra_driver.controller.slices import desired
from dra_driver.core.catalog import advertised
from dra_driver.host import host
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.device import Device
from dra_driver.model.gpu import Inventory
from dra_driver.settings import Settings

_NUMA, _ROOT = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"


def run(arguments: argparse.Namespace) -> int:
    settings = from_arguments(arguments)
    settings = dataclasses.replace(settings, node_name=settings.node_name or settings.machine or "this-node")
    if settings.machine and not settings.simulation_dir:
        with tempfile.TemporaryDirectory(prefix="dra-driver-") as directory:
            return _show(dataclasses.replace(settings, simulation_dir=directory), arguments.output)
    return _show(settings, arguments.output)


def _show(settings: Settings, output: str) -> int:
    machine = host(settings)
    machine.hardware.start()
    inventory = machine.hardware.inventory()
    devices = tuple(advertised([GpuKind(machine.hardware, machine.files)], inventory).values())
    machine.hardware.stop()
    if output in ("yaml", "json"):
        slices = resource_slices(settings, devices)
        if output == "json":
            print(json.dumps({"apiVersion": "v1", "kind": "List", "items": slices}, indent=2))
        else:
            import yaml

            print(yaml.safe_dump_all(slices, sort_keys=False), end="")
    else:
        print_table(*table(devices, wide=output == "wide"))
    return report(inventory)


def report(inventory: Inventory) -> int:
    """Says on standard error what is wrong with the machine; 1 if there is no usable driver."""
    for gpu in inventory.gpus:
        if gpu.mig and gpu.mig.enabled:
            print(f"not published as a whole: {gpu.pci} {gpu.product_name} is in MIG mode", file=sys.stderr)
    for problem in inventory.problems:
        print(f"not published: {problem.where}: {problem.why}", file=sys.stderr)
    if inventory.driver_problem:
        print(f"no GPUs: {inventory.driver_problem}", file=sys.stderr)
        return 1
    return 0


def table(devices: Sequence[Device], *, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Header and rows; `wide` adds what identifies a GPU."""
    header = ["DEVICE", "PRODUCT", "ARCHITECTURE", "MEMORY", "CUDA", "DRIVER", "NUMA", "PCIE ROOT", "MIG"]
    if wide:
        header += ["UUID", "MIG PROFILES"]
    rows = []
    for device in devices:
        value: Mapping[str, Any] = device.attributes
        memory = device.capacity.get("memory")
        row = [
            device.name,
            value["productName"],
            value["architecture"],
            "-" if memory is None else f"{memory / 2**30:.1f} GiB",
            value["cudaComputeCapability"],
            value["driverVersion"],
            value.get(_NUMA, "-"),
            value.get(_ROOT, "-"),
            "yes" if value["migCapable"] else "no",
        ]
        if wide:
            row += [value["uuid"], value.get("migProfiles", "-")]
        rows.append([str(cell) for cell in row])
    return header, rows


def resource_slices(settings: Settings, devices: Sequence[Device]) -> list[dict[str, Any]]:
    """The slices as they would be published, for resource.k8s.io/v1."""
    contents, problems = desired(devices, {}, "v1")
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    pool = {"name": settings.node_name, "generation": 1, "resourceSliceCount": len(contents)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"{index:05x}-{settings.driver_name}-{settings.node_name}-"},
            "spec": {"driver": settings.driver_name, "nodeName": settings.node_name, "pool": pool, **content},
        }
        for index, content in enumerate(contents)
    ]
