"""The agent on a node of the cluster, as a pod would run it, and the bench in the part of the kubelet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from api.proto.pb import dra_v1_pb2, dra_v1_pb2_grpc
from dra_driver.model.claim import ClaimRef
from e2e.by_process import ByProcess
from e2e.cluster import ClusterError, Process
from e2e.installation import DRIVER, ROOT

SIMULATION = "/run/simulation"


class Agent:
    """Its ledger and CDI specs lie on the node's /run, a tmpfs; its credentials are where a pod has them."""

    def __init__(self, installation: ByProcess, node: str, machine: str) -> None:
        self._cluster = installation.cluster
        self._node = self._cluster.nodes[node]
        self._machine = machine
        self._environment = installation.credentials(node)
        self._process: Process | None = None

    @property
    def _flags(self) -> list[str]:
        return ["--node-name", self._node.name, "--machine", self._machine, "--simulation-dir", SIMULATION]

    def settle(self) -> None:
        """The simulated machine and the agent's bytecode: a real node has the one, an image the other."""
        made = self._run("simulate", SIMULATION, "create", self._machine, "--seed", self._node.name)
        if made.wait(60):
            raise ClusterError(f"making the simulated machine: see {made.log}")

    def start(self) -> float:
        """Starts it; the seconds from then to its first ResourceSlice on the API server."""
        begin = time.monotonic()
        self._process = self._run("agent", *self._flags)
        path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D{self._node.name}"
        while not self._cluster.request("GET", path)["items"]:
            self._check_alive()
            time.sleep(0.005)
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            self._check_alive()
            if time.monotonic() > deadline:
                raise ClusterError(f"the agent does not serve {self.socket}: see {self._process.log}")
            time.sleep(0.01)
        return seconds

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stop(30):
            raise ClusterError(f"the agent did not end well on SIGTERM: see {process.log}")

    @property
    def socket(self) -> Path:
        return self._node.path(f"/var/lib/kubelet/plugins/{DRIVER}/dra.sock")

    def memory_mib(self) -> tuple[float, float]:
        """(RSS, anonymous) as the kernel accounts them."""
        rollup = Path(f"/proc/{self._pid}/smaps_rollup").read_text()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
        return kib["Rss"] / 1024, kib["Anonymous"] / 1024

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise ClusterError("measuring the agent: it is not running; start it first")
        return self._process.pid

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ClusterError(f"the agent ended: see {self._node.logs}/agent.log")

    def _run(self, *verb: str) -> Process:
        environment = {**self._environment, "PYTHONDONTWRITEBYTECODE": ""}  # the first start writes the bytecode
        argv = [sys.executable, "-m", "dra_driver.cli.main", *verb]
        return self._node.start(argv, environment, name=verb[0], cwd=ROOT)


class Kubelet:
    """One connection, as the kubelet's."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._stub = dra_v1_pb2_grpc.DRAPluginStub(self._channel)

    def prepare(self, refs: Sequence[ClaimRef]) -> float:
        """In one call; its seconds."""
        return self._prepare([refs])

    def prepare_at_once(self, refs: Sequence[ClaimRef]) -> float:
        """In a call for each, all sent before the first is answered; the seconds from the first call to the last answer."""
        return self._prepare([[ref] for ref in refs])

    def _prepare(self, calls: Sequence[Sequence[ClaimRef]]) -> float:
        requests = [dra_v1_pb2.NodePrepareResourcesRequest(claims=[_claim(ref) for ref in refs]) for refs in calls]
        begin = time.perf_counter()
        pending = [self._stub.NodePrepareResources.future(request, timeout=45) for request in requests[1:]]
        answers = [self._stub.NodePrepareResources(requests[0], timeout=45), *(call.result() for call in pending)]
        seconds = time.perf_counter() - begin
        for answer, refs in zip(answers, calls, strict=True):
            _check(answer.claims, refs)
        return seconds

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
