"""An agent as its own process on this host, and the bench in the part of the kubelet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from api.proto.pb import dra_v1_pb2, dra_v1_pb2_grpc
from dra_driver.model.claim import ClaimRef
from e2e.cluster import Cluster, ClusterError
from e2e.installation import DRIVER, ROOT


class Agent:
    """`directory` should be a tmpfs, as /run is on a node."""

    def __init__(self, cluster: Cluster, node: str, machine: str, directory: Path, kubeconfig: Path) -> None:
        self._cluster = cluster
        self._node = node
        self._machine = machine
        self.directory = directory
        self.kubeconfig = kubeconfig
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def flags(self) -> list[str]:
        values = {
            "node-name": self._node,
            "machine": self._machine,
            "simulation-dir": str(self.directory / "simulation"),
            "kubeconfig": str(self.kubeconfig),
            "kubelet-dir": str(self.directory / "kubelet"),
            "cdi-dir": str(self.directory / "cdi"),
            "run-dir": str(self.directory / "run"),
        }
        return [word for name, value in values.items() for word in (f"--{name}", value)]

    def start(self) -> float:
        """Starts it; the seconds from the start of the process to its first ResourceSlice on the API server."""
        for folder in ("plugins", "plugins_registry"):
            (self.directory / "kubelet" / folder).mkdir(parents=True, exist_ok=True)
        with (self.directory / "agent.log").open("ab") as log:
            begin = time.monotonic()
            command = [sys.executable, "-m", "dra_driver.cli.main", "agent", *self.flags]
            # As in an image: bytecode is there (it is written at the first start), and not forbidden by the caller.
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            environment["PYTHONFAULTHANDLER"] = "1"
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)
        path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D{self._node}"
        while not self._cluster.request("GET", path)["items"]:
            if self.process.poll() is not None:
                raise ClusterError(f"the agent ended: see {self.directory / 'agent.log'}")
            time.sleep(0.005)
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            if time.monotonic() > deadline:
                raise ClusterError(f"the agent does not serve {self.socket}: see {self.directory / 'agent.log'}")
            time.sleep(0.01)
        return seconds

    def stop(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # with faulthandler on: every thread's stack goes to the log
            process.wait()
            log = (self.directory / "agent.log").read_text()
            raise ClusterError(f"the agent did not end within 30 s of SIGTERM: {log[-6000:]}") from None

    @property
    def socket(self) -> Path:
        return self.directory / "kubelet" / "plugins" / DRIVER / "dra.sock"

    def memory_mib(self) -> tuple[float, float]:
        """(RSS, anonymous) as the kernel accounts them."""
        assert self.process is not None
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
        return kib["Rss"] / 1024, kib["Anonymous"] / 1024

    def cpu_s(self) -> float:
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Kubelet:
    """One connection, as the kubelet's."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._stub = dra_v1_pb2_grpc.DRAPluginStub(self._channel)

    def prepare(self, refs: Sequence[ClaimRef]) -> None:
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[_claim(ref) for ref in refs])
        _check(self._stub.NodePrepareResources(request, timeout=45).claims, refs)

    def unprepare(self, refs: Sequence[ClaimRef]) -> None:
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[_claim(ref) for ref in refs])
        _check(self._stub.NodeUnprepareResources(request, timeout=45).claims, refs)

    def close(self) -> None:
        self._channel.close()


def _claim(ref: ClaimRef) -> dra_v1_pb2.Claim:
    return dra_v1_pb2.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name)


def _check(answers: Mapping[str, Any], refs: Sequence[ClaimRef]) -> None:
    for ref in refs:
        error = answers[ref.uid].error
        if error:
            raise ClusterError(f"the agent answered for {ref}: {error}")


def memory_directory() -> tempfile.TemporaryDirectory[str]:
    """On a tmpfs where there is one: the ledger and CDI specs of a node lie on /run."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    return tempfile.TemporaryDirectory(prefix="dra-bench-", dir=place)
