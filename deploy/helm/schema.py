"""`python -m deploy.helm.schema`: writes the chart's values.schema.json, made of what is said elsewhere: values.yaml (names, types,
comments), moved.yaml (names of the other chart), the agent's settings and the simulated machines.

Every mapping is closed, so that a typo is refused with its path, but for those below, whose keys are the user's or Kubernetes' own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dra_driver.hardware.sim.machine_files import list_machines
from dra_driver.setting_rows import Row
from dra_driver.settings import TABLE

CHART = Path(__file__).resolve().parent / "gpu-dra-driver"
SCHEMA = CHART / "values.schema.json"

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_PLAIN: Schema = {"type": ["string", "number", "boolean"]}
# A Kubernetes object of its own: the API server knows what may be in it.
_KUBERNETES: Schema = {"type": "object"}
_KUBERNETES_LIST: Schema = {"type": "array", "items": _KUBERNETES}
_SWITCH: Schema = {"enum": ["auto", "true", "false", True, False]}
_ENDPOINT: Schema = {"type": "string", "pattern": "^(off|.*:[0-9]{1,5})$"}
_PATH_OR_NONE: Schema = {"type": "string", "pattern": "^(/.*)?$"}
_PATH: Schema = {"type": "string", "pattern": "^/."}
_DNS = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def _said() -> Mapping[str, Schema]:
    """What values.yaml does not show by itself, by path."""
    machine: Schema = {
        "anyOf": [{"enum": ["", *(machine.name for machine in list_machines())]}, {"type": "string", "pattern": "^/.+"}]
    }
    settings = {row.name.replace("_", "-"): _setting(row) for row in TABLE}
    of_node: Schema = {"type": "object", "additionalProperties": False, "properties": settings}
    by_node = {"propertyNames": {"pattern": f"^{_DNS}$"}}
    return {
        "driverName": {"type": "string", "pattern": f"^{_DNS}$", "maxLength": 63},
        "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        "imagePullSecrets": {"type": "array", "items": {"type": "object", "properties": {"name": _TEXT}}},
        "nvidiaDriverRoot": _PATH_OR_NONE,
        "nvidiaCDIHookPath": _PATH_OR_NONE,
        "kubeletDir": _PATH,
        "cdiDir": _PATH,
        "simulation.machine": machine,
        "simulation.machines": {"type": "object", "additionalProperties": machine, **by_node},
        "settings": of_node,
        "nodeSettings": {"type": "object", "additionalProperties": of_node, **by_node},
        "logVerbosity": {"type": ["string", "integer"], "pattern": "^[0-9]*$", "minimum": 0},
        "extendedResource.enabled": _SWITCH,
        "resourceApiVersion": {"type": "string", "pattern": "^((resource.k8s.io/)?v1(beta[12])?)?$"},
        "selectorLabelsOverride": _TEXTS,
        "serviceAccount.annotations": _TEXTS,
        "featureGates": {"type": "object", "additionalProperties": False, "properties": {}},
        "kubeletPlugin.privileged": _SWITCH,
        "kubeletPlugin.podAnnotations": _TEXTS,
        "kubeletPlugin.podLabels": _TEXTS,
        "kubeletPlugin.kubeletRegistrarDirectoryPath": _PATH_OR_NONE,
        "kubeletPlugin.kubeletPluginsDirectoryPath": _PATH_OR_NONE,
        "kubeletPlugin.metrics.gpuHttpEndpoint": _ENDPOINT,
        "webhook.replicas": {"type": "integer", "minimum": 1},
        "webhook.failurePolicy": {"enum": ["Fail", "Ignore"]},
        "webhook.tls.mode": {"enum": ["own", "cert-manager", "secret"]},
        "webhook.tls.certManager.issuerType": {"enum": ["selfsigned", "issuer", "clusterissuer"]},
        "webhook.podAnnotations": _TEXTS,
        "podMonitor.labels": _TEXTS,
        "serviceMonitor.labels": _TEXTS,
    }


# By the last name of their path.
_OPEN: Mapping[str, Schema] = {
    "affinity": _KUBERNETES,
    "env": _KUBERNETES_LIST,
    "nodeSelector": _KUBERNETES,
    "podSecurityContext": _KUBERNETES,
    "resources": _KUBERNETES,
    "securityContext": _KUBERNETES,
    "strategy": _KUBERNETES,
    "tolerations": _KUBERNETES_LIST,
    "updateStrategy": _KUBERNETES,
}


def schema() -> Schema:
    text = (CHART / "values.yaml").read_text()
    made = _mapping(yaml.safe_load(text), "", _said(), _comments(text))
    made["properties"]["global"] = {
        "type": "object",
        "description": "Set by a chart that this one is part of; not used.",
    }
    for path, why in yaml.safe_load((CHART / "moved.yaml").read_text()).items():
        _put_moved(made, path.split("."), f"Not here: {why}.")
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the GPU DRA driver", **made}


def _mapping(values: Mapping[str, Any], path: str, said: Mapping[str, Schema], comments: Mapping[str, str]) -> Schema:
    properties = {}
    for name, value in values.items():
        here = f"{path}.{name}".lstrip(".")
        made = said.get(here) or (_OPEN.get(name) if path else None) or _value(value, here, said, comments)
        properties[name] = {**made, **({"description": comments[here]} if here in comments else {})}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(value: object, path: str, said: Mapping[str, Schema], comments: Mapping[str, str]) -> Schema:
    if isinstance(value, dict) and value:
        return _mapping(value, path, said, comments)
    if isinstance(value, bool):
        return _FLAG
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, list):
        return {"type": "array", "items": _TEXT}
    raise ValueError(f"making the schema of {path}: its value does not show what it may hold; say it in {__name__}")


def _setting(row: Row) -> Schema:
    kind: Schema = {"type": ["number", "string"], "pattern": "^[0-9.]+$"} if row.unit == "s" else _PLAIN
    return {**kind, "description": row.meaning + (f" [{row.unit}]" if row.unit else "")}


def _put_moved(schema: Schema, path: list[str], why: str) -> None:
    for name in path[:-1]:
        schema = schema["properties"][name]
    schema["properties"].setdefault(path[-1], {"description": why})


def _comments(text: str) -> dict[str, str]:
    """The comment above each value, by path."""
    return dict(_commented(text.splitlines()))


def _commented(lines: list[str]) -> Iterator[tuple[str, str]]:
    path: list[str] = []
    comment: list[str] = []
    for line in lines:
        if match := re.match(r"^( *)# ?(.*)", line):
            comment.append(match[2])
            continue
        if match := re.match(r"^( *)([A-Za-z]+):", line):
            del path[len(match[1]) // 2 :]
            path.append(match[2])
            if comment:
                yield ".".join(path), " ".join(comment)
        comment = []


def main() -> int:
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
