"""The driver on a cluster, one agent a node over a simulated machine, and the words in which scenarios speak of it.

Knows the cluster only through its interface, so that the same scenarios run wherever there is a `Cluster`.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import yaml

from dra_driver.hardware.sim.simulation import SimulatedMachine
from e2e.cluster import Cluster, ClusterError, Process

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "deploy" / "manifests"
EXAMPLES = ROOT / "deploy" / "examples"
DRIVER = "gpu.nvidia.com"
# There is no registry here: what the examples call ubuntu is this image of the test cluster.
TEST_IMAGE = "e2e/busybox:1"
EXAMPLE_IMAGE = "ubuntu:24.04"

T = TypeVar("T")


def until(what: str, ask: Callable[[], T | None], seconds: float = 60, every: float = 0.1) -> T:
    """The first answer that is not empty (None, False, an empty list); ClusterError when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise ClusterError(f"waiting {seconds:.0f} s for {what}: it did not come")
        time.sleep(every)


def stays(what: str, ask: Callable[[], object], seconds: float) -> None:
    """Watches for so long that `ask` says yes all the time: for what must not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not ask():
            raise ClusterError(f"{what}: it did not stay so for {seconds:.0f} s")
        time.sleep(0.2)


def answers(address: str, port: int, path: str) -> bool:
    """Whether a GET there succeeds now: a probe of health."""
    connection = HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
    except OSError:
        return False
    finally:
        connection.close()


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest, with the image that this cluster has."""
    return [item for item in yaml.safe_load_all(text.replace(EXAMPLE_IMAGE, TEST_IMAGE)) if item]


class View:
    """A cluster as whoever uses it sees it: through the API server, kubectl and the nodes' files."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        command = [str(self.cluster.kubectl), "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        if check and done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in objects))

    def apply_example(self, name: str, namespace: str | None = None) -> list[dict[str, Any]]:
        objects = documents((EXAMPLES / f"{name}.yaml").read_text())
        for item in objects:
            if namespace is not None and item["kind"] != "Namespace":
                item["metadata"]["namespace"] = namespace
        self.apply(*objects)
        return objects

    def delete(self, kind: str, name: str, namespace: str = "default", *more: str) -> None:
        self.kubectl("delete", kind, name, "-n", namespace, "--ignore-not-found", "--wait=true", "--timeout=90s", *more)

    def gate(self, name: str) -> bool | None:
        """Whether this feature gate of the API server is on; None when it has none of that name."""
        match = re.search(rf'^kubernetes_feature_enabled{{name="{name}",.*}} ([01])$', self.metrics(), re.MULTILINE)
        return None if match is None else match[1] == "1"

    def metrics(self) -> str:
        """Of the API server, as Prometheus reads them."""
        return self.kubectl("get", "--raw", "/metrics")

    def writes(self, resource: str = "resourceslices") -> int:
        """How many writes of this resource the API server has been asked for, by anybody and whatever the answer."""
        lines = re.findall(
            rf'^apiserver_request_total{{(.*resource="{resource}".*)}} (\S+)$', self.metrics(), re.MULTILINE
        )
        return sum(int(float(count)) for labels, count in lines if not re.search(r'verb="(GET|LIST|WATCH)"', labels))

    def get(self, path: str) -> dict[str, Any] | None:
        """An object or a list; None when there is none."""
        try:
            return self.cluster.request("GET", path)
        except ClusterError as error:
            if " 404 " in str(error):
                return None
            raise

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any] | None:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_for_pod(
        self, name: str, namespace: str = "default", phases: Sequence[str] = ("Running",), seconds: float = 90
    ) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            pod = self.pod(name, namespace)
            return pod if pod and pod["status"].get("phase") in phases else None

        try:
            return until(f"pod {namespace}/{name} to be {' or '.join(phases)}", ask, seconds)
        except ClusterError as error:
            raise ClusterError(f"{error}; {self.why(name, namespace)}") from None

    def why(self, name: str, namespace: str) -> str:
        """The last events about a pod: what a person would look at next."""
        listed = self.get(f"/api/v1/namespaces/{namespace}/events") or {"items": []}
        about = [item for item in listed["items"] if item["involvedObject"].get("name", "").startswith(name)]
        return " | ".join(f"{item['reason']}: {item['message']}" for item in about[-4:]) or "no events"

    def logs(self, pod: str, container: str | None = None, namespace: str = "default") -> str:
        which = ["-c", container] if container else []
        return self.kubectl("logs", pod, "-n", namespace, *which)

    def gpus_seen(self, pod: str, container: str | None = None, namespace: str = "default") -> list[str]:
        """The lines of `nvidia-smi -L` that the container printed first."""

        def ask() -> list[str] | None:
            lines = [line for line in self.logs(pod, container, namespace).splitlines() if line.startswith("GPU ")]
            return lines or None

        return until(f"the output of nvidia-smi in {pod}", ask, 30)

    def execute(self, pod: str, *argv: str, namespace: str = "default", container: str | None = None) -> str:
        which = ["-c", container] if container else []
        return self.kubectl("exec", pod, "-n", namespace, *which, "--", *argv)

    def slices(self, node: str | None = None, version: str = "v1") -> list[dict[str, Any]]:
        selector = f"?fieldSelector=spec.nodeName%3D{node}" if node else ""
        listed = self.get(f"/apis/resource.k8s.io/{version}/resourceslices{selector}") or {"items": []}
        return [item for item in listed["items"] if item["spec"]["driver"] == DRIVER]

    def devices(self, node: str | None = None) -> list[dict[str, Any]]:
        return [device for item in self.slices(node) for device in item["spec"].get("devices") or []]

    def claims(self, namespace: str = "default") -> list[dict[str, Any]]:
        listed = self.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims") or {"items": []}
        items: list[dict[str, Any]] = listed["items"]
        return items

    def claims_of(self, pod: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The ResourceClaims that a pod uses."""
        made = {
            item["name"]: item.get("resourceClaimName") for item in pod["status"].get("resourceClaimStatuses") or []
        }
        names = [
            entry.get("resourceClaimName") or made.get(entry["name"])
            for entry in pod["spec"].get("resourceClaims") or []
        ]
        namespace = pod["metadata"]["namespace"]
        found = [
            self.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}") for name in names if name
        ]
        return [claim for claim in found if claim]

    def allocated(self, pod: Mapping[str, Any]) -> list[str]:
        """Device names that the scheduler gave to the pod, in order."""
        return [
            result["device"]
            for claim in self.claims_of(pod)
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            if result["driver"] == DRIVER
        ]

    def uuids(self, node: str, names: Sequence[str]) -> list[str]:
        by_name = {device["name"]: device["attributes"]["uuid"]["string"] for device in self.devices(node)}
        return [by_name[name] for name in names]

    def on_node(self, node: str, path: str) -> list[str]:
        """File names in a directory as the node sees it, sorted; empty when it is not there."""
        directory = self.cluster.nodes[node].path(path)
        return sorted(item.name for item in directory.iterdir()) if directory.is_dir() else []


