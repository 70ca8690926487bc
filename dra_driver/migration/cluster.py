"""A cluster as far as it concerns the move: who offers GPUs of which node, which pods ask for them, and how. Pure; made of API objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

DOMAIN = "nvidia.com/"
WHOLE = "nvidia.com/gpu"
# As images and DaemonSets of these are called: NVIDIA, GPU Operator and GKE; gpu-feature-discovery.
_PLUGINS = ("k8s-device-plugin", "nvidia-device-plugin", "nvidia-gpu-device-plugin")
_LABELLERS = ("gpu-feature-discovery",)
_OPERATOR_LABEL = "nvidia.com/gpu.deploy.device-plugin"


@dataclass(frozen=True, slots=True)
class Pod:
    """One that asks for GPUs in the old way. `owner` is `Kind/name` of what would make it again, empty for a bare pod;
    `by_claim` when the scheduler gave it GPUs through DRA all the same."""

    namespace: str
    name: str
    node: str
    owner: str
    resources: Mapping[str, int]
    by_claim: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """`offered` are the resources of device plugins, `published` the devices of the driver; `replicas` how many pods the
    plugin puts on one GPU."""

    name: str
    offered: Mapping[str, int]
    published: int
    replicas: int
    cordoned: bool


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A device plugin, or who labels nodes. `switch` is the node label that takes it off a node, empty where it has none."""

    namespace: str
    name: str
    nodes: int
    switch: str
    terms: tuple[Object, ...]  # of its required node affinity

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    release: tuple[int, int]
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    plugins: tuple[DaemonSet, ...]
    labellers: tuple[DaemonSet, ...]
    classes: Mapping[str, str]  # DeviceClass -> its extendedResourceName, empty for none


def cluster(
    release: tuple[int, int],
    nodes: Iterable[Object],
    pods: Iterable[Object],
    daemonsets: Iterable[Object],
    classes: Iterable[Object],
    slices: Iterable[Object],
    driver: str,
) -> Cluster:
    published: dict[str, int] = {}
    for item in slices:
        spec = item.get("spec") or {}
        if spec.get("driver") == driver:
            on = str(spec.get("nodeName") or "")
            published[on] = published.get(on, 0) + len(spec.get("devices") or ())
    found = [_node(item, published) for item in nodes]
    sets = sorted(daemonsets, key=lambda item: (_meta(item, "namespace"), _meta(item, "name")))
    return Cluster(
        release,
        tuple(node for node in sorted(found, key=lambda node: node.name) if node.offered or node.published),
        tuple(sorted((pod for item in pods if (pod := _pod(item))), key=str)),
        tuple(_daemonset(item) for item in sets if _is(item, _PLUGINS)),
        tuple(_daemonset(item) for item in sets if _is(item, _LABELLERS) and not _is(item, _PLUGINS)),
        {_meta(item, "name"): str((item.get("spec") or {}).get("extendedResourceName") or "") for item in classes},
    )


def _meta(item: Object, name: str) -> str:
    return str((item.get("metadata") or {}).get(name) or "")


def _node(item: Object, published: Mapping[str, int]) -> Node:
    offered = {
        name: int(amount)
        for name, amount in ((item.get("status") or {}).get("allocatable") or {}).items()
        if name.startswith(DOMAIN) and str(amount).isdigit() and int(amount)
    }
    labels = (item.get("metadata") or {}).get("labels") or {}
    replicas = str(labels.get("nvidia.com/gpu.replicas") or "1")
    return Node(
        _meta(item, "name"),
        dict(sorted(offered.items())),
        published.get(_meta(item, "name"), 0),
        int(replicas) if replicas.isdigit() else 1,
        bool((item.get("spec") or {}).get("unschedulable")),
    )


def _pod(item: Object) -> Pod | None:
    """None for a pod that asks for no GPU in the old way, or has ended."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    resources: dict[str, int] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if name.startswith(DOMAIN) and str(amount).isdigit() and int(amount):
                resources[name] = resources.get(name, 0) + int(amount)
    if not resources:
        return None
    owners = (item.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((f"{one.get('kind')}/{one.get('name')}" for one in owners if one.get("controller")), "")
    by_claim = bool(status.get("extendedResourceClaimStatus"))
    place = str(spec.get("nodeName") or "")
    return Pod(_meta(item, "namespace"), _meta(item, "name"), place, owner, dict(sorted(resources.items())), by_claim)


def _is(item: Object, names: Iterable[str]) -> bool:
    pod = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    said = [_meta(item, "name")]
    for container in pod.get("containers") or ():
        # The repository of an image has the name; a tag may say anything. In newer releases one image has both tools.
        said += [str(container.get("image") or "").partition("@")[0], *(map(str, container.get("command") or ()))]
    if any(name in _meta(item, "name") for name in (*_PLUGINS, *_LABELLERS)):
        said = said[:1]
    return any(name in text for text in said for name in names)


def _daemonset(item: Object) -> DaemonSet:
    pod = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    switch = _OPERATOR_LABEL if _OPERATOR_LABEL in (pod.get("nodeSelector") or {}) else ""
    nodes = int((item.get("status") or {}).get("desiredNumberScheduled") or 0)
    terms = tuple(affinity.get("nodeSelectorTerms") or ())
    return DaemonSet(_meta(item, "namespace"), _meta(item, "name"), nodes, switch, terms)
