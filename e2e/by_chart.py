"""The driver as users install it: the chart, and the image built from this checkout, in the DaemonSet's pods.

The chart is talked to through its values alone. Which nodes have an agent is a label on them, which the DaemonSet selects by:
so one can be ended and started again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.agent_pod import AgentPod, LogCopy
from e2e.cluster import Cluster, ClusterError, Process, Unsupported
from e2e.cluster.build import build
from e2e.cluster.parts import CHART
from e2e.cluster.prerequisites import provide
from e2e.cluster.steps import step
from e2e.image import build_image
from e2e.installation import DRIVER, ROOT, Installation, until
from e2e.kind.cluster import KindCluster

CHART_DIRECTORY = ROOT / "deploy" / "helm" / "gpu-dra-driver"
NAMESPACE = "dra-driver"
RELEASE = "gpu-dra-driver"
DAEMONSET = f"{RELEASE}-agent"
SIMULATION = f"/var/lib/{DRIVER}/simulation"
LABEL = "e2e.dra-driver/agent"


class ByChart(Installation):
    title = "the chart deploy/helm/gpu-dra-driver, one pod of its DaemonSet per node over a simulated machine"
    account = DAEMONSET
    role = DAEMONSET
    has_webhook = True

    def __init__(self, cluster: Cluster, machines: Mapping[str, str], **settings: str) -> None:
        super().__init__(cluster, machines, **settings)
        self._image = ""
        self._helm = Path()
        self._installed: dict[str, Any] = {}  # values of the release
        self._agents: dict[str, AgentPod] = {}
        self._logs: dict[str, LogCopy] = {}

    @property
    def agents(self) -> Mapping[str, Process]:
        return self._agents

    def install(self) -> None:
        if not isinstance(self.cluster, KindCluster):
            raise Unsupported("installing the chart: its image is built with Docker; choose the cluster of kind")
        self._helm = build(CHART, provide(CHART, to_run=False, pause=False), pause=False)["helm"]
        archive = self.cluster.directory / "images" / "driver.tar"
        self._image = build_image(self.cluster.docker, archive)
        with step(f"{self._image} to the nodes"):
            self.cluster.load(archive)
            archive.unlink()
        self.kubectl("label", "nodes", *self.machines, f"{LABEL}=runs", "--overwrite")
        self._upgrade({})
        for node in self.machines:
            self.start_agent(node)

    def accepts(self, **settings: str) -> None:
        if "instance" in settings:
            raise Unsupported(
                "starting a second agent on a node: a DaemonSet has one, and a second during an update only"
            )
        if "http_address" in settings:
            raise Unsupported("giving an agent an address: in a pod it is the pod's, and out of this host's reach")

    def simulation(self, node: str) -> Path:
        return self.cluster.nodes[node].path(SIMULATION)

    def further(self, node: str) -> Sequence[str]:
        pod = self._pod(node)["metadata"]["name"]
        proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:http/proxy"
        return (
            f"kubectl get --raw {proxy}/metrics; the same with readyz and healthz",
            f"kubectl -n {NAMESPACE} exec {pod} -- dra-driver simulate {SIMULATION} lose 0   (and then: return 0)",
            f"agents' logs: kubectl -n {NAMESPACE} logs daemonset/{DAEMONSET}",
        )

    def start_agent(self, node: str, *, wait: bool = True, name: str = "agent", **settings: str) -> Process:
        self.accepts(**settings)
        self._upgrade({node: settings} if settings else {})
        self.kubectl("label", "nodes", node, f"{LABEL}=runs", "--overwrite")
        agent = self._agents[node] = self._agent(node)
        if wait:
            until(f"the agent of {node} to run and be registered", agent.ready, 120)
            until(f"slices of {node}", lambda: self.slices(node), 30)
        return agent

    def end_agent(self, node: str) -> None:
        """The DaemonSet takes its pod from the node."""
        self.kubectl("label", "nodes", node, f"{LABEL}-")

    def _agent(self, node: str) -> AgentPod:
        if node not in self._logs:
            self._logs[node] = LogCopy(self.cluster.nodes[node], f"{NAMESPACE}_{DAEMONSET}-*/agent")
            self._logs[node].start()
        return AgentPod(self, self.cluster.nodes[node], lambda: self._pod(node), self._logs[node].log, self.end_agent)

    def _pod(self, node: str) -> dict[str, Any]:
        """The agent's pod on a node that is there to stay; empty where there is none."""
        selector = f"fieldSelector=spec.nodeName%3D{node}&labelSelector=app.kubernetes.io/component%3Dagent"
        listed = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}") or {"items": []}
        staying = [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]
        return staying[0] if len(staying) == 1 else {}

    def _values(self, more: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        repository, _, tag = self._image.partition(":")
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "simulation": {"machines": dict(self.machines)},
            "settings": _named(self.settings),
            "nodeSettings": {node: _named(settings) for node, settings in more.items()},
            "kubeletPlugin": {"nodeSelector": {LABEL: "runs"}},
        }

    def _upgrade(self, more: Mapping[str, Mapping[str, str]]) -> None:
        """Installs, or changes the settings of single nodes; every agent takes them up, one node after another."""
        values = self._values(more)
        if values == self._installed:
            return
        file = self.cluster.directory / "values.json"
        file.write_text(json.dumps(values, indent=1))
        self._run_helm(
            "upgrade", "--install", RELEASE, str(CHART_DIRECTORY), "--create-namespace", "--values", str(file)
        )
        self._installed = values
        try:
            self.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/{DAEMONSET}", "--timeout=110s")
        except ClusterError as error:
            raise ClusterError(f"{error}; {self._trouble()}") from None
        for node in self._agents:
            self._agents[node] = self._agent(node)

    def _trouble(self) -> str:
        """What the agents' pods say: what a person would look at next."""
        daemonset = f"daemonset/{DAEMONSET}"
        said = [
            self.kubectl("-n", NAMESPACE, "get", "pods", check=False),
            self.kubectl("-n", NAMESPACE, "logs", daemonset, "--all-pods", "--tail=4", check=False),
            self.why(DAEMONSET, NAMESPACE),
        ]
        return "\n".join(said)

    def _run_helm(self, *arguments: str) -> None:
        own = {f"HELM_{what}_HOME": str(self.cluster.directory / "helm") for what in ("CACHE", "CONFIG", "DATA")}
        command = [str(self._helm), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"running {' '.join(command)}: {done.stderr.strip()[-1500:]}")


def _named(settings: Mapping[str, str]) -> dict[str, str]:
    """As they are called in the settings file."""
    return {name.replace("_", "-"): value for name, value in settings.items()}