class Installation(View, ABC):
    """The driver on a cluster, an agent for each of `machines`: node names, and the simulated machines that they are.

    How it gets there is told by the ways to install: e2e/by_process.py, e2e/by_chart.py. What one of them cannot do it
    refuses with Unsupported.
    """

    title: str  # what is installed, in a line
    account: str  # the agents' service account, in namespace dra-driver
    role: str  # the ClusterRole of that account
    has_webhook: bool  # wrong configuration is refused when it is created, not at prepare

    def __init__(self, cluster: Cluster, machines: Mapping[str, str], **settings: str) -> None:
        """`settings` are those of all agents, by name."""
        super().__init__(cluster)
        self.machines = machines
        self.settings = settings

    @property
    @abstractmethod
    def agents(self) -> Mapping[str, Process]:
        """The agent that was started last on each node; it may have ended."""

    @abstractmethod
    def install(self) -> None:
        """Everything; returns when every agent has published and is registered."""

    @abstractmethod
    def start_agent(self, node: str, *, wait: bool = True, name: str = "agent", **settings: str) -> Process:
        """Starts the agent of a node; `settings` are more settings by name. Waits until it has published, and the kubelet
        has registered it: a pod that comes sooner is tried again only after 10 to 15 s."""

    def accepts(self, **settings: str) -> None:
        """Unsupported where an agent cannot be started with these: to be asked before anything is broken."""

    @abstractmethod
    def simulation(self, node: str) -> Path:
        """Where this host finds the simulated machine of a node."""

    @abstractmethod
    def further(self, node: str) -> Sequence[str]:
        """Commands for whoever wants to look at the agent of a node, or to break a GPU of it."""

    def machine(self, node: str) -> SimulatedMachine:
        return SimulatedMachine.open(self.simulation(node))
