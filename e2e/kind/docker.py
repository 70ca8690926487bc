"""The Docker that a cluster of kind runs on: this machine's own where it answers, else a private one where asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, Any

from e2e.cluster import ClusterError
from e2e.cluster.identity import Identity

PRIVATE = "DRA_PRIVATE_DOCKER"


@dataclass(frozen=True, slots=True)
class Docker:
    """One Docker daemon as its client reaches it."""

    program: Path
    settings: Mapping[str, str] = field(default_factory=dict)  # environment: DOCKER_HOST; empty: the client's own
    daemon: Identity | None = None  # process 1 of a private one's process ids; None: the daemon sees the host's

    @property
    def environment(self) -> dict[str, str]:
        """For the client, and for kind, which calls it by name."""
        path = os.pathsep.join((str(self.program.parent), os.environ.get("PATH", "")))
        return {**os.environ, **self.settings, "PATH": path}

    def ask(self, *arguments: str, stdin: IO[Any] | None = None, timeout: float | None = 120) -> CompletedProcess[str]:
        """Run the client; the exit status is the caller's to judge."""
        command = [str(self.program), *arguments]
        try:
            return subprocess.run(
                command,
                env=self.environment,
                stdin=stdin or subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"running docker {' '.join(arguments)}: not done after {timeout} s") from None

    def run(self, *arguments: str, stdin: IO[Any] | None = None, timeout: float | None = 120) -> str:
        """What it prints. ClusterError with what it complains of otherwise."""
        done = self.ask(*arguments, stdin=stdin, timeout=timeout)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
            raise ClusterError(f"running docker {' '.join(arguments)}: {said[-800:]}")
        return done.stdout.strip()

    def has_image(self, name: str) -> bool:
        return self.ask("image", "inspect", name).returncode == 0

    def pid(self, container: str) -> int:
        """Of the container's process 1, as this host sees it."""
        state = self.run("inspect", "--format", "{{.State.Pid}}", container)
        pid = int(state) if state.isdigit() else 0
        if pid and self.daemon is not None:
            pid = on_host(self.daemon, pid) or 0
        if not pid:
            raise ClusterError(f"looking for container {container}: it does not run; start it with `docker start`")
        return pid


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def on_host(init: Identity, inner: int) -> int | None:
    """What process `inner` of another process id namespace, whose process 1 is `init`, is called here."""
    space = _space(init.pid)
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue  # it has ended
        ids = fields.get("NSpid", "").split()  # here first, then inner namespaces; proc(5)
        parent = int(fields.get("PPid", "0"))
        # A container's process 1 lives in a namespace further in; its parent, the shim, in the daemon's.
        if len(ids) >= 2 and ids[1] == str(inner) and space in (_space(int(ids[0])), _space(parent)):
            return int(ids[0])
    return None


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def machines_own() -> Docker | None:
    """The Docker that answers to the client of this machine; None where there is no client or no daemon."""
    program = shutil.which("docker")
    if program is None:
        return None
    docker = Docker(Path(program))
    try:
        return docker if docker.ask("version", "--format", "{{.Server.Version}}", timeout=20).returncode == 0 else None
    except ClusterError:
        return None


def wanted_private() -> bool:
    return os.environ.get(PRIVATE, "") not in ("", "0")


def none_here() -> ClusterError:
    return ClusterError(
        "looking for Docker: no daemon answers to `docker version`; install Docker and start it "
        "(https://docs.docker.com/engine/install), or be in its group, "
        f"or set {PRIVATE}=1 to have one fetched from this machine's Debian or Ubuntu mirror and run privately, as root: "
        "all of it below one directory, nothing installed, and gone with the last cluster"
    )
