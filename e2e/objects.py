"""Short words for the API objects of the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.installation import TEST_IMAGE

API = "resource.k8s.io/v1"
# The first process of a container ignores SIGTERM unless it asks for it, and would be waited for until the grace period ends.
STAY = "trap 'exit 0' TERM; sleep infinity & wait"
SHOW_GPUS = f"nvidia-smi -L; {STAY}"


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


Uses = Mapping[str, Sequence[Mapping[str, str]]]


def pod(
    name: str,
    *,
    templates: Sequence[str] = (),
    claims: Sequence[str] = (),
    containers: Uses | None = None,
    first: Uses | None = None,
    node: str | None = None,
    command: str = SHOW_GPUS,
    image: str = TEST_IMAGE,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod whose claims are named as their templates or claims. `containers` maps container names to the claims (and
    requests) that they use; without it one container uses all claims. `first` are the init containers: they run
    `nvidia-smi -L` and end."""
    used = [{"name": entry, "resourceClaimTemplateName": entry} for entry in templates]
    used += [{"name": entry, "resourceClaimName": entry} for entry in claims]
    uses = containers or {"main": [{"name": entry["name"]} for entry in used]}
    spec: dict[str, Any] = {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,  # a volume less to mount and to wait for
        "containers": _containers(uses, image, command),
        "resourceClaims": used,
    }
    if first:
        spec["initContainers"] = _containers(first, image, "nvidia-smi -L")
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _containers(uses: Uses, image: str, command: str) -> list[dict[str, Any]]:
    return [
        {
            "name": container,
            "image": image,
            "command": ["sh", "-c", command],
            "resources": {"claims": [dict(use) for use in names]},
        }
        for container, names in uses.items()
    ]


def job(name: str, template_name: str, pods: int, command: str) -> dict[str, Any]:
    body = pod("unused", templates=[template_name], command=command)["spec"]
    spec = {"completions": pods, "parallelism": pods, "template": {"spec": body}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def daemonset(name: str, template_name: str) -> dict[str, Any]:
    return {**_labelled(name, template_name, {}), "kind": "DaemonSet"}


def deployment(name: str, template_name: str, pods: int) -> dict[str, Any]:
    """Where every GPU is taken a new pod needs an old one's: so one goes before the next comes."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {**_labelled(name, template_name, {"replicas": pods, "strategy": strategy}), "kind": "Deployment"}


def _labelled(name: str, template_name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    body = {"metadata": {"labels": labels}, "spec": pod("unused", templates=[template_name], restart="Always")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": body, **more}
    return {"apiVersion": "apps/v1", "metadata": {"name": name}, "spec": spec}
