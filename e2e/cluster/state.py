"""What a cluster has made outside its directory, on record before it exists, so that any later run can end it.

Interfaces and cgroups have names derived from the cluster's; recorded are the subnet and the processes. Mounts and
network namespaces need no record: they exist as long as recorded processes do.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import ClusterError
from e2e.cluster.identity import Identity


class State:
    """The state file of one cluster. A change is in the file, whole, before the call returns."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "state.json"
        self._changing = threading.Lock()  # nodes come up in parallel

    @property
    def exists(self) -> bool:
        return self._file.exists()

    @property
    def complete(self) -> bool:
        """Whether `up` came to its end."""
        return bool(self._read()["complete"])

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = self._read()["options"]
        return options

    @property
    def subnet(self) -> str:
        """First three numbers of the cluster's /24: "10.213.0"; empty for one whose network is not ours (kind)."""
        return str(self._read().get("subnet", ""))

    @property
    def programs(self) -> dict[str, Path]:
        """What the cluster was started with; a later build does not change a running cluster."""
        return {name: Path(place) for name, place in self._read()["programs"].items()}

    def create(self, options: Mapping[str, Any], subnet: str, programs: Mapping[str, Path]) -> None:
        places = {name: str(place) for name, place in programs.items()}
        state = {"options": options, "subnet": subnet, "programs": places, "complete": False, "processes": {}}
        with self._changing:
            self._write(state)

    def finish(self) -> None:
        with self._changing:
            self._write({**self._read(), "complete": True})

    def put(self, process: str, identity: Identity) -> None:
        """`process` is "<machine>" for a machine's process 1, "<machine>/<daemon>" for what runs on it."""
        with self._changing:
            state = self._read()
            state["processes"][process] = [identity.pid, identity.started]
            self._write(state)

    def forget(self, process: str) -> None:
        """Of a process that has ended, and is not to be started again."""
        with self._changing:
            state = self._read()
            state["processes"].pop(process, None)
            self._write(state)

    def process(self, process: str) -> Identity | None:
        return self.processes().get(process)

    def processes(self) -> dict[str, Identity]:
        return {name: Identity(*pair) for name, pair in self._read()["processes"].items()}

    def _read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise ClusterError(f"reading {self._file}: there is no such cluster; bring it up first") from None
        return state

    def _write(self, state: Mapping[str, Any]) -> None:
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(state, indent=1))
        os.replace(unfinished, self._file)


@contextmanager
def exclusively(lock: Path, doing: str, *, patiently: bool = False) -> Iterator[None]:
    """Hold a lock file, which is gone afterwards; ClusterError where another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = lock.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if patiently else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            raise ClusterError(f"{doing}: another process is at it ({lock} is locked); wait for its end") from None
        if lock.exists() and os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
            break
        file.close()  # its last holder removed it between our opening and locking
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()
