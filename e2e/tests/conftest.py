"""One cluster for the whole run: node-a is a DGX H100, node-b has 4 x L40S and 2 x A100. Every test has a namespace of
its own, and must leave nothing behind on any node: no ledger record, no holder, no CDI spec.

`E2E_EMULATE=1.34` runs the same scenarios against the API server, scheduler and controller manager of that release.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.cluster import Cluster, Options, processes
from e2e.demo import MACHINES
from e2e.installation import Installation, until

EMULATE = os.environ.get("E2E_EMULATE")
RUN_DIR = "/run/gpu.nvidia.com/ledger"
_numbers = itertools.count(1)


class Space:
    """A namespace, and the installation seen from it."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.on = installation
        self.name = name

    def apply(self, *objects: Mapping[str, Any]) -> None:
        placed = [{**item, "metadata": {**item["metadata"], "namespace": self.name}} for item in objects]
        self.on.apply(*placed)

    def running(self, pod: str, seconds: float = 60) -> dict[str, Any]:
        return self.on.wait_for_pod(pod, self.name, seconds=seconds)

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

    def delete(self, kind: str, name: str, *more: str) -> None:
        self.on.delete(kind, name, self.name, *more)

    def gpus(self, pod: str, container: str | None = None) -> set[str]:
        """UUIDs of the GPUs that `nvidia-smi -L` printed in the container."""
        return {line.rpartition("UUID: ")[2].rstrip(")") for line in self.on.gpus_seen(pod, container, self.name)}

    def allocated(self, pod: str) -> list[str]:
        found = self.on.pod(pod, self.name)
        assert found is not None
        return self.on.allocated(found)

    def allocated_uuids(self, pod: str) -> set[str]:
        found = self.on.pod(pod, self.name)
        assert found is not None
        return set(self.on.uuids(found["spec"]["nodeName"], self.on.allocated(found)))

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


def leftovers(installation: Installation) -> list[str]:
    """What lies on the nodes for claims, by file name."""
    found = []
    for node in installation.machines:
        found += [f"{node}: record {name}" for name in installation.on_node(node, f"{RUN_DIR}/claims")]
        for device in installation.on_node(node, f"{RUN_DIR}/holders"):
            holders = installation.on_node(node, f"{RUN_DIR}/holders/{device}")
            found += [f"{node}: holder of {device}: {name}" for name in holders]
        found += [f"{node}: spec {name}" for name in installation.on_node(node, "/run/cdi")]
    return found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    suffix = f"-{EMULATE.replace('.', '-')}" if EMULATE else ""
    made = processes(Options(name=f"e2e{suffix}", nodes=tuple(MACHINES), emulate=EMULATE))
    made.up()
    yield made
    made.down(keep_logs=bool(os.environ.get("E2E_KEEP_LOGS")))


@pytest.fixture(scope="session")
def installation(cluster: Cluster) -> Installation:
    made = Installation(cluster, MACHINES)
    made.install()
    return made


@pytest.fixture
def space(installation: Installation) -> Iterator[Space]:
    name = f"test-{next(_numbers)}"
    labels = {"resource.kubernetes.io/admin-access": "true"}
    installation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    until("the default service account", lambda: installation.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield Space(installation, name)
    installation.kubectl("delete", "jobs,pods,resourceclaims", "--all", "-n", name, "--wait=true", "--timeout=90s")
    until(
        f"nothing of {name} to be left, but there is {leftovers(installation)}", lambda: not leftovers(installation), 75
    )
    installation.kubectl("delete", "namespace", name, "--wait=false")
