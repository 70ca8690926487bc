"""What a scenario holds in its hands: a namespace of its own on a cluster with the driver, and the words for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from e2e.cluster import Process
from e2e.installation import Installation, until
from e2e.objects import pod, request, template

RUN_DIR = "/run/gpu.nvidia.com/ledger"


class Space:
    """A namespace, and the installation seen from it."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.on = installation
        self.name = name

    def make(self) -> None:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.on.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": labels}})
        path = f"/api/v1/namespaces/{self.name}/serviceaccounts/default"
        until("the default service account", lambda: self.on.get(path))

    def clear(self) -> None:
        """Deletes everything in it and waits until nothing is left on any node."""
        request = self.on.cluster.request
        for kind in ("apps/v1/deployments", "apps/v1/daemonsets", "apps/v1/replicasets", "batch/v1/jobs"):
            group, _, plural = kind.rpartition("/")
            request("DELETE", f"/apis/{group}/namespaces/{self.name}/{plural}")
        pods = f"/api/v1/namespaces/{self.name}/pods"
        claims = f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaims"
        # A controller that lost the API server twice within two minutes stays away for up to a minute after it is back.
        until(f"the pods of {self.name} to go", lambda: self._none_left(pods), 90)
        until(f"the claims of {self.name} to go", lambda: self._none_left(claims), 90)
        until(f"nothing of {self.name} to be left, but there is {self.leftovers()}", lambda: not self.leftovers(), 75)
        request("DELETE", f"/api/v1/namespaces/{self.name}")

    def _none_left(self, path: str) -> bool:
        items = self.on.cluster.request("GET", path)["items"]
        if any("deletionTimestamp" not in item["metadata"] for item in items):
            self.on.cluster.request("DELETE", path)
        return not items

    def leftovers(self) -> list[str]:
        """What lies on the nodes for claims, by file name."""
        found = []
        for node in self.on.machines:
            found += [f"{node}: record {name}" for name in self.records(node)]
            for device in self.on.on_node(node, f"{RUN_DIR}/holders"):
                holders = self.on.on_node(node, f"{RUN_DIR}/holders/{device}")
                found += [f"{node}: holder of {device}: {name}" for name in holders]
            found += [f"{node}: spec {name}" for name in self.on.on_node(node, "/run/cdi")]
        return found

    def records(self, node: str) -> list[str]:
        """The ledger's records on this node."""
        return self.on.on_node(node, f"{RUN_DIR}/claims")

    def apply(self, *objects: Mapping[str, Any]) -> None:
        placed = [{**item, "metadata": {**item["metadata"], "namespace": self.name}} for item in objects]
        self.on.apply(*placed)

    def run(
        self, name: str, *selectors: str, count: int | None = None, node: str | None = None, restart: str = "Never"
    ) -> None:
        """A pod with a claim of its own, and waits until it runs."""
        gpus = template(f"{name}-gpu", request("gpu", *selectors, count=count))
        self.apply(gpus, pod(name, templates=[f"{name}-gpu"], node=node, restart=restart))
        self.running(name)

    def running(self, pod: str, seconds: float = 60) -> dict[str, Any]:
        return self.on.wait_for_pod(pod, self.name, seconds=seconds)

    def poke(self, pod: str) -> None:
        """The kubelet looks at a pod when it changes; after a failure it would by itself only in 10 to 15 s."""
        self.on.kubectl("label", "pod", pod, "-n", self.name, "--overwrite", f"poked=at-{time.monotonic_ns()}")

    def finished(self, pod: str, seconds: float = 90) -> dict[str, Any]:
        return self.on.wait_for_pod(pod, self.name, ("Succeeded", "Failed"), seconds)

    def pending(self, pod: str, words: str, seconds: float = 30) -> str:
        """Waits until the pod is pending for a reason that holds `words`, and returns the reason."""

        def ask() -> str | None:
            found = self.on.pod(pod, self.name)
            assert found is None or found["status"].get("phase") in (None, "Pending")
            why = self.on.why(pod, self.name)
            return why if words in why else None

        return until(f"pod {pod} to be pending with {words!r}", ask, seconds)

    def end_container(self, pod: str) -> None:
        """Whether `kubectl exec` outlives the container that it ends is up to chance."""
        self.on.kubectl("exec", pod, "-n", self.name, "--", "kill", "1", check=False)

    def restarted(self, pod: str, more_than: int = 0) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            found = self.on.pod(pod, self.name)
            statuses = found["status"].get("containerStatuses") if found else None
            again = statuses and statuses[0]["restartCount"] > more_than and statuses[0].get("state", {}).get("running")
            return found if again else None

        return until(f"a restart of the container of {pod}", ask, 60)

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        query = f"?labelSelector={selector.replace('=', '%3D')}" if selector else ""
        items: list[dict[str, Any]] = self.on.cluster.request("GET", f"/api/v1/namespaces/{self.name}/pods{query}")[
            "items"
        ]
        return items

    def delete(self, kind: str, name: str, *more: str) -> None:
        self.on.delete(kind, name, self.name, *more)

    def execute(self, pod: str, command: str, container: str | None = None) -> str:
        """What a shell command prints in a container."""
        return self.on.execute(pod, "sh", "-c", command, namespace=self.name, container=container)

    def gpus(self, pod: str, container: str | None = None) -> set[str]:
        """UUIDs of the GPUs that `nvidia-smi -L` printed in the container."""
        return {line.rpartition("UUID: ")[2].rstrip(")") for line in self.on.gpus_seen(pod, container, self.name)}

    def gpus_now(self, pod: str, container: str | None = None) -> set[str]:
        """The same, asked again."""
        lines = self.execute(pod, "nvidia-smi -L", container).splitlines()
        return {line.rpartition("UUID: ")[2].rstrip(")") for line in lines}

    def allocated(self, pod: str) -> list[str]:
        found = self.on.pod(pod, self.name)
        assert found is not None
        return self.on.allocated(found)

    def allocated_uuids(self, pod: str) -> set[str]:
        found = self.on.pod(pod, self.name)
        assert found is not None
        return set(self.on.uuids(found["spec"]["nodeName"], self.on.allocated(found)))

    def containers(self, pod: str) -> list[dict[str, Any]]:
        """Their states, as the kubelet has reported them."""
        found: list[dict[str, Any]] = (self.on.pod(pod, self.name) or {})["status"].get("containerStatuses") or []
        return found

    def claim(self, name: str) -> dict[str, Any]:
        found = self.on.get(f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaims/{name}")
        assert found is not None
        return found

    def warnings(self, about: str) -> str:
        listed = self.on.get(f"/api/v1/namespaces/{self.name}/events") or {"items": []}
        return " | ".join(
            f"{item['reason']}: {item['message']}"
            for item in listed["items"]
            if about in item["involvedObject"].get("name", "") and item["type"] == "Warning"
        )

    @contextmanager
    def agent_with(self, node: str, **settings: str) -> Iterator[Process]:
        """Another agent in the place of the node's, with these settings."""
        self.on.accepts(**settings)
        self.on.agents[node].stop()
        try:
            yield self.on.start_agent(node, wait=False, **settings)
        finally:
            self.on.agents[node].stop()
            self.on.start_agent(node)

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """SIGKILL to the API server, and another one afterwards."""
        self.on.cluster.stop("apiserver")
        try:
            yield
        finally:
            self.on.cluster.start("apiserver")

    def published(self, node: str, device: str) -> dict[str, Any] | None:
        return next((item for item in self.on.devices(node) if item["name"] == device), None)

    def listen(self, node: str) -> Callable[[], Sequence[dict[str, Any]]]:
        """What the agent of a node has logged since this call, each time it is asked."""
        log = self.on.agents[node].log
        begin = log.stat().st_size if log.exists() else 0

        def said() -> Sequence[dict[str, Any]]:
            whole = log.read_bytes()[begin:].rpartition(b"\n")[0]  # the last line may be half written
            return [json.loads(line) for line in whole.splitlines()]

        return said
