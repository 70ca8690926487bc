"""What kind is told about a cluster. Values in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def cluster(nodes: Sequence[str], gates: Mapping[str, bool], *, official: bool, unified_cgroups: bool) -> str:
    """JSON, which is YAML too. `nodes` are the workers' names in Kubernetes; their containers are called as kind calls them.

    `official`: the node image has kindnet; ours has its own unit for the pods' network, and a kube-proxy with nft alone.
    """
    configuration: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *map(_worker, nodes)],
    }
    if gates:
        configuration["featureGates"] = dict(sorted(gates.items()))
    if not official:
        configuration["networking"] = {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    # As on the other cluster: a pod that failed, after a reboot for want of its driver, is tried again soon.
    kubelet: dict[str, Any] = {"kind": "KubeletConfiguration", "syncFrequency": "10s"}
    if not unified_cgroups:  # since 1.35 kubelets refuse version 1 unless told
        kubelet["failCgroupV1"] = False
    configuration["kubeadmConfigPatches"] = [json.dumps(kubelet)]
    return json.dumps(configuration, indent=1)


def _worker(name: str) -> dict[str, Any]:
    patch = {"kind": "JoinConfiguration", "nodeRegistration": {"name": name}}
    return {"role": "worker", "kubeadmConfigPatches": [json.dumps(patch)]}


def containers(cluster: str, nodes: Sequence[str]) -> dict[str, str]:
    """What kind calls the workers' containers: demo-worker, demo-worker2, demo-worker3."""
    return {name: f"{cluster}-worker{number if number > 1 else ''}" for number, name in enumerate(nodes, 1)}
