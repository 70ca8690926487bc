"""Helm on a cluster, and pods that come and go while it works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.helm.schema import CHART
from e2e.cluster import Cluster
from e2e.installation import View, until
from e2e.objects import SHOW_GPUS

RELEASE, NAMESPACE = "gpu-dra-driver", "dra-driver"
AGENT, WEBHOOK = f"{RELEASE}-agent", f"{RELEASE}-webhook"


class Installed(View):
    """A cluster that a chart is installed on, by its users' commands; another version is another of these."""

    def __init__(self, cluster: Cluster, helm: Path, image: str, chart: Path = CHART) -> None:
        super().__init__(cluster)
        self._helm = helm
        self._chart = chart
        self._values = {
            "image": {"repository": image.partition(":")[0], "tag": image.partition(":")[2]},
            "simulation": {"machine": "dgx-h100"},
        }

    def helm(self, *arguments: str, check: bool = True, **values: object) -> subprocess.CompletedProcess[str]:
        given = ["--values", "-"] if arguments[0] in {"install", "upgrade"} else []
        home = str(self.cluster.directory / "helm")
        done = subprocess.run(
            [self._helm, *arguments, "--namespace", NAMESPACE, "--kubeconfig", self.cluster.kubeconfig, *given],
            input=json.dumps({**self._values, **values}),
            env={**os.environ, **{f"HELM_{what}_HOME": home for what in ("CACHE", "CONFIG", "DATA")}},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, name: str = RELEASE, **values: object) -> str:
        waiting = ("--create-namespace", "--wait", "--timeout", "120s")
        return self.helm("install", name, str(self._chart), *waiting, **values).stdout

    @property
    def all_gpus(self) -> int:
        """Eight on each node; kind has one more node than those that pods go to."""
        return 8 * len(self.cluster.request("GET", "/api/v1/nodes")["items"])

    def upgrade(self, **values: object) -> None:
        self.helm("upgrade", RELEASE, str(self._chart), "--wait", "--timeout", "120s", **values)
        self.has_settled()

    def rollback(self, revision: int) -> None:
        self.helm("rollback", RELEASE, str(revision), "--wait", "--timeout", "120s")
        self.has_settled()

    def agent(self, node: str) -> dict[str, Any]:
        """The agent's pod that is there to stay."""
        listed = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName%3D{node}") or {"items": []}
        (pod,) = (
            item
            for item in listed["items"]
            if item["metadata"]["labels"].get("app.kubernetes.io/component") == "agent"
            and "deletionTimestamp" not in item["metadata"]
        )
        found: dict[str, Any] = pod
        return found

    def has_settled(self) -> None:
        """Only the pods of the last revision are there."""

        def only_new() -> bool:
            listed = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods") or {"items": []}
            return not [item for item in listed["items"] if "deletionTimestamp" in item["metadata"]]

        until("pods of the old revision to be gone", only_new, 60)

    def refused_calls(self) -> list[str]:
        """What the kubelets count as calls of this driver that failed, and what they said of it."""
        metrics = "".join(
            self.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics") for node in self.cluster.nodes
        )
        calls = re.findall(r"^dra_grpc_operations_duration_seconds_count{(.*)} \d+", metrics, re.MULTILINE)
        assert calls, "the kubelets count no calls"
        # An answer can hold an error for a claim: then the pod has an Event.
        listed = self.get("/api/v1/events?fieldSelector=reason%3DFailedPrepareDynamicResources") or {"items": []}
        complaints = [item["message"] for item in listed["items"]]
        return [*(call for call in calls if 'grpc_status_code="OK"' not in call), *complaints]


def pod(name: str, gpus: int = 1, **spec: object) -> dict[str, Any]:
    """As it was written for the device plugin."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            # Not 0: the API server would forget the pod at once, and its GPU be given to the next while it still runs.
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "c",
                    "image": "e2e/busybox:1",
                    "command": ["sh", "-c", SHOW_GPUS],
                    "resources": {"limits": {"nvidia.com/gpu": gpus}},
                }
            ],
            **spec,
        },
    }


class Traffic:
    """Pods with GPUs that start and end one after the other, on one node each, and a look at the slices in between."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._stopping = threading.Event()
        self.started = 0
        self.fewest_devices = len(installed.devices())
        self.trouble: list[BaseException] = []

    @contextmanager
    def flowing(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._run, args=(node,)) for node in self._installed.cluster.nodes]
        threads.append(threading.Thread(target=self._look))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
        if self.trouble:
            raise self.trouble[0]

    def _run(self, node: str) -> None:
        try:
            number = 0
            while not self._stopping.is_set():
                name = f"traffic-{node}-{number}"
                self._installed.apply(pod(name, nodeSelector={"kubernetes.io/hostname": node}))
                self._installed.wait_for_pod(name, seconds=60)
                self._installed.delete("pod", name, "default")
                self.started += 1
                number += 1
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.trouble.append(error)

    def _look(self) -> None:
        try:
            while not self._stopping.wait(0.1):
                self.fewest_devices = min(self.fewest_devices, len(self._installed.devices()))
        except BaseException as error:  # noqa: BLE001
            self.trouble.append(error)
