"""What changes while a simulated machine runs: one small JSON file that every process reads and any may change.

Readers compare the file's stat signature and parse only what is new. Writers hold a lock file, replace the file in one
step, and give it a modification time later than any before, so that no two versions share a signature.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, cast

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import Machine
from dra_driver.hardware.sim.identity import new_boot_id

ANY: Final = "*"  # any GPU, or any call
_TIME_STEP: Final = 1_000  # ns; filesystems keep at least this


class ComputeInstance(TypedDict):
    id: int
    profile: int
    start: int
    size: int
    uuid: str
    token: int  # never used twice, so that a handle to a destroyed instance cannot come back to life


class GpuInstance(TypedDict):
    id: int
    profile: int
    start: int
    size: int
    token: int
    compute: list[ComputeInstance]


class Process(TypedDict):
    pid: int
    memory: int  # bytes
    gi: int
    ci: int


class GpuState(TypedDict):
    present: bool
    lost: bool
    compute_mode: int
    persistence: int
    mig: int
    mig_pending: int
    instances: list[GpuInstance]
    processes: list[Process]
    ecc_corrected: int
    ecc_uncorrected: int
    remap_pending: int
    remap_failure: int
    sram_threshold: int
    recovery_action: int


class Fault(TypedDict):
    id: int
    kind: Literal["fail", "delay", "hang"]
    call: str
    gpu: str
    code: int
    seconds: float
    times: int  # how often it still strikes; 0 is without end


class Event(TypedDict):
    seq: int
    gpu: str
    type: int
    data: int
    gi: int
    ci: int


class State(TypedDict):
    boot_id: str
    epoch: int  # grows when the driver is loaded anew: what was initialised before is so no more
    driver_loaded: bool
    library_present: bool
    gpus: dict[str, GpuState]  # by PCI address, in the order of the machine
    faults: list[Fault]
    events: list[Event]
    last_number: int  # the last token, fault id or event number given out


def new_gpu() -> GpuState:
    return {
        "present": True,
        "lost": False,
        "compute_mode": 0,
        "persistence": 0,
        "mig": 0,
        "mig_pending": 0,
        "instances": [],
        "processes": [],
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remap_pending": 0,
        "remap_failure": 0,
        "sram_threshold": 0,
        "recovery_action": 0,
    }


def new_state(machine: Machine) -> State:
    return {
        "boot_id": new_boot_id(),
        "epoch": 1,
        "driver_loaded": True,
        "library_present": True,
        "gpus": {gpu.pci: new_gpu() for gpu in machine.gpus},
        "faults": [],
        "events": [],
        "last_number": 0,
    }


def next_number(state: State) -> int:
    state["last_number"] += 1
    return state["last_number"]


class StateFile:
    """`<directory>/state.json`, guarded by `<directory>/lock`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = str(directory / "state.json")
        self._seen: tuple[tuple[int, int, int], State] | None = None

    def exists(self) -> bool:
        return os.path.exists(self._path)

    def read(self) -> State:
        """The state as it is now. It is shared between callers: look, do not touch."""
        signature = self._signature()
        seen = self._seen
        if seen is not None and seen[0] == signature:
            return seen[1]
        state = self._parse()
        # A signature taken before the file was read can only be too old: the next call then reads again.
        self._seen = (signature, state)
        return state

    @contextmanager
    def change(self) -> Iterator[State]:
        """A private copy of the state, written when the block ends well; other writers wait meanwhile."""
        with self.locked():
            state = self._parse()
            yield state
            self.write(state)

    @contextmanager
    def locked(self) -> Iterator[None]:
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def write(self, state: State) -> None:
        """Replaces the file; only under the lock."""
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(state, file, separators=(",", ":"))
        written = os.stat(temporary).st_mtime_ns
        before = os.stat(self._path).st_mtime_ns if self.exists() else 0
        later = max(written, before + _TIME_STEP)
        os.utime(temporary, ns=(later, later))
        os.replace(temporary, self._path)

    def _signature(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise SimulationError(
                f"reading the simulated machine in {self.directory}: {error}; create it first"
            ) from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _parse(self) -> State:
        try:
            with open(self._path, encoding="utf-8") as file:
                wire: Any = json.load(file)
        except (OSError, ValueError) as error:
            raise SimulationError(
                f"reading the simulated machine in {self.directory}: {error}; create it first"
            ) from error
        return cast(State, wire)
