"""`dra-driver validate`: every mistake in the opaque configuration of manifests, with its path."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from api.resource.v1beta1 import ConfigMistakesError, decode, json_schema

# Where each kind of object keeps `devices.config`, as a path of keys.
_CONFIG_PATHS: Mapping[str, tuple[str, ...]] = {
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
    "DeviceClass": ("spec", "config"),
}


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        print(json.dumps(json_schema(), indent=2))
        return 0
    if not arguments.files:
        print("dra-driver validate: name at least one FILE, or - for standard input", file=sys.stderr)
        return 2
    mistakes, checked = [], 0
    for name in arguments.files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
            documents = list(yaml.safe_load_all(text))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            mistakes.append(f"{name}: cannot be read as YAML: {' '.join(str(error).split())}")
            continue
        for document in documents:
            for where, parameters in configurations(document, arguments.driver_name):
                checked += 1
                mistakes += [f"{name}: {where}{mistake}" for mistake in check(parameters)]
    for mistake in mistakes:
        print(mistake)
    plural = "" if checked == 1 else "s"
    print(
        f"{checked} configuration{plural} for {arguments.driver_name} checked, {len(mistakes)} mistakes",
        file=sys.stderr,
    )
    return 1 if mistakes else 0


def configurations(document: object, driver: str) -> Iterator[tuple[str, object]]:
    """(`Kind/name path.to.parameters`, parameters) of each opaque configuration for `driver`, in any List too."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list):
        for item in items:
            yield from configurations(item, driver)
    path = _CONFIG_PATHS.get(str(document.get("kind")))
    if path is None:
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    node: Any = document
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    for position, entry in enumerate(node if isinstance(node, list) else ()):
        opaque = entry.get("opaque") if isinstance(entry, dict) else None
        if isinstance(opaque, dict) and opaque.get("driver") == driver:
            where = f"{document['kind']}/{name or '<no name>'} {'.'.join(path)}[{position}].opaque.parameters"
            yield where, opaque.get("parameters")


def check(parameters: object) -> list[str]:
    """What is wrong, each as a suffix to the path of the parameters."""
    try:
        decode(parameters)
    except ConfigMistakesError as error:
        return [f".{mistake}" if mistake.path else f": {mistake}" for mistake in error.mistakes]
    return []
