"""`dra-driver devices`: what this machine, or a simulated one, would publish. Needs no cluster and changes nothing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.cli.looking import looked_at, node_name, report
from dra_driver.cli.settings_of import from_arguments
from dra_driver.cli.table import print_table
from dra_driver.controller.slices import desired
from dra_driver.core.catalog import advertised
from dra_driver.host import kinds
from dra_driver.model.device import Device
from dra_driver.settings import Settings

_NUMA, _ROOT = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"


def run(arguments: argparse.Namespace) -> int:
    settings = from_arguments(arguments)
    settings = dataclasses.replace(settings, node_name=node_name(settings))
    with looked_at(settings) as (machine, inventory):
        devices = tuple(advertised(kinds(machine), inventory).values())
    if arguments.output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": resource_slices(settings, devices)}, indent=2))
    elif arguments.output == "yaml":
        import yaml

        print(yaml.safe_dump_all(resource_slices(settings, devices), sort_keys=False), end="")
    elif devices:
        print_table(*table(devices, wide=arguments.output == "wide"))
    return report(inventory, "devices")


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
            row += [value["uuid"], value.get("migProfiles") or "-"]
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
