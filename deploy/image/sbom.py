"""The bill of materials: CycloneDX 1.6 in the image itself, without a serial number or a time, so that it is reproducible."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy.image.debian import Package

PLACE = "usr/share/sbom/dra-driver.cdx.json"


def put(root: Path, distributions: Iterable[importlib.metadata.Distribution], system: Iterable[Package]) -> None:
    path = root / PLACE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document(distributions, system), indent=1) + "\n")


def document(distributions: Iterable[importlib.metadata.Distribution], system: Iterable[Package]) -> Mapping[str, Any]:
    from dra_driver import __version__

    python = platform.python_version()
    components = [
        _component("python", python, f"pkg:generic/python@{python}", "PSF-2.0"),
        *map(_distribution, distributions),
        *map(_package, system),
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "dra-driver", "version": __version__}},
        "components": components,
    }


def _component(name: str, version: str, purl: str, license_name: str | None) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if license_name:
        component["licenses"] = [{"license": {"name": license_name}}]
    return component


def _distribution(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    metadata = distribution.metadata
    name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
    expressions = metadata.get_all("License-Expression") or metadata.get_all("License") or [""]
    given = str(expressions[0]).partition("\n")[0]
    classified = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if "License ::" in line]
    purl = f"pkg:pypi/{name}@{distribution.version}"
    return _component(name, distribution.version, purl, given or ", ".join(classified) or None)


def _package(package: Package) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{package.name}@{package.version.replace('+', '%2B').replace(':', '%3A')}"
    return _component(package.name, package.version, f"{purl}?arch={package.fields.get('Architecture', '')}", None)
