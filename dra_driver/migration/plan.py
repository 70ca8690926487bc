"""What stands in the way of leaving nodes to claims, and the steps in order. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dra_driver.migration.cluster import WHOLE, Cluster, DaemonSet, Node, Pod

MOVED = (
    "gpu.nvidia.com/claims"  # label of nodes that are left to claims, where a device plugin has no switch of its own
)
_EXTENDED_RESOURCES = (1, 34)  # Kubernetes that has extendedResourceName; by default since 1.36


@dataclass(frozen=True, slots=True)
class Obstacle:
    """`breaks`: these pods would not come back as they are. Otherwise it is something to know."""

    what: str
    way_out: str
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    what: str
    commands: tuple[str, ...] = ()


def state(node: Node) -> str:
    if node.offered and node.published:
        return "both"
    return "device plugin" if node.offered else "claims"


def pods_of(cluster: Cluster, node: Node) -> list[Pod]:
    """Those that have GPUs of this node through the device plugin."""
    return [pod for pod in cluster.pods if pod.node == node.name and not pod.by_claim]


def obstacles(cluster: Cluster, nodes: Sequence[Node], device_class: str) -> list[Obstacle]:
    found = []
    pods = [pod for node in nodes for pod in pods_of(cluster, node)]
    pods += [pod for pod in cluster.pods if not pod.node and not pod.by_claim]
    for resource in sorted({name for pod in pods for name in pod.resources} - {WHOLE, *cluster.classes.values()}):
        asking = [pod for pod in pods if resource in pod.resources]
        found.append(Obstacle(f"{resource}: asked for by {_named(asking)}", _instead_of(resource), breaks=True))
    shared = [node.name for node in nodes if WHOLE in node.offered and node.replicas > 1]
    if shared:
        found.append(
            Obstacle(
                f"time-slicing or MPS: {WHOLE} is a share of a GPU on {_list(shared)}",
                "with claims it is a whole GPU; pods that are to share one name the same ResourceClaim",
                breaks=any(pod.node in shared for pod in pods),
            )
        )
    if WHOLE not in cluster.classes.values():
        asking = [pod for pod in pods if WHOLE in pod.resources]
        found.append(
            Obstacle(
                f"no DeviceClass has extendedResourceName {WHOLE}"
                + (f": {_named(asking)} would stay pending" if asking else ""),
                f"step 1 gives it to DeviceClass {device_class}"
                if cluster.release >= _EXTENDED_RESOURCES
                else "this needs Kubernetes 1.34 (1.36 by default); until then pods need a ResourceClaim instead",
                breaks=bool(asking) and cluster.release < _EXTENDED_RESOURCES,
            )
        )
    bare = [pod for pod in pods if not pod.owner and pod.node]
    if bare:
        found.append(Obstacle(f"made by hand, so that nobody makes them again: {_named(bare)}", "keep their manifests"))
    unserved = [node.name for node in nodes if not node.published]
    if unserved:
        found.append(
            Obstacle(
                f"the driver publishes nothing on {_list(unserved)}",
                "look at its agent there: kubectl get pods -A -l app.kubernetes.io/component=agent -o wide",
                breaks=True,
            )
        )
    for one in cluster.labellers:
        found.append(
            Obstacle(
                f"DaemonSet {one} labels nodes (nvidia.com/gpu.product, ...)",
                "keep it, or let the driver do it: setting node-labels: node",
            )
        )
    return found


def steps(cluster: Cluster, nodes: Sequence[Node], device_class: str) -> list[Step]:
    """For the nodes on which a device plugin offers GPUs; none when there is no such node."""
    moving = [node for node in nodes if node.offered]
    if not moving:
        return []
    found = []
    if WHOLE not in cluster.classes.values() and cluster.release >= _EXTENDED_RESOURCES:
        patch = json.dumps({"spec": {"extendedResourceName": WHOLE}}, separators=(",", ":"))
        command = f"kubectl patch deviceclass {device_class} --type=merge -p {shlex.quote(patch)}"
        what = (
            f"Let pods that ask for {WHOLE} be served by claims on nodes without a device plugin (once for the cluster; "
            "where Helm installed the driver, by the value extendedResource.enabled=true)"
        )
        found.append(Step(what, (command,)))
    names = " ".join(node.name for node in moving)
    found.append(Step("Let no new pod come", (f"kubectl cordon {names}",)))
    pods = [pod for node in moving for pod in pods_of(cluster, node)]
    if pods:
        found.append(
            Step(f"End the pods that have GPUs through the device plugin ({len(pods)})", tuple(_deletions(pods)))
        )
    everywhere = {node.name for node in cluster.nodes if node.offered} <= {node.name for node in moving}
    for one in cluster.plugins:
        found.append(_without(one, moving, everywhere=everywhere))
    if not cluster.plugins:
        found.append(
            Step("Take the device plugin off these nodes: no DaemonSet of one was found, so it runs by other means")
        )
    zero = tuple(
        "kubectl wait node/{} --timeout=120s --for=jsonpath='{{.status.allocatable.{}}}'=0".format(
            node.name, resource.replace(".", "\\.")
        )
        for node in moving
        for resource in node.offered
    )
    found.append(Step("Wait until the kubelet offers nothing any more", zero))
    found.append(Step("Let pods come again", (f"kubectl uncordon {names}",)))
    return found


def _without(one: DaemonSet, nodes: Sequence[Node], *, everywhere: bool) -> Step:
    names = " ".join(node.name for node in nodes)
    if one.switch:
        command = f"kubectl label node {names} {one.switch}=false --overwrite"
        return Step(f"Take the device plugin {one} off, by the label that GPU Operator looks at", (command,))
    if everywhere:
        command = f"kubectl delete daemonset {one.name} -n {one.namespace}"
        return Step(
            f"Take the device plugin {one} away; where Helm installed it, by helm uninstall instead", (command,)
        )
    unlabelled = {"key": MOVED, "operator": "DoesNotExist"}
    terms = [
        {
            **term,
            "matchExpressions": [
                *(item for item in term.get("matchExpressions") or () if item != unlabelled),
                unlabelled,
            ],
        }
        for term in one.terms or ({},)
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    patch = json.dumps({"spec": {"template": {"spec": {"affinity": affinity}}}}, separators=(",", ":"))
    return Step(
        f"Take the device plugin {one} off, by a label that it keeps away from (where Helm manages it, its values need the same)",
        (
            f"kubectl label node {names} {MOVED}=true --overwrite",
            f"kubectl patch daemonset {one.name} -n {one.namespace} --type=merge -p {shlex.quote(patch)}",
        ),
    )


def _deletions(pods: Iterable[Pod]) -> list[str]:
    by_namespace: dict[str, list[str]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.namespace, []).append(pod.name)
    return [f"kubectl delete pod -n {namespace} {' '.join(names)}" for namespace, names in by_namespace.items()]


def _instead_of(resource: str) -> str:
    if resource.endswith(".shared"):
        return "pods that are to share a GPU name the same ResourceClaim; there is no other way yet"
    if resource.startswith("nvidia.com/mig-"):
        profile = resource.removeprefix("nvidia.com/mig-")
        return f"a claim of DeviceClass mig.nvidia.com that selects profile {profile}, where the driver publishes MIG devices"
    return f"give a DeviceClass the extendedResourceName {resource}, or let the pods use claims"


def _named(pods: Sequence[Pod]) -> str:
    return _list([f"{pod}{f' ({pod.owner})' if pod.owner else ''}" for pod in pods])


def _list(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
