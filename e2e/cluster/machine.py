"""One machine of the cluster: mount, network, process and host-name namespaces held by one waiting process.

When that process ends the kernel ends everything in it, and its mounts and interfaces are gone: that is how a
machine is switched off. Nothing here knows Kubernetes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.identity import Identity, identify
from e2e.cluster.state import State

# /proc is still the host's here, so the shell reads its own id as the host knows it. It then waits until that is on
# record; where whoever started it dies first, the read fails and nothing is left behind.
BIRTH = """
set -eu
read -r pid rest </proc/self/stat
echo "$pid"
read -r go
mount --make-rshared /
mount -t proc proc /proc
echo "$1" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock
. "$2"
echo mounted
exec "$3" "$1" >/dev/null
"""
# The mount namespace is entered last, for the same reason.
ENTER = 'read -r pid rest </proc/self/stat; echo "$pid"; exec {prefix} nsenter --mount={mounts} -- "$@" >>"$0" 2>&1'
OTHER_SPACES = ("net", "uts", "ipc", "pid")


class Machine:
    """A machine by its name and its state file; every method works from any process, `up` or not."""

    def __init__(self, name: str, directory: Path, state: State) -> None:
        self.name = name
        self.directory = directory
        self.logs = directory / "logs"
        self._state = state

    @property
    def pid(self) -> int:
        """Of process 1, as the host sees it."""
        init = self._state.process(self.name) if self._state.exists else None
        if init is None or not init.alive:
            raise ClusterError(f"entering {self.name}: it is not running; bring the cluster up (again)")
        return init.pid

    def start(self, pause: Path, mounts: str = "") -> int:
        """Switch it on; `mounts` is shell text that sets up its own directories. Process 1, as the host sees it."""
        self.logs.mkdir(parents=True, exist_ok=True)
        setup = self.directory / "mounts.sh"
        setup.write_text(mounts)
        # --fork of setsid: a machine outlives whoever switches it on.
        unshare = ("setsid", "--fork", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork")
        command = [*unshare, "sh", "-c", BIRTH, "sh", self.name, str(setup), str(pause)]
        with (
            (self.logs / "machine.log").open("w+") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd="/", text=True
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            first = process.stdout.readline().strip()
            init = identify(int(first)) if first.isdigit() else None
            if init is not None:
                self._state.put(self.name, init)
                process.stdin.write("go\n")
                process.stdin.close()
            if init is None or process.stdout.readline().strip() != "mounted":
                log.seek(0)
                raise ClusterError(f"starting machine {self.name}: {log.read().strip()[-500:]}; see {self.logs}")
        return init.pid

    def end(self) -> None:
        """Switch it off, like pulling the plug."""
        init = self._state.process(self.name)
        if init is not None:
            init.kill()

    def path(self, path: str | Path) -> Path:
        """Where the host finds what the machine sees at `path`."""
        absolute = Path(os.path.normpath(Path("/") / path))
        if absolute.is_relative_to("/var/run"):  # an absolute link on most systems: it would lead to the host's /run
            absolute = Path("/run") / absolute.relative_to("/var/run")
        return Path(f"/proc/{self.pid}/root") / absolute.relative_to("/")

    def inside(self, *argv: str) -> list[str]:
        """The command that runs `argv` on the machine in the foreground."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *self._other_spaces(), "--", *argv]

    def reporting(self, argv: Sequence[str], log: Path) -> list[str]:
        """Like `inside`, but tells its process id, as the host sees it, on the first line and logs to a file."""
        return self._enter(ENTER, log, argv)

    def start_daemon(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Identity:
        """Start a child of process 1, logging to `logs/<name>.log`; on record when this returns."""
        running = self.daemon(name)
        if running is not None and running.alive:
            raise ClusterError(f"starting {name} on {self.name}: it runs already as process {running.pid}")
        log = self.logs / f"{name}.log"
        # The shell ends at once, so process 1 inherits the daemon.
        command = self._enter(f"( {ENTER} </dev/null ) &", log, argv, prefix="setsid")
        environment = {"PATH": os.environ["PATH"], "HOME": "/root", **(env or {})}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
        daemon = identify(int(done.stdout)) if done.stdout.strip().isdigit() else None
        if daemon is None:
            why = done.stderr.strip()[-500:] or "it ended at once"
            raise ClusterError(f"starting {name} on {self.name}: {why}; see {log}")
        self._state.put(f"{self.name}/{name}", daemon)
        return daemon

    def end_daemon(self, name: str) -> None:
        """SIGKILL, and nobody expects it to run; nothing happens where it never did."""
        if daemon := self.daemon(name):
            daemon.kill()
            self._state.forget(f"{self.name}/{name}")

    def daemon(self, name: str) -> Identity | None:
        return self._state.process(f"{self.name}/{name}")

    def _enter(self, script: str, log: Path, argv: Sequence[str], prefix: str = "") -> list[str]:
        text = script.format(mounts=f"/proc/{self.pid}/ns/mnt", prefix=prefix)
        return ["nsenter", *self._other_spaces(), "--", "sh", "-c", text, str(log), *argv]

    def _other_spaces(self) -> list[str]:
        return [f"--{space}=/proc/{self.pid}/ns/{space}" for space in OTHER_SPACES]
