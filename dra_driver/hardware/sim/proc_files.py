"""The host's /proc as far as a GPU driver shows there."""

from __future__ import annotations

from dra_driver.hardware.sim.facts import Machine, MachineGpu
from dra_driver.hardware.sim.instance_files import access_file, write_access_files
from dra_driver.hardware.sim.layout import (
    CAPS_MAJOR,
    COMPUTE_INSTANCES,
    DRM_MAJOR,
    GPU_INSTANCES,
    IMEX_MAJOR,
    MINORS,
    NVIDIA_MAJOR,
    NVSWITCH_MAJOR,
    UVM_MAJOR,
    Layout,
    compute_instance_capability,
    gpu_instance_capability,
)
from dra_driver.hardware.sim.state import State
from dra_driver.hardware.sim.tree import drop, keep_only, put_file

_PARAMETERS = {"ResmanDebugLevel": 4294967295, "RmLogonRC": 1, "ModifyDeviceFiles": 1, "DeviceFileUID": 0} | {
    "DeviceFileGID": 0,
    "DeviceFileMode": 438,
    "InitializeSystemMemoryAllocations": 1,
    "EnableMSI": 1,
    "EnablePCIeGen3": 0,
    "MemoryPoolSize": 0,
    "EnableResizableBar": 0,
}


def write_proc(layout: Layout, state: State) -> None:
    """Brings /proc into line with the state."""
    proc, machine = layout.root / "proc", layout.machine
    put_file(proc / "sys/kernel/random/boot_id", f"{state['boot_id']}\n")
    put_file(proc / "devices", _devices(state["driver_loaded"], bool(machine.nvswitches)))
    put_file(proc / "meminfo", "MemTotal:       263783936 kB\nMemFree:        251658240 kB\n")
    if not state["driver_loaded"]:
        drop(layout.proc)
        drop(proc / "driver/nvidia-caps")
        return
    put_file(layout.proc / "version", _version(machine))
    put_file(layout.proc / "params", "".join(f"{key}: {value}\n" for key, value in _PARAMETERS.items()))
    put_file(proc / "driver/nvidia-caps/mig-minors", _mig_minors())
    put_file(layout.proc / "capabilities/mig/config", access_file(1, mode=256))
    put_file(layout.proc / "capabilities/mig/monitor", access_file(2))
    present = [gpu for gpu in machine.gpus if state["gpus"][gpu.pci]["present"]]
    for gpu in machine.gpus:
        write_access_files(layout, gpu, state)
    for gpu in present:
        put_file(layout.proc / "gpus" / gpu.pci / "information", _information(machine, gpu))
    keep_only(layout.proc / "gpus", {gpu.pci for gpu in present})


def _version(machine: Machine) -> str:
    return (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for {machine.arch}  {machine.driver_version}  Release Build"
        "  (simulated)\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )


def _information(machine: Machine, gpu: MachineGpu) -> str:
    rows = {
        "Model": gpu.product.name,
        "IRQ": 128 + gpu.minor,
        "GPU UUID": gpu.uuid,
        "Video BIOS": "96.00.00.00.01",
        "Bus Type": "PCIe",
        "DMA Size": "52 bits",
        "DMA Mask": "0xfffffffffffff",
        "Bus Location": gpu.pci,
        "Device Minor": gpu.minor,
        "GPU Firmware": machine.driver_version,
        "GPU Excluded": "No",
    }
    return "".join(f"{key + ':':<15} {value}\n" for key, value in rows.items())


def _devices(loaded: bool, nvswitches: bool) -> str:
    """Both blocks hold a number 195 and names with `nvidia` only in the first: as on a real host, read one block."""
    characters = {1: "mem", 5: "/dev/tty", 10: "misc", DRM_MAJOR: "drm"}
    if loaded:
        characters |= {NVIDIA_MAJOR: "nvidia", UVM_MAJOR: "nvidia-uvm", CAPS_MAJOR: "nvidia-caps"}
        characters |= {IMEX_MAJOR: "nvidia-caps-imex-channels"}
    if loaded and nvswitches:
        characters |= {NVSWITCH_MAJOR: "nvidia-nvswitch"}
    blocks = {7: "loop", 8: "sd", 195: "virtblk", 259: "blkext"}

    def rows(numbers: dict[int, str]) -> str:
        return "".join(f"{major:3d} {name}\n" for major, name in sorted(numbers.items()))

    return f"Character devices:\n{rows(characters)}\nBlock devices:\n{rows(blocks)}"


def _mig_minors() -> str:
    lines = ["config 1", "monitor 2"]
    for minor in range(MINORS):
        for gi in range(GPU_INSTANCES):
            lines.append(f"gpu{minor}/gi{gi}/access {gpu_instance_capability(minor, gi)}")
            lines += [
                f"gpu{minor}/gi{gi}/ci{ci}/access {compute_instance_capability(minor, gi, ci)}"
                for ci in range(COMPUTE_INSTANCES)
            ]
    return "\n".join(lines) + "\n"
