"""The host's /sys as far as GPUs show there: PCI devices in their place in the tree, DRM nodes, IOMMU groups."""

from __future__ import annotations

import os
from pathlib import Path

from dra_driver.hardware.sim.facts import MachineGpu
from dra_driver.hardware.sim.layout import Layout
from dra_driver.hardware.sim.state import State
from dra_driver.hardware.sim.tree import drop, put_file, put_link


def drm_numbers(index: int) -> tuple[int, int]:
    """card and renderD of the GPU at `index`: card0 is the server's own display."""
    return index + 1, index + 128


def write_sys(layout: Layout, state: State) -> None:
    """Brings /sys into line with the state: a removed GPU leaves it, an unloaded driver lets go."""
    sys = layout.root / "sys"
    put_file(sys / "module/firmware_class/parameters/path", "\n")
    put_file(sys / "class/dmi/id/product_name", f"Simulated {layout.machine.name}\n")
    module = sys / "module/nvidia/version"
    if state["driver_loaded"]:
        put_file(module, f"{layout.machine.driver_version}\n")
        (sys / "bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
    else:
        drop(module.parent)
    for index, gpu in enumerate(layout.machine.gpus):
        if state["gpus"][gpu.pci]["present"]:
            _put_gpu(sys, gpu, index, bound=state["driver_loaded"])
        else:
            _drop_gpu(sys, gpu, index)


def _device(sys: Path, gpu: MachineGpu) -> Path:
    bridges = gpu.bridges or (f"{gpu.pcie_root[3:]}:01.0",)
    return sys.joinpath("devices", gpu.pcie_root, *bridges, gpu.pci)


def _put_gpu(sys: Path, gpu: MachineGpu, index: int, *, bound: bool) -> None:
    device = _device(sys, gpu)
    for name, value in {
        "vendor": "0x10de",
        "device": f"0x{gpu.product.pci_device_id >> 16:04x}",
        "subsystem_vendor": "0x10de",
        "subsystem_device": f"0x{gpu.product.pci_subsystem_id >> 16:04x}",
        "class": "0x030000" if gpu.product.brand == "geforce" else "0x030200",  # VGA, or a 3D controller
        "numa_node": str(gpu.numa_node),
        "sriov_numvfs": "0",
    }.items():
        put_file(device / name, f"{value}\n")
    _relative(sys / "bus/pci/devices" / gpu.pci, device)
    group = sys / "kernel/iommu_groups" / str(index + 20)
    _relative(device / "iommu_group", group)
    _relative(group / "devices" / gpu.pci, device)
    driver = sys / "bus/pci/drivers/nvidia"
    card, render = drm_numbers(index)
    if bound:
        _relative(device / "driver", driver)
        _relative(driver / gpu.pci, device)
        put_file(device / f"drm/card{card}/dev", f"226:{card}\n")
        put_file(device / f"drm/renderD{render}/dev", f"226:{render}\n")
    else:
        for path in (device / "driver", driver / gpu.pci, device / "drm"):
            drop(path)


def _drop_gpu(sys: Path, gpu: MachineGpu, index: int) -> None:
    links = (sys / "bus/pci/devices" / gpu.pci, sys / "bus/pci/drivers/nvidia" / gpu.pci)
    for path in (*links, sys / "kernel/iommu_groups" / str(index + 20), _device(sys, gpu)):
        drop(path)


def _relative(link: Path, target: Path) -> None:
    put_link(link, os.path.relpath(target, link.parent))
