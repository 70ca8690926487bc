"""Short words for the API objects of the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.installation import TEST_IMAGE

API = "resource.k8s.io/v1"
SHOW_GPUS = "nvidia-smi -L; exec sleep infinity"


def product(name: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].productName == "{name}"'


H100 = product("NVIDIA H100 80GB HBM3")
L40S = product("NVIDIA L40S")
A100 = product("NVIDIA A100 80GB PCIe")


def request(
    name: str = "gpu",
    *cel: str,
    count: int | None = None,
    everything: bool = False,
    admin: bool = False,
    sub: bool = False,
) -> dict[str, Any]:
    """One request; `cel` are selectors. `sub` gives the form that stands in a firstAvailable list."""
    exact: dict[str, Any] = {"deviceClassName": "gpu.nvidia.com"}
    if cel:
        exact["selectors"] = [{"cel": {"expression": expression}} for expression in cel]
    if count is not None:
        exact |= {"allocationMode": "ExactCount", "count": count}
    if everything:
        exact["allocationMode"] = "All"
    if admin:
        exact["adminAccess"] = True
    return {"name": name, **exact} if sub else {"name": name, "exactly": exact}


def wishes(name: str, *subs: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "firstAvailable": list(subs)}


def matching(attribute: str, *requests: str) -> dict[str, Any]:
    return {"matchAttribute": attribute, **({"requests": list(requests)} if requests else {})}


def config(parameters: Mapping[str, Any], *requests: str) -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": "gpu.nvidia.com", "parameters": dict(parameters)}}


def devices(
    requests: Sequence[Mapping[str, Any]],
    constraints: Sequence[Mapping[str, Any]] = (),
    configs: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    spec: dict[str, Any] = {"requests": list(requests)}
    if constraints:
        spec["constraints"] = list(constraints)
    if configs:
        spec["config"] = list(configs)
    return {"devices": spec}


def template(name: str, *requests: Mapping[str, Any], **more: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spec = {"spec": devices(requests or [request()], **more)}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def claim(name: str, *requests: Mapping[str, Any], **more: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spec = devices(requests or [request()], **more)
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(
    name: str,
    *,
    templates: Sequence[str] = (),
    claims: Sequence[str] = (),
    containers: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    node: str | None = None,
    command: str = SHOW_GPUS,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod whose claims are named as their templates or claims. `containers` maps container names to the claims (and
    requests) that they use; without it one container uses all claims."""
    used = [{"name": entry, "resourceClaimTemplateName": entry} for entry in templates]
    used += [{"name": entry, "resourceClaimName": entry} for entry in claims]
    uses = containers or {"main": [{"name": entry["name"]} for entry in used]}
    spec: dict[str, Any] = {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": container,
                "image": TEST_IMAGE,
                "command": ["sh", "-c", command],
                "resources": {"claims": [dict(use) for use in names]},
            }
            for container, names in uses.items()
        ],
        "resourceClaims": used,
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(name: str, template_name: str, pods: int, command: str) -> dict[str, Any]:
    body = pod("unused", templates=[template_name], command=command)["spec"]
    spec = {"completions": pods, "parallelism": pods, "template": {"spec": body}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
