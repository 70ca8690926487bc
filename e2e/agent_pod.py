"""The agent in a pod of the DaemonSet, seen as a process: to wait for, to kill, and to read what it logs."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

from e2e.cluster import ClusterError, Node, Unsupported
from e2e.installation import View, until

GONE_SECONDS = 60  # the pod's grace period is 30


class AgentPod:
    """One life of the container. It is found when it is first asked about: it may not run yet."""

    def __init__(
        self, view: View, node: Node, find: Callable[[], dict[str, Any]], log: Path, end: Callable[[str], None]
    ) -> None:
        self._view = view
        self._node = node
        self._find = find
        self._end = end
        self.log = log
        self._pod: dict[str, Any] = {}  # its metadata
        self._container = ""  # "containerd://<id>"
        self._status: int | None = None

    @property
    def pid(self) -> int:
        raise Unsupported("telling the process id of an agent: in a pod it has one of its own")

    def ready(self) -> bool:
        """Whether the container runs, as the node says, and is ready, as the kubelet says: after a reboot it lags behind."""
        pod = self._find()
        status = _container(pod)
        if not status.get("ready") or not self._runs(status["containerID"]):
            return False
        self._pod, self._container = pod["metadata"], status["containerID"]
        return True

    def poll(self) -> int | None:
        if self._status is None and self._bound():
            pod = self._view.pod(self._pod["name"], self._pod["namespace"])
            if pod is None or pod["metadata"]["uid"] != self._pod["uid"]:
                raise ClusterError(f"looking for the agent of {self._node.name}: pod {self._pod['name']} is gone")
            self._status = self._ended(pod)
        return self._status

    def wait(self, timeout: float) -> int:
        until(f"the agent of {self._node.name} to end", lambda: self.poll() is not None, timeout)
        status = self.poll()
        assert status is not None
        return status

    def send(self, signal: int) -> None:
        """To the agent itself; the kubelet starts another one in its place."""
        if not self._bound():
            return
        template = ["--output", "go-template", "--template", "{{.info.pid}}"]
        found = self._node.run(["crictl", "inspect", *template, self._container.rpartition("/")[2]])
        if found.returncode == 0 and found.stdout.strip().isdigit():
            self._node.run(["sh", "-c", f"kill -{int(signal)} {found.stdout.strip()}"])

    def stop(self, timeout: float = 10) -> int:
        """The pod is taken from the node: SIGTERM."""
        return self._take_away(lambda: None)

    def kill(self) -> int:
        """It stands still at once, and is killed when the kubelet will not start it again."""
        self.send(SIGSTOP)
        return self._take_away(self._kill_for_good)

    def _kill_for_good(self) -> None:
        def deleted() -> bool:
            pod = self._view.pod(self._pod["name"], self._pod["namespace"])
            return pod is None or "deletionTimestamp" in pod["metadata"]

        until(f"the pod of {self._node.name} to be deleted", deleted, 30)
        self.send(SIGKILL)
        self.send(SIGCONT)

    def _take_away(self, meanwhile: Callable[[], None]) -> int:
        if self._status is not None or not self._bound():
            self._end(self._node.name)
            return self._status or 0
        if self._node.run(["systemctl", "is-active", "--quiet", "kubelet"]).returncode:
            raise Unsupported(f"ending the agent of {self._node.name} without a kubelet: nobody else ends a pod")
        name, namespace = self._pod["name"], self._pod["namespace"]
        cluster = self._view.cluster
        watching = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", "get", "pod", name, "-n", namespace]
        watching += ["--watch", "--output-watch-events", "--output=json"]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            patience = threading.Timer(GONE_SECONDS, watch.kill)
            patience.start()
            try:
                for line in watch.stdout:  # an event each
                    event = json.loads(line)
                    self._status = self._ended(event["object"]) if self._status is None else self._status
                    if event["type"] == "ADDED":  # the first: as it is now
                        self._end(self._node.name)
                        meanwhile()
                    if event["type"] == "DELETED":
                        break
            finally:
                patience.cancel()
                watch.kill()
        if self._status is None:
            raise ClusterError(f"ending the agent of {self._node.name}: how pod {name} ended was not told")
        return self._status

    def _bound(self) -> bool:
        return bool(self._container) or self.ready()

    def _runs(self, container: str) -> bool:
        return container.rpartition("/")[2] in self._node.run(["crictl", "ps", "--quiet", "--no-trunc"]).stdout.split()

    def _ended(self, pod: dict[str, Any]) -> int | None:
        """Exit status of this life; negative for a signal."""
        status = _container(pod)
        for state in (status.get("state", {}), status.get("lastState", {})):
            ended = state.get("terminated")
            if ended and ended.get("containerID") == self._container:
                code = int(ended["exitCode"])
                return 128 - code if code > 128 else code
        return None


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return dict(statuses[0])


class LogCopy:
    """Copies what the containers of a pod log on a node to one file on this host, while this process lives.

    From the node's files, because the API server may be away while somebody looks.
    """

    def __init__(self, node: Node, pattern: str) -> None:
        self.log = node.logs / "agent.log"
        self._node = node
        self._pattern = pattern
        self._read: dict[str, int] = {}  # file -> bytes copied
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"log of {node.name}")
        self._stop = threading.Event()

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            with suppress(OSError, ClusterError):  # the node is rebooting, or gone
                self._copy()

    def _copy(self) -> None:
        directory = self._node.path("/var/log/pods")
        for file in sorted(directory.glob(f"{self._pattern}/*.log"), key=lambda file: file.stat().st_mtime):
            name = str(file.relative_to(directory))
            with file.open("rb") as source:
                source.seek(self._read.get(name, 0))
                new = source.read()
            whole = new[: new.rfind(b"\n") + 1]
            with self.log.open("ab") as target:
                target.write(b"".join(map(plain, whole.splitlines(keepends=True))))
            self._read[name] = self._read.get(name, 0) + len(whole)


def plain(line: bytes) -> bytes:
    """One line of a container's log file: time, stream, F or P (the line goes on in the next), text."""
    _, _, part, text = line.split(b" ", 3)
    return text.removesuffix(b"\n") if part == b"P" else text
