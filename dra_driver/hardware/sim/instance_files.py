"""What of MIG shows on the host: `access` files of instances, and the table that nvidia-smi reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.facts import Machine, MachineGpu
from dra_driver.hardware.sim.layout import Layout, compute_instance_capability, gpu_instance_capability
from dra_driver.hardware.sim.mig_rules import device_name, mig_devices
from dra_driver.hardware.sim.state import State
from dra_driver.hardware.sim.tree import drop, keep_only, put_file

TABLE_BYTES: Final = 32768  # fixed, so that the file changes in place and bind mounts of it see the change
TABLE_MARK: Final = "\nNVIDIA-SIM-TABLE 1\n"


def show_instances(directory: Path, machine: Machine, gpu: MachineGpu, state: State) -> None:
    layout = Layout(directory, machine)
    write_access_files(layout, gpu, state)
    write_table(layout, state)


def access_file(minor: int, mode: int = 292) -> str:
    """As in procfs; the mode is decimal (292 is 0444)."""
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"


def write_access_files(layout: Layout, gpu: MachineGpu, state: State) -> None:
    """`capabilities/gpu<minor>/mig/gi<G>/access` and `.../ci<C>/access`, by minor and not by index."""
    found = state["gpus"][gpu.pci]
    directory = layout.proc / "capabilities" / f"gpu{gpu.minor}"
    if not (state["driver_loaded"] and found["present"] and found["mig"]):
        drop(directory)
        return
    mig = directory / "mig"
    mig.mkdir(parents=True, exist_ok=True)
    keep_only(mig, {f"gi{gi['id']}" for gi in found["instances"]})
    for gi in found["instances"]:
        place = mig / f"gi{gi['id']}"
        put_file(place / "access", access_file(gpu_instance_capability(gpu.minor, gi["id"])))
        keep_only(place, {"access", *(f"ci{ci['id']}" for ci in gi["compute"])})
        for ci in gi["compute"]:
            number = compute_instance_capability(gpu.minor, gi["id"], ci["id"])
            put_file(place / f"ci{ci['id']}" / "access", access_file(number))


def table(layout: Layout, state: State) -> bytes:
    """The rows that `nvidia_smi.c` describes, padded to a fixed length."""
    machine = layout.machine
    cuda = f"{machine.cuda_version // 1000}.{machine.cuda_version % 1000 // 10}"
    rows = [("driver", machine.driver_version, cuda, int(state["driver_loaded"]), layout.directory.resolve())]
    lines = ["\t".join(str(field) for field in row) for row in rows]
    for gpu in machine.gpus:
        found = state["gpus"][gpu.pci]
        if not found["present"]:
            continue
        condition = "lost" if found["lost"] else "ok"
        fields = ("gpu", gpu.minor, gpu.bus_id, gpu.uuid, gpu.product.memory_mib, condition, gpu.product.name)
        lines.append("\t".join(str(field) for field in fields))
        board = machine.board(gpu)
        for index, (gi, ci) in enumerate(mig_devices(found) if board else ()):
            assert board is not None
            caps = (
                gpu_instance_capability(gpu.minor, gi["id"]),
                compute_instance_capability(gpu.minor, gi["id"], ci["id"]),
            )
            row = ("mig", gpu.minor, index, ci["uuid"], *caps, device_name(board, gi, ci))
            lines.append("\t".join(str(field) for field in row))
    text = TABLE_MARK + "\n".join([*lines, "end", ""])
    return text.encode().ljust(TABLE_BYTES, b"\n")


def write_table(layout: Layout, state: State) -> None:
    path = layout.management_library if state["library_present"] else layout.put_away
    with open(path, "r+b") as file:
        file.seek(-TABLE_BYTES, 2)
        file.write(table(layout, state))
