"""One node: a machine with containerd, kubelet and kube-proxy. Knows nothing of the control plane but its address."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from e2e.cluster import ClusterError, cgroups, network
from e2e.cluster import node_configuration as configuration
from e2e.cluster.access import wait
from e2e.cluster.build import Programs
from e2e.cluster.capabilities import CAP_SYS_RESOURCE, may_have
from e2e.cluster.identity import ENDED, Identity, identify
from e2e.cluster.machine import Machine
from e2e.cluster.network import Addresses


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the cluster a node stands."""

    cluster: str  # the options' key
    number: int
    nodes: int
    addresses: Addresses
    control_plane: Machine
    authority: Path
    images: Path  # directory of docker-archives that every node starts with
    gates: Mapping[str, bool]
    cdi: bool | None  # whether its containerd 1.7 reads CDI specs; None for a newer one, which always does


class ForegroundProcess:
    """A process on a node, seen through the nsenter that waits for it and hands on its exit status."""

    def __init__(self, waiting: subprocess.Popen[str], process: Identity, log: Path) -> None:
        self._waiting = waiting
        self._process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._waiting.poll()

    def wait(self, timeout: float) -> int:
        try:
            return self._waiting.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"waiting {timeout} s for process {self.pid} to end: it runs; see {self.log}") from None

    def send(self, signal: int) -> None:
        self._process.send(signal)

    def stop(self, timeout: float = 10) -> int:
        self.send(signal.SIGTERM)
        try:
            return self._waiting.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        return self.wait(30)


