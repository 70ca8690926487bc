"""`SimulatedMachine`: makes the machine in a directory, and does to it what hardware, or a person, would.

Every change goes to the state file under its lock and shows in the host root before the lock is given back, so that any
process that looks afterwards sees both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

from dra_driver.hardware.sim.changes import add_event, load, reboot, reset, unload, visible
from dra_driver.hardware.sim.codes import NO_INSTANCE, XID_EVENT, Code
from dra_driver.hardware.sim.dev_nodes import nodes_are_real, write_dev
from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import MIB, Machine, MachineGpu, machine_from_json
from dra_driver.hardware.sim.instance_files import write_table
from dra_driver.hardware.sim.layout import Layout
from dra_driver.hardware.sim.proc_files import write_proc
from dra_driver.hardware.sim.state import ANY, Fault, GpuState, State, StateFile, new_state, next_number
from dra_driver.hardware.sim.sys_files import write_sys

HealthField = Literal[
    "ecc_corrected", "ecc_uncorrected", "remap_pending", "remap_failure", "sram_threshold", "recovery_action"
]
HEALTH: Final[tuple[HealthField, ...]] = get_args(HealthField)


class SimulatedMachine:
    """The machine in `directory`. `gpu` arguments take an index in PCI order, a PCI address, or a UUID; where faults
    are meant, also `"*"` for all."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        self.directory = directory
        self.machine = machine
        self.layout = Layout(directory, machine)
        self._file = StateFile(directory)

    @classmethod
    def create(cls, directory: Path | str, machine: str | Path, *, seed: str = "") -> SimulatedMachine:
        """Makes it, or opens it with its state as it is. Raises SimulationError when another machine is there."""
        place = Path(directory)
        if StateFile(place).exists():
            there = cls.open(place)
            if there.machine.name == machine and seed in ("", there.machine.seed):
                return there  # without reading YAML: this is what an agent does at each start
        from dra_driver.hardware.sim.driver_files import write_driver
        from dra_driver.hardware.sim.machine_files import load_machine

        wanted = load_machine(machine, seed=seed)
        place.mkdir(parents=True, exist_ok=True)
        made = cls(place, wanted)
        with made._file.locked():
            if made._file.exists():
                _require_same(cls.open(place).machine, wanted, place)
                return cls.open(place)
            state = new_state(wanted)
            write_driver(made.layout, state)
            made._show(state)
            (place / "machine.json").write_text(wanted.to_json())
            made._file.write(state)  # last: what has a state is complete
        return made

    @classmethod
    def open(cls, directory: Path | str) -> SimulatedMachine:
        place = Path(directory)
        try:
            return cls(place, machine_from_json((place / "machine.json").read_text()))
        except OSError as error:
            raise SimulationError(f"opening the simulated machine in {place}: {error}; create it first") from error
        except (TypeError, KeyError, ValueError) as error:
            raise SimulationError(
                f"opening the simulated machine in {place}: machine.json is of another version ({error}); "
                "remove the directory and create the machine again"
            ) from error

    @property
    def root(self) -> Path:
        """The root of the host: /proc, /sys and /dev lie below it."""
        return self.layout.root

    @property
    def driver_root(self) -> Path:
        """Where the driver's files lie; the same as `root` unless the machine has them elsewhere."""
        return self.layout.driver_root

    @property
    def dev(self) -> Path:
        return self.layout.dev

    @property
    def device_nodes_are_real(self) -> bool:
        """Whether /dev holds character devices; where this process may not make them it holds files."""
        return nodes_are_real(self.layout)

    def state(self) -> State:
        return self._file.read()

    def gpu(self, which: str | int) -> MachineGpu:
        gpus = self.machine.gpus
        name = str(which)
        if name.isdigit() and int(name) < len(gpus):
            return gpus[int(name)]
        found = next((gpu for gpu in gpus if name in (gpu.pci, gpu.uuid, gpu.bus_id)), None)
        if found is None:
            known = ", ".join(f"{i} ({gpu.pci})" for i, gpu in enumerate(gpus))
            raise SimulationError(f"finding GPU {name!r} of {self.machine.name}: there is none; known are {known}")
        return found

    # ---- GPUs that fail, go and come back

    def lose_gpu(self, which: str | int) -> None:
        """It has fallen off the bus: still enumerated, every call on it answers GPU_IS_LOST."""
        with self._gpu_change(which) as gpu:
            gpu["lost"] = True

    def return_gpu(self, which: str | int) -> None:
        with self._gpu_change(which) as gpu:
            gpu["lost"] = False

    def remove_gpu(self, which: str | int) -> None:
        """Pulled out: gone from enumeration, /dev, /proc and /sys. Its MIG instances and processes are gone too."""
        with self._gpu_change(which) as gpu:
            reset(gpu)
            gpu["present"] = False

    def insert_gpu(self, which: str | int) -> None:
        with self._gpu_change(which) as gpu:
            gpu["present"] = True
            gpu["lost"] = False

    def reset_gpu(self, which: str | int) -> None:
        """As `nvidia-smi -r`: instances go, a pending MIG mode becomes active, a lost GPU is back."""
        with self._gpu_change(which) as gpu:
            reset(gpu)
            gpu["mig"] = gpu["mig_pending"]

    def set_mig_mode(self, which: str | int, *, enabled: bool) -> None:
        """As it was configured before anything ran: no reset is waited for."""
        if self.machine.board(self.gpu(which)) is None:
            raise SimulationError(f"setting MIG mode of GPU {which}: {self.gpu(which).product.name} has no MIG")
        with self._gpu_change(which) as gpu:
            gpu["mig"] = gpu["mig_pending"] = int(enabled)
            gpu["instances"] = []

    def set_health(self, which: str | int, field: HealthField, value: int) -> None:
        with self._gpu_change(which) as gpu:
            gpu[field] = value

    def emit_xid(self, which: str | int, xid: int, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Wakes the event sets that registered for this GPU; `gi` and `ci` when one MIG instance caused it."""
        pci = self.gpu(which).pci
        with self._change() as state:
            add_event(state, pci, XID_EVENT, xid, gi, ci)

    def start_process(
        self,
        which: str | int,
        pid: int,
        *,
        memory_mib: int = 512,
        gi: int = NO_INSTANCE,
        ci: int = NO_INSTANCE,
    ) -> None:
        """A process that uses the GPU: it shows in NVML and keeps the GPU, or its instance, in use."""
        with self._gpu_change(which) as gpu:
            gpu["processes"].append({"pid": pid, "memory": memory_mib * MIB, "gi": gi, "ci": ci})

    def end_process(self, which: str | int, pid: int) -> None:
        with self._gpu_change(which) as gpu:
            gpu["processes"] = [row for row in gpu["processes"] if row["pid"] != pid]

    # ---- calls that fail or are slow

    def fail_call(self, call: str, code: Code, *, which: str | int = ANY, times: int = 0) -> None:
        """`call` is a C symbol, with or without its version, or `"*"`; `times` 0 means until healed."""
        self._add_fault("fail", call, which, code=int(code), times=times)

    def delay_call(self, call: str, seconds: float, *, which: str | int = ANY) -> None:
        self._add_fault("delay", call, which, seconds=seconds)

    def hang_call(self, call: str, *, which: str | int = ANY) -> None:
        """The call does not return until healed."""
        self._add_fault("hang", call, which)

    def heal(self, *, call: str = ANY, which: str | int = ANY) -> None:
        """Takes back failures, delays and hangs: all, or those of one call or one GPU."""
        pci = self._scope(which)
        with self._change() as state:
            state["faults"] = [
                row for row in state["faults"] if call not in (ANY, row["call"]) or pci not in (ANY, row["gpu"])
            ]

    # ---- the host

    def reboot(self) -> None:
        """A new boot: instances, processes and compute modes are gone; Ampere keeps its MIG mode."""
        with self._change() as state:
            reboot(self.machine, state)
            for mark in self.directory.glob("timeslice.*"):
                mark.unlink()

    def unload_driver(self) -> None:
        """Whatever ran on the GPUs is gone, and so is MIG except for Ampere's mode."""
        with self._change() as state:
            unload(self.machine, state)

    def load_driver(self) -> None:
        """Whoever had initialised the library before must do so again."""
        with self._change() as state:
            load(state)

    def remove_library(self) -> None:
        """`libnvidia-ml.so` is missing, as where no driver was installed."""
        with self._change() as state:
            state["library_present"] = False

    def restore_library(self) -> None:
        with self._change() as state:
            state["library_present"] = True

    def timeslice(self, which: str | int) -> int:
        """What `nvidia-smi compute-policy --set-timeslice` last set: 0 default, 1 short, 2 medium, 3 long."""
        try:
            return int((self.directory / f"timeslice.{self.gpu(which).uuid}").read_text())
        except FileNotFoundError:
            return 0

    # ---- within

    def _scope(self, which: str | int) -> str:
        return ANY if which == ANY else self.gpu(which).pci

    def _add_fault(
        self,
        kind: Literal["fail", "delay", "hang"],
        call: str,
        which: str | int,
        *,
        code: int = 0,
        seconds: float = 0.0,
        times: int = 0,
    ) -> None:
        pci = self._scope(which)
        with self._change() as state:
            fault: Fault = {
                "id": next_number(state),
                "kind": kind,
                "call": call,
                "gpu": pci,
                "code": code,
                "seconds": seconds,
                "times": times,
            }
            state["faults"].append(fault)

    @contextmanager
    def _gpu_change(self, which: str | int) -> Iterator[GpuState]:
        pci = self.gpu(which).pci
        with self._change() as state:
            yield state["gpus"][pci]

    @contextmanager
    def _change(self) -> Iterator[State]:
        with self._file.change() as state:
            before = visible(state)
            yield state
            if visible(state) != before:
                self._show(state)

    def _show(self, state: State) -> None:
        """Brings the host root into line with the state."""
        from dra_driver.hardware.sim.driver_files import show_library

        show_library(self.layout, present=state["library_present"])
        write_table(self.layout, state)
        write_proc(self.layout, state)
        write_sys(self.layout, state)
        write_dev(self.layout, state)


def _require_same(there: Machine, wanted: Machine, place: Path) -> None:
    if there.name != wanted.name or (wanted.seed and there.seed != wanted.seed):
        raise SimulationError(
            f"creating {wanted.name} (seed {wanted.seed!r}) in {place}: it already holds {there.name} "
            f"(seed {there.seed!r}); choose another directory or remove this one"
        )
