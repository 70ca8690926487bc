"""`dra-driver validate`: every mistake in the opaque configuration of manifests, with its path, and what is right but will be
refused when it is prepared, as a warning."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from api.resource.objects import configurations
from api.resource.v1beta1 import json_schema
from dra_driver.model.strategy import warning


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        print(json.dumps(json_schema(), indent=2))
        return 0
    if not arguments.files:
        print("dra-driver validate: name at least one FILE, or - for standard input", file=sys.stderr)
        return 2
    mistakes, warnings, objects, checked = [], [], 0, 0
    for name in arguments.files:
        try:
            documents = _documents(_read(name))
        except OSError as error:
            mistakes.append(f"{name}: cannot be read: {error.strerror}")
            continue
        except RecursionError:
            mistakes.append(f"{name}: is nested too deeply for a manifest")
            continue
        except (ValueError, yaml.YAMLError) as error:
            mistakes.append(f"{name}: is neither YAML nor JSON: {' '.join(str(error).split())}")
            continue
        for number, document in enumerate(documents, start=1):
            if not isinstance(document, dict) or "kind" not in document:
                mistakes.append(f"{name}: document {number} is not a Kubernetes object (apiVersion, kind, ...)")
                continue
            for item in _objects(document):
                objects += 1
                for configuration in configurations(item, arguments.driver_name):
                    checked += 1
                    wrong = configuration.mistakes()
                    mistakes += [f"{name}: {_called(item)} {path}: {sentence}" for path, sentence in wrong]
                    if told := warning(configuration.strategy()):
                        warnings.append(f"warning: {name}: {_called(item)} {configuration.path}: {told}")
    for line in (*mistakes, *warnings):
        print(line)
    counts = (_count(len(arguments.files), "file"), _count(objects, "object"), _count(checked, "configuration"))
    found = _count(len(mistakes), "mistake") + (f", {_count(len(warnings), 'warning')}" if warnings else "")
    print(f"{', '.join(counts)} for {arguments.driver_name}: {found}", file=sys.stderr)
    return 1 if mistakes else 0


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _documents(data: bytes) -> list[object]:
    """JSON by the fast way. The loader in Python, because libyaml's overruns the stack on deeply nested input."""
    if data.lstrip()[:1] == b"{":
        try:
            return [json.loads(data)]
        except (ValueError, RecursionError):
            pass  # a YAML flow mapping, or several documents
    return [document for document in yaml.safe_load_all(data) if document is not None]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _objects(document: Mapping[str, Any]) -> Sequence[object]:
    """The items of a List, as `kubectl get -o yaml` prints it, or the object itself. Lists do not nest."""
    items = document.get("items")
    return items if isinstance(items, list) else (document,)


def _called(item: object) -> str:
    """`Kind/name`, as kubectl would."""
    assert isinstance(item, dict)
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{item['kind']}/{name or '<no name>'}"