class RunningNode:
    def __init__(self, machine: Machine, place: Place, programs: Programs) -> None:
        self._machine = machine
        self._place = place
        self._programs = programs
        self._started: list[ForegroundProcess] = []
        self.name = machine.name
        self.logs = machine.logs
        self.address = place.addresses.node(place.number)

    def path(self, path: str | Path) -> Path:
        return self._machine.path(path)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on the node in the foreground."""
        return self._machine.inside(*argv)

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float = 60
    ) -> CompletedProcess[str]:
        command = self._machine.inside(*argv)
        environment = {**os.environ, **(env or {})}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"running {' '.join(argv)} on {self.name}: not done after {timeout} s") from None

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str, cwd: Path | None = None
    ) -> ForegroundProcess:
        log = self.logs / f"{name}.log"
        command = self._machine.reporting(["env", "-C", str(cwd or Path.cwd()), *argv], log)
        environment = {**os.environ, **(env or {})}
        waiting = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal is for whoever runs the test
        )
        assert waiting.stdout is not None
        with waiting.stdout:
            pid = waiting.stdout.readline().strip()
        if not pid.isdigit():
            raise ClusterError(f"starting {argv[0]} on {self.name}: nsenter ended with {waiting.wait(10)}; see {log}")
        process = identify(int(pid)) or Identity(int(pid), ENDED)
        started = ForegroundProcess(waiting, process, log)
        self._started.append(started)
        return started

    def load(self, archive: Path) -> None:
        ctr = [str(self._programs["ctr"]), "--namespace=k8s.io", "images", "import"]
        # In 1.7 its CRI does not hear of what the transfer service imports.
        local = [] if self._place.cdi is None else ["--local"]
        done = self.run([*ctr, *local, str(archive)])
        if done.returncode:
            raise ClusterError(f"loading {archive} on {self.name}: {done.stderr.strip()[-500:]}; see {self.logs}")

    def boot(self) -> None:
        """Switch the machine on and start what needs no API server, images included."""
        directory = self._machine.directory
        self._write_files(directory)
        pid = self._machine.start(self._programs["pause"], configuration.mounts(str(directory)))
        place = self._place
        self.delay(0)
        network.connect_node(
            place.cluster, self.name, place.number, pid, place.control_plane.pid, place.addresses, place.nodes
        )
        cgroups.make(place.cluster, self.name)
        self._start_containerd()
        for archive in sorted(place.images.glob("*.tar")):
            self.load(archive)

    def serve(self) -> None:
        """Start what talks to the API server."""
        self.start_kubelet()
        proxy = [str(self._programs["kube-proxy"]), "--config=/etc/e2e/kube-proxy.json", "--v=2"]
        self._machine.start_daemon("kube-proxy", proxy)

    def start_kubelet(self) -> None:
        self._machine.start_daemon(
            "kubelet",
            [
                str(self._programs["kubelet"]),
                "--config=/etc/e2e/kubelet.json",
                "--kubeconfig=/etc/e2e/kubelet.kubeconfig",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                "--v=2",
            ],
        )

    def stop_kubelet(self) -> None:
        if kubelet := self._machine.daemon("kubelet"):
            kubelet.stop()

    def kill_kubelet(self) -> None:
        if kubelet := self._machine.daemon("kubelet"):
            kubelet.kill()

    def restart_containerd(self) -> None:
        if containerd := self._machine.daemon("containerd"):
            containerd.stop()
        self._start_containerd()

    def reboot(self) -> None:
        self.switch_off()
        cgroups.remove(self._place.cluster, self.name)
        self.boot()
        self.serve()

    def switch_off(self) -> None:
        """Everything on it ends at once, and so does whoever waits for what `start` started."""
        self._machine.end()
        for process in self._started:
            process.wait(10)
        self._started.clear()

    def disconnect(self) -> None:
        network.set_cable(self._place.number, self._place.control_plane.pid, plugged=False)

    def connect(self) -> None:
        network.set_cable(self._place.number, self._place.control_plane.pid, plugged=True)

    def delay(self, seconds: float) -> None:
        number, control_plane, cable = self._place.number, self._place.control_plane, f"cable-of-{self.name}"
        control_plane.end_daemon(cable)
        network.straighten(number, control_plane.pid)
        if seconds:
            ends = network.detour(number, control_plane.pid)
            program = Path(__file__).with_name("slow_cable.py")
            control_plane.start_daemon(cable, [sys.executable, str(program), *ends, str(seconds)])

    def cover(self, path: str, size: str) -> None:
        self._do("mkdir", "-p", path)
        self._do("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)

    def uncover(self, path: str) -> None:
        self._do("umount", path)

    def _do(self, *argv: str) -> None:
        done = self.run(argv)
        if done.returncode:
            raise ClusterError(f"running `{' '.join(argv)}` on {self.name}: {done.stderr.strip()[-300:]}")

    def _start_containerd(self) -> None:
        release, configured = ("", ["--config=/etc/e2e/containerd.toml"]) if self._place.cdi is None else ("-1.7", [])
        paths = {str(self._programs[name].parent) for name in (f"containerd-shim-runc-v2{release}", "runc")}
        containerd = [str(self._programs[f"containerd{release}"]), *configured]
        self._machine.start_daemon(
            "containerd", containerd, {"PATH": os.pathsep.join([*sorted(paths), os.environ["PATH"]])}
        )
        ctr = [str(self._programs["ctr"]), "--connect-timeout=1s", "plugins", "list", "--quiet"]
        wait(
            f"containerd on {self.name}",
            lambda: self.run(ctr).returncode == 0,
            30,
            lambda: f"see {self.logs / 'containerd.log'}",
        )

    def _write_files(self, directory: Path) -> None:
        for own in (
            "etc/e2e",
            "etc/containerd",
            "etc/cni/net.d",
            "lib",
            "work-etc",
            "work-lib",
            "log",
            "kubelet",
            "containerd",
            "tunables",
        ):
            (directory / own).mkdir(parents=True, exist_ok=True)
        place = self._place
        cgroup = f"/{cgroups.subtree(place.cluster)}/{self.name}"
        restricted = not may_have(CAP_SYS_RESOURCE)
        files = {
            "etc/e2e/kubelet.json": configuration.kubelet(self.address, cgroup, str(place.authority), place.gates),
            "etc/e2e/kube-proxy.json": configuration.kube_proxy(self.name, "/etc/e2e/kube-proxy.kubeconfig"),
            "etc/e2e/containerd.toml": configuration.containerd(self._programs, restrict_oom_score_adj=restricted),
            "etc/cni/net.d/10-pods.conflist": configuration.pod_network(place.addresses.pods(place.number)),
            "etc/machine-id": hashlib.sha256(f"{place.cluster}/{self.name}".encode()).hexdigest()[:32] + "\n",
            "boot_id": "",
            **self._old_containerd(restricted),
            **{f"tunables/{name.replace('/', '.')}": value for name, value in configuration.TUNABLES.items()},
        }
        for name, text in files.items():
            (directory / name).write_text(text)

    def _old_containerd(self, restricted: bool) -> dict[str, str]:
        """Its configuration lies where it looks when it is told nothing, as on most machines."""
        if self._place.cdi is None:
            return {}
        text = configuration.containerd17(self._programs, cdi=self._place.cdi, restrict_oom_score_adj=restricted)
        return {"etc/containerd/config.toml": text}
