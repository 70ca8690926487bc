"""A node of kind: a container with systemd, containerd and kubelet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from e2e.cluster import ClusterError, Process, Unsupported
from e2e.cluster.access import wait
from e2e.cluster.identity import Identity, identify
from e2e.kind.docker import Docker

# systemd would start a killed kubelet again at once.
STAY_DOWN = "/run/systemd/system/kubelet.service.d/stay-down.conf"
CUT = "dra-e2e-cable"


class KindNode:
    def __init__(self, docker: Docker, name: str, container: str, logs: Path) -> None:
        self.name = name
        self.container = container
        self.logs = logs
        self._docker = docker
        self._init: Identity | None = None

    @property
    def address(self) -> str:
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self._docker.run("inspect", "--format", template, self.container)

    def path(self, path: str | Path) -> Path:
        if os.geteuid() != 0:
            raise ClusterError(
                f"reading {path} on {self.name}: a container's files are for root; run it with `sudo -E`"
            )
        if self._init is None or not self._init.alive:
            self._init = identify(self._docker.pid(self.container))
        if self._init is None:
            raise ClusterError(f"reading {path} on {self.name}: its container {self.container} has just ended")
        absolute = Path(os.path.normpath(Path("/") / path))
        if absolute.is_relative_to("/var/run"):  # an absolute link: it would lead to the host's /run
            absolute = Path("/run") / absolute.relative_to("/var/run")
        return Path(f"/proc/{self._init.pid}/root") / absolute.relative_to("/")

    def inside(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        variables = [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        return ["exec", "--interactive", *variables, self.container, *argv]

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float = 60
    ) -> CompletedProcess[str]:
        return self._docker.ask(*self.inside(argv, env), timeout=timeout)

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str, cwd: Path | None = None
    ) -> Process:
        raise Unsupported(
            f"starting {argv[0]} on {self.name}: a node of kind has none of this machine's files; run it in a pod"
        )

    def load(self, archive: Path) -> None:
        command = ["ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-"]
        with archive.open("rb") as file:
            done = self._docker.ask(*self.inside(command), stdin=file, timeout=300)
        if done.returncode:
            raise ClusterError(f"loading {archive} on {self.name}: {done.stderr.strip()[-500:]}")

    def start_kubelet(self) -> None:
        self._shell(f"rm -f {STAY_DOWN} && systemctl daemon-reload && systemctl start kubelet")

    def stop_kubelet(self) -> None:
        self._shell("systemctl stop kubelet")

    def kill_kubelet(self) -> None:
        settings = f"mkdir -p $(dirname {STAY_DOWN}) && printf '[Service]\\nRestart=no\\n' >{STAY_DOWN}"
        self._shell(f"{settings} && systemctl daemon-reload && systemctl kill --signal=KILL kubelet")
        self._wait_until("the kubelet to be gone", "! systemctl is-active --quiet kubelet")

    def restart_containerd(self) -> None:
        self._shell("systemctl restart containerd")

    def reboot(self) -> None:
        """/run comes back empty; the boot_id is the host's and stays: on kind only the former tells of a reboot."""
        self._docker.run("kill", self.container)
        self._docker.run("start", self.container)
        self._wait_until("containerd to run", "systemctl is-active --quiet containerd")

    def disconnect(self) -> None:
        """Nothing comes in and nothing goes out; unlike with a pulled interface addresses and routes stay."""
        chains = (
            f"add chain inet {CUT} {hook} {{ type filter hook {hook} priority -400; }}; "
            f'add rule inet {CUT} {hook} {direction} "eth0" drop; '
            for hook, direction in (("input", "iifname"), ("output", "oifname"), ("forward", "iifname"))
        )
        away = f'add rule inet {CUT} forward oifname "eth0" drop'
        self._nft(f"add table inet {CUT}; {''.join(chains)}{away}")

    def connect(self) -> None:
        self._nft(f"delete table inet {CUT}")

    def delay(self, seconds: float) -> None:
        raise Unsupported(f"slowing the network of {self.name}: nobody stands between it and Docker's bridge")

    def cover(self, path: str, size: str) -> None:
        raise Unsupported(f"covering {path} on {self.name}: pods that run keep what they have mounted")

    def uncover(self, path: str) -> None:
        raise Unsupported(f"uncovering {path} on {self.name}: nothing is ever covered on a node of kind")

    def _nft(self, rules: str) -> None:
        done = self.run(["nft", rules])
        if done.returncode:
            raise ClusterError(f"cutting the network of {self.name} with nft: {done.stderr.strip()[-300:]}")

    def _shell(self, text: str) -> None:
        done = self.run(["sh", "-c", text])
        if done.returncode:
            raise ClusterError(f"running `{text}` on {self.name}: {done.stderr.strip()[-300:] or done.returncode}")

    def _wait_until(self, what: str, text: str) -> None:
        wait(
            f"{what} on {self.name}",
            lambda: self.run(["sh", "-c", text]).returncode == 0,
            60,
            lambda: f"look with `docker exec {self.container} journalctl -e`",
        )
