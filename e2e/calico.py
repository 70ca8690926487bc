"""Calico beside the driver, which enforces NetworkPolicies: its plugin makes the pods' network, its Felix the rules."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from e2e.cluster import ClusterError, Node
from e2e.cluster.build import build
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import CALICO, NETWORK_POLICIES
from e2e.cluster.prerequisites import IPSET, need
from e2e.cluster.published import published
from e2e.installation import View, answers, until

HEALTH_PORT = 9099  # Felix's default
NETWORK, RUNTIME = "/etc/cni/net.d/10-pods.conflist", "/etc/e2e/containerd.toml"
# What Calico's own node agent would say once it is ready; without it nothing is done.
READY = {
    "apiVersion": "crd.projectcalico.org/v1",
    "kind": "ClusterInformation",
    "metadata": {"name": "default"},
    "spec": {"datastoreReady": True, "clusterType": "k8s"},
}
SETTINGS = {
    "FELIX_DATASTORETYPE": "kubernetes",
    "FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT",  # policies are about pods; by default these may not reach their node
    "FELIX_HEALTHENABLED": "true",
    "FELIX_HEALTHHOST": "0.0.0.0",
    "FELIX_IPV6SUPPORT": "false",
    "FELIX_LOGFILEPATH": "none",
    "FELIX_USAGEREPORTINGENABLED": "false",
}


def install(view: View) -> None:
    """On every node of a cluster that has no pods yet: it knows nothing of those that another plugin connected."""
    need(IPSET)
    go = present_go() or install_go()
    programs = build(NETWORK_POLICIES, go, pause=False)
    view.kubectl("apply", "--server-side", "-f", str(published(CALICO, go) / "libcalico-go" / "config" / "crd"))
    view.kubectl("wait", "--for=condition=Established", "crd", "clusterinformations.crd.projectcalico.org")
    view.apply(READY)
    for node in view.cluster.nodes.values():
        _connect_pods(node, programs["calico"], view.cluster.kubeconfig)
        environment = {**SETTINGS, "FELIX_FELIXHOSTNAME": node.name, "KUBECONFIG": str(view.cluster.kubeconfig)}
        felix = node.start([str(programs["calico-felix"])], environment, name="felix")
        is_ready = partial(answers, node.address, HEALTH_PORT, "/readiness")
        until(f"Felix to be ready on {node.name} (its log: {felix.log})", is_ready, 60)


def _connect_pods(node: Node, plugin: Path, kubeconfig: Path) -> None:
    """By Calico's plugin in place of the bridge, with the addresses that the bridge would give."""
    file = node.path(NETWORK)
    network = json.loads(file.read_text())
    bridge, *others = network["plugins"]
    calico = {
        "type": plugin.name,
        "datastore_type": "kubernetes",
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "nodename": node.name,
        "nodename_file_optional": True,
        "policy": {"type": "k8s"},
        "ipam": {key: value for key, value in bridge["ipam"].items() if key != "routes"},
    }
    # It knows no newer version than that.
    file.write_text(json.dumps({**network, "cniVersion": "0.3.1", "plugins": [calico, *others]}))
    runtime = node.path(RUNTIME)
    before, key, after = runtime.read_text().partition("bin_dirs = [")
    if not key:
        raise ClusterError(
            f"adding Calico's plugin to {runtime}: it has no bin_dirs; see e2e/cluster/node_configuration.py"
        )
    runtime.write_text(f'{before}{key}"{plugin.parent}", {after}')
    node.restart_containerd()
