"""One process's view of a simulated machine: its initialisation, its handles, and the faults it runs into."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from dra_driver.hardware.sim.calls import Target
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import Machine, MachineGpu, machine_from_json
from dra_driver.hardware.sim.state import ANY, Fault, GpuState, State, StateFile
from dra_driver.hardware.sim.watch import ChangeWatch

SLICE_SECONDS: Final = 0.01  # how often a waiting call looks whether it may go on
_FIRST_HANDLE: Final = 0x7F5100000000  # looks like a pointer, and crashes whoever follows it
_HANDLE_STEP: Final = 0x40


class Key(NamedTuple):
    """What a handle was given out for. `token` is that of the instance, or of the event set."""

    kind: Literal["gpu", "mig", "gi", "ci", "set"]
    pci: str
    token: int
    epoch: int


@dataclass(slots=True)
class EventSet:
    """`registered`: GPU to (events after this number, of these types). `delivered`: the last number handed out."""

    watch: ChangeWatch
    registered: dict[str, tuple[int, int]] = field(default_factory=dict)
    delivered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Session:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = StateFile(directory)
        self.initialised = 0
        self.epoch = 0
        self._machine: Machine | None = None
        self._lock = threading.Lock()
        self._handles: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._event_sets: dict[int, EventSet] = {}

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            try:
                self._machine = machine_from_json((self.directory / "machine.json").read_text())
            except OSError as error:
                raise SimulationError(
                    f"opening the simulated machine in {self.directory}: {error}; create it first"
                ) from error
        return self._machine

    def present(self, state: State) -> list[MachineGpu]:
        """The GPUs that are enumerated, in NVML's order; a lost GPU still is."""
        return [gpu for gpu in self.machine.gpus if state["gpus"][gpu.pci]["present"]]

    def require_ready(self, state: State) -> None:
        if not state["library_present"]:
            raise Refused(Code.LIBRARY_NOT_FOUND)
        if not state["driver_loaded"]:
            raise Refused(Code.DRIVER_NOT_LOADED)
        if self.initialised == 0 or self.epoch != state["epoch"]:
            raise Refused(Code.UNINITIALIZED)

    def start(self, epoch: int) -> None:
        with self._lock:
            self.initialised += 1
            self.epoch = epoch

    def stop(self) -> bool:
        with self._lock:
            if self.initialised == 0:
                return False
            self.initialised -= 1
            return True

    # ---- handles

    def handle(self, kind: Literal["gpu", "mig", "gi", "ci", "set"], pci: str = "", token: int = 0) -> int:
        """The same handle for the same thing, as in the real library."""
        key = Key(kind, pci, token, self.epoch)
        with self._lock:
            if key not in self._handles:
                value = _FIRST_HANDLE + len(self._keys) * _HANDLE_STEP
                self._handles[key] = value
                self._keys[value] = key
            return self._handles[key]

    def key(self, handle: int, *kinds: str) -> Key:
        key = self._keys.get(handle)
        if key is None or key.kind not in kinds or key.epoch != self.epoch:
            raise Refused(Code.INVALID_ARGUMENT)
        return key

    def new_event_set(self) -> int:
        value = self.handle("set", token=len(self._keys))
        watch = ChangeWatch(self.directory)
        watch.start()
        self._event_sets[value] = EventSet(watch)
        return value

    def event_set(self, handle: int) -> EventSet:
        self.key(handle, "set")
        found = self._event_sets.get(handle)
        if found is None:
            raise Refused(Code.INVALID_ARGUMENT)
        return found

    def free_event_set(self, handle: int) -> None:
        self.event_set(handle).watch.stop()
        del self._event_sets[handle]

    def target(self, key: Key, state: State) -> Target:
        """What the handle stands for now: GPU_IS_LOST, or INVALID_ARGUMENT when its instance is gone."""
        gpu = self.gpu(key.pci)
        found = self.reachable(key.pci, state)
        if key.kind == "gpu":
            return Target(gpu, found)
        for gi in found["instances"]:
            if key.kind == "gi" and gi["token"] == key.token:
                return Target(gpu, found, gi)
            for ci in gi["compute"]:
                if key.kind in ("ci", "mig") and ci["token"] == key.token:
                    return Target(gpu, found, gi, ci)
        raise Refused(Code.INVALID_ARGUMENT)

    def gpu(self, pci: str) -> MachineGpu:
        return next(gpu for gpu in self.machine.gpus if gpu.pci == pci)

    def reachable(self, pci: str, state: State) -> GpuState:
        found = state["gpus"][pci]
        if found["lost"] or not found["present"]:
            raise Refused(Code.GPU_IS_LOST)
        return found

    # ---- faults

    def gate(self, state: State, symbol: str, *scopes: str) -> State:
        """Where a call meets the faults of `scopes` (ANY, a PCI address): it waits as long as told, then fails if
        told to. `state` is what the call has just read; returned is the state as it is after the wait."""
        if not state["faults"]:
            return state
        started = time.monotonic()
        while any(
            fault["kind"] == "hang" or (fault["kind"] == "delay" and time.monotonic() < started + fault["seconds"])
            for fault in self._faults(symbol, scopes)
        ):
            time.sleep(SLICE_SECONDS)
        for fault in self._faults(symbol, scopes):
            if fault["kind"] == "fail" and self._strike(fault):
                raise Refused(Code(fault["code"]))
        return self.file.read()

    def _faults(self, symbol: str, scopes: tuple[str, ...]) -> list[Fault]:
        return [
            fault
            for fault in self.file.read()["faults"]
            if fault["gpu"] in scopes and fault["call"] in (ANY, symbol, plain_name(symbol))
        ]

    def _strike(self, fault: Fault) -> bool:
        """Whether the fault still has a strike left, and uses it up."""
        if fault["times"] == 0:
            return True
        with self.file.change() as state:
            for row in state["faults"]:
                if row["id"] == fault["id"]:
                    row["times"] -= 1
                    if row["times"] == 0:
                        state["faults"].remove(row)
                    return True
        return False


def plain_name(symbol: str) -> str:
    """`nvmlDeviceGetCount` for `nvmlDeviceGetCount_v2`: the name that a person types."""
    stem, _, version = symbol.rpartition("_v")
    return stem if stem and version.isdigit() else symbol.removesuffix("V")
