"""Memory cgroups of the kernel, version 1 or 2: whoever needs more than the limit of his is killed by the kernel itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Unsupported, cgroups

# In the cgroup, with the same protection from the OOM killer as the one that is to be killed: then the larger one goes.
FILL = 'echo $$ >"$1/cgroup.procs"; echo "$2" >/proc/self/oom_score_adj; exec dd if=/dev/zero of="$3" bs=64k count="$4"'


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    directory: Path

    @property
    def processes(self) -> list[int]:
        return [int(line) for line in (self.directory / "cgroup.procs").read_text().split()]

    @property
    def limit(self) -> int:
        """Bytes."""
        return int((self.directory / _LIMIT[cgroups.unified()]).read_text())

    def oom_kills(self) -> int:
        """Processes in it that the kernel has killed for want of memory."""
        lines = (self.directory / _EVENTS[cgroups.unified()]).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def take(self, pid: int) -> None:
        """Moves a process into it; what it has in memory stays on the account of where it was."""
        (self.directory / "cgroup.procs").write_text(str(pid))

    def fill(self, file: Path, beside: int) -> None:
        """Writes more than the limit to a file on a tmpfs: that is memory which nobody can take back, and which is no process's
        own. `beside` is the process that is to be killed."""
        protection = Path(f"/proc/{beside}/oom_score_adj").read_text().strip()
        blocks = str(self.limit // 65536 + 64)
        argv = ["sh", "-c", FILL, "sh", str(self.directory), protection, str(file), blocks]
        subprocess.run(argv, capture_output=True, check=False, timeout=60)  # it may be killed in the end, too


_LIMIT = {False: "memory.limit_in_bytes", True: "memory.max"}
_EVENTS = {False: "memory.oom_control", True: "memory.events"}


@contextmanager
def made(name: str, limit: int) -> Iterator[MemoryCgroup]:
    """A cgroup with a limit in bytes; it goes when its processes have ended. Unsupported where this machine can have none."""
    directory = _hierarchy() / name
    try:
        directory.mkdir()
    except OSError as error:
        raise Unsupported(f"making memory cgroup {directory}: {error.strerror}; run as root of the machine") from None
    try:
        control = directory / _LIMIT[cgroups.unified()]
        if not control.exists():
            raise Unsupported(f"limiting memory in {directory}: this machine has no memory controller for it")
        control.write_text(str(limit))
        yield MemoryCgroup(directory)
    finally:
        directory.rmdir()


def of_container(identifier: str) -> MemoryCgroup:
    """The one that a container runtime made: "containerd://<id>"."""
    (directory,) = _hierarchy().glob(f"{cgroups.subtree('*')}/**/{identifier.rpartition('/')[2]}")
    return MemoryCgroup(directory)


def _hierarchy() -> Path:
    return cgroups.ROOT if cgroups.unified() else cgroups.ROOT / "memory"
