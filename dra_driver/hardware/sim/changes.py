"""What happens to a machine, as changes of its state: no file, no lock, no clock."""

from __future__ import annotations

from dra_driver.hardware.sim.facts import Machine
from dra_driver.hardware.sim.identity import new_boot_id
from dra_driver.hardware.sim.state import Event, GpuState, State, next_number

_KEPT_EVENTS = 256


def visible(state: State) -> str:
    """All of the state that shows in files; faults and events do not."""
    gpus = [(gpu["present"], gpu["lost"], gpu["mig"], gpu["instances"]) for gpu in state["gpus"].values()]
    return repr((state["boot_id"], state["driver_loaded"], state["library_present"], gpus))


def reset(gpu: GpuState) -> None:
    gpu["lost"] = False
    gpu["compute_mode"] = gpu["persistence"] = 0
    gpu["instances"] = []
    gpu["processes"] = []
    gpu["remap_pending"] = gpu["recovery_action"] = 0


def unload(machine: Machine, state: State) -> None:
    """With the kernel driver go instances, processes and modes; only Ampere keeps its MIG mode, and activates a
    pending one."""
    state["driver_loaded"] = False
    for gpu in machine.gpus:
        found, board = state["gpus"][gpu.pci], machine.board(gpu)
        lost = found["lost"]
        reset(found)
        found["lost"] = lost
        kept = found["mig_pending"] if board and board.reset_to_enable else 0
        found["mig"] = found["mig_pending"] = kept


def load(state: State) -> None:
    if not state["driver_loaded"]:
        state["epoch"] += 1
    state["driver_loaded"] = True


def reboot(machine: Machine, state: State) -> None:
    """Brings lost GPUs back; a removed one stays away."""
    unload(machine, state)
    load(state)
    state["boot_id"] = new_boot_id()
    for found in state["gpus"].values():
        found["lost"] = False


def add_event(state: State, pci: str, kind: int, data: int, gi: int, ci: int) -> None:
    event: Event = {"seq": next_number(state), "gpu": pci, "type": kind, "data": data, "gi": gi, "ci": ci}
    state["events"].append(event)
    del state["events"][:-_KEPT_EVENTS]
