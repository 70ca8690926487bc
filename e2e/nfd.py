"""Node Feature Discovery beside the driver: its master and a worker as processes on a node, with its own CRDs and the rights that
its manifests grant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import ClusterError, Process
from e2e.cluster.build import Programs, build
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import NFD, NODE_FEATURE_DISCOVERY
from e2e.cluster.published import published
from e2e.installation import View, until

NAMESPACE = "node-feature-discovery"
MASTER, WORKER = "nfd-master", "nfd-worker"
PORTS = {MASTER: 8391, WORKER: 8392}  # both have 8080 by default, and so have agents
CRDS = ("nodefeatures", "nodefeaturerules", "nodefeaturegroups")


class NodeFeatureDiscovery:
    """Looks at `node` alone, and there only into features.d, every second instead of every minute."""

    def __init__(self, view: View, node: str) -> None:
        self.on = view
        self._node = node
        self._programs: Programs = {}
        self._processes: list[Process] = []

    def install(self) -> None:
        """Returns when it has looked for the first time."""
        go = present_go() or install_go()
        self._programs = build(NODE_FEATURE_DISCOVERY, go, pause=False)
        manifests = published(NFD, go) / "deployment" / "base"
        self.on.kubectl("apply", "-f", str(manifests / "nfd-crds" / "nfd-api-crds.yaml"))
        self.on.kubectl("wait", "--for=condition=Established", *_crds())
        self.on.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.on.apply(*_rights(manifests / "rbac"))
        self._start(MASTER)
        self._start(
            WORKER, "-feature-sources=local", "-label-sources=local", '-options={"core": {"sleepInterval": "1s"}}'
        )
        until(f"what NFD found on {self._node}", self.found, 60)

    def found(self) -> dict[str, Any] | None:
        """What the worker has told the master of the node."""
        return self.on.get(f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures/{self._node}")

    def remove(self) -> None:
        """Labels that it has put on nodes go first, as when its chart is uninstalled."""
        for process in self._processes:
            process.stop()
        if self._processes:
            done = self.on.cluster.nodes[self._node].run([*self._command(MASTER), "-prune"])
            if done.returncode:
                raise ClusterError(f"removing the labels of NFD from nodes: {done.stderr.strip()[-800:]}")
        self.on.kubectl("delete", *_crds(), "--ignore-not-found")
        self.on.kubectl("delete", "clusterrole,clusterrolebinding", MASTER, "--ignore-not-found")
        self.on.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")

    def _start(self, name: str, *more: str) -> None:
        environment = {"NODE_NAME": self._node, "KUBERNETES_NAMESPACE": NAMESPACE}
        argv = [*self._command(name), *more]
        self._processes.append(self.on.cluster.nodes[self._node].start(argv, environment, name=name))

    def _command(self, name: str) -> list[str]:
        kubeconfig = self.on.cluster.directory / f"{name}.kubeconfig"
        token = self.on.cluster.service_account_token(NAMESPACE, name)
        self.on.cluster.write_kubeconfig(kubeconfig, token)
        return [str(self._programs[name]), f"-kubeconfig={kubeconfig}", f"-port={PORTS[name]}"]


def _crds() -> list[str]:
    return ["crd", *(f"{name}.nfd.k8s-sigs.io" for name in CRDS)]


def _rights(directory: Path) -> list[dict[str, Any]]:
    """Of namespace default in the manifests, which leave the name to kustomize."""
    objects = []
    for file in sorted(directory.glob("*-*.yaml")):
        for item in yaml.safe_load_all(file.read_text().replace("namespace: default", f"namespace: {NAMESPACE}")):
            if not item["kind"].startswith("Cluster"):
                item["metadata"]["namespace"] = NAMESPACE
            objects.append(item)
    return objects
