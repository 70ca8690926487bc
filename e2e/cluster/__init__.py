"""A Kubernetes cluster to test and to show the driver on: brought up, broken in parts, taken down without a trace.

This page is the interface. `processes(options)` is its first implementation: the real components as plain
processes on one Linux machine, no Docker and no image registry. `e2e.kind` is the second: nodes are containers of
Docker. What one of them cannot do it refuses with Unsupported and the reason. Nothing here knows the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Literal, Protocol

from e2e.cluster.options import Options

__all__ = ["Cluster", "ClusterError", "Node", "Options", "Part", "Process", "Unsupported", "processes"]

Part = Literal["etcd", "apiserver", "controller-manager", "scheduler"]


class ClusterError(Exception):
    """The cluster cannot do what it was asked to; the message says what, why and the next step."""


class Unsupported(ClusterError):
    """This kind of cluster, or way to install, cannot do what it was asked; another one can. Scenarios are skipped by it."""


class Process(Protocol):
    """One process on a node, an agent for example. It ends with its node at the latest."""

    @property
    def pid(self) -> int:
        """Process id as the host sees it."""

    @property
    def log(self) -> Path:
        """Its standard output and error, on the host; appended to."""

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Exit status. ClusterError after `timeout` seconds."""

    def send(self, signal: int) -> None:
        """Send a signal to the process itself; nothing happens where it has ended."""

    def stop(self, timeout: float = 10) -> int:
        """SIGTERM, and SIGKILL after `timeout` seconds. Exit status."""

    def kill(self) -> int:
        """SIGKILL, as the kernel's OOM killer does it. Exit status."""


class Node(Protocol):
    """One machine of the cluster, with /run, /etc, /var/lib, network and process ids of its own.

    All other paths (/usr, /tmp, /dev, a virtual environment) are the host's. Processes on the node read a boot_id of
    its own; containers read the host's, as their /proc is made anew.
    """

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Internal IP; reachable from the host."""

    @property
    def logs(self) -> Path:
        """Directory on the host: kubelet.log, containerd.log, kube-proxy.log and what `start` wrote."""

    def path(self, path: str | Path) -> Path:
        """Where the host finds a file that the node sees at `path`. Holds until the node is rebooted."""

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float = 60
    ) -> CompletedProcess[str]:
        """Run a short command on the node and wait for it; the exit status is the caller's to judge."""

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str, cwd: Path | None = None
    ) -> Process:
        """Start a long-running process on the node (an agent), logging to `logs/<name>.log`.

        `env` adds to the caller's environment. It sees what a DaemonSet's pod sees through hostPath mounts.
        """

    def load(self, archive: Path) -> None:
        """Give the node's container runtime the images of a docker-archive."""

    def start_kubelet(self) -> None: ...

    def stop_kubelet(self) -> None:
        """SIGTERM, and wait for its end."""

    def kill_kubelet(self) -> None:
        """SIGKILL. It stays down until start_kubelet."""

    def restart_containerd(self) -> None:
        """Containers go on running, as in production."""

    def reboot(self) -> None:
        """Power cycle: every process ends at once, /run comes back empty, boot_id changes, disks stay."""

    def disconnect(self) -> None:
        """Pull the network cable."""

    def connect(self) -> None: ...

    def delay(self, seconds: float) -> None:
        """Whatever goes over the network cable arrives so much later, in both directions; 0 ends it, and so does a reboot."""

    def cover(self, path: str, size: str) -> None:
        """Put an empty file system of this size ("64k") over a directory, which is made if it is missing. All that runs on the
        node finds it there."""

    def uncover(self, path: str) -> None: ...


class Cluster(Protocol):
    """Up to one cluster per name. An object may be made for one that another process brought up."""

    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path:
        """All files of the cluster; logs in `control-plane/logs/` and `nodes/<name>/logs/`. Gone after `down`."""

    @property
    def server(self) -> str:
        """URL of the API server; the same from the host, from nodes and for processes on them."""

    @property
    def ca(self) -> Path:
        """Certificate of the authority that signed the API server's."""

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator, for any kubectl on the host."""

    @property
    def kubectl(self) -> Path:
        """A kubectl of the cluster's own version."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    def up(self) -> None:
        """Bring the cluster up: every node Ready, pods can be made. A run that died half way is cleaned first."""

    def down(self, *, keep_logs: bool = False) -> None:
        """End every process and remove whatever `up` made. Nothing happens where there is nothing."""

    def stop(self, part: Part) -> None:
        """SIGKILL one part of the control plane."""

    def start(self, part: Part) -> None:
        """Start a stopped part again; returns when it serves."""

    def restart(self, part: Part, *flags: str) -> None:
        """Stop one part and start it again, this once with these flags beside its own."""

    def token(self, identity: str) -> str:
        """Bearer token of `admin` or of one of the cluster's own components."""

    def service_account_token(self, namespace: str, name: str, node: str | None = None) -> str:
        """Mint a token of a ServiceAccount that exists; with `node` it carries that node's name as a claim."""

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig for the holder of `token`; the file is readable by its owner alone."""

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call to the API as admin, JSON both ways. ClusterError with the server's reason otherwise."""

    def load(self, archive: Path) -> None:
        """Give every node the images of a docker-archive."""


def processes(options: Options) -> Cluster:
    """The cluster of that name made of plain processes on this machine; nothing is started yet."""
    from e2e.cluster.running import RunningCluster

    return RunningCluster(options)
