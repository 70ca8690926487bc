"""What the kernel knows of a GPU and NVML does not say: PCIe root, NUMA node, DRI nodes; of the machine its name and the boot ID.

Reading only. A fact that is not there is None or empty: on a virtual machine most of them are missing.
"""

from __future__ import annotations

import os
import re

from dra_driver.hardware.roots import HostRoots
from dra_driver.model.errors import TellUser
from dra_driver.model.gpu import PciAddress

_PCIE_ROOT = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}$")
_DRI_NODE = re.compile(r"^(card|renderD)[0-9]+$")


def _device(roots: HostRoots, pci: PciAddress) -> str:
    return os.path.join(roots.sys, "bus/pci/devices", str(pci))


def pcie_root(roots: HostRoots, pci: PciAddress) -> str | None:
    """`pci0000:16`: the first such part of the device's real path, as `resource.kubernetes.io/pcieRoot` defines it."""
    return next((part for part in _path(roots, pci) if _PCIE_ROOT.match(part)), None)


def bridges(roots: HostRoots, pci: PciAddress) -> tuple[str, ...]:
    """Addresses of the ports and switches between PCIe root and GPU, from the root down."""
    parts = _path(roots, pci)
    start = next((number for number, part in enumerate(parts) if _PCIE_ROOT.match(part)), len(parts))
    return tuple(parts[start + 1 : -1])


def _path(roots: HostRoots, pci: PciAddress) -> list[str]:
    """Parts of the device's real path below /sys/devices; empty when sysfs does not know it."""
    devices = os.path.realpath(os.path.join(roots.sys, "devices"))
    path = os.path.realpath(_device(roots, pci))
    return path[len(devices) + 1 :].split("/") if path.startswith(devices + "/") else []


def numa_node(roots: HostRoots, pci: PciAddress) -> int | None:
    """The CPU node next to the GPU; None where the kernel says -1 (virtual machines, one-node machines)."""
    try:
        with open(os.path.join(_device(roots, pci), "numa_node"), encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def pci_class(roots: HostRoots, pci: PciAddress) -> str:
    """`0x030200` is a 3D controller, `0x030000` a VGA one; empty when sysfs does not know it."""
    return _line(os.path.join(_device(roots, pci), "class"))


def machine_product(roots: HostRoots) -> str:
    """What the firmware calls this machine; empty where it says nothing, as on most ARM boards."""
    return _line(os.path.join(roots.sys, "class/dmi/id/product_name"))


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def dri_nodes(roots: HostRoots, pci: PciAddress) -> tuple[str, ...]:
    """`("card1", "renderD128")`: names below /dev/dri, sorted; empty without the nvidia-drm kernel module."""
    try:
        names = os.listdir(os.path.join(_device(roots, pci), "drm"))
    except OSError:
        return ()
    return tuple(sorted(name for name in names if _DRI_NODE.match(name)))


def boot_id(roots: HostRoots) -> str:
    """The kernel's ID of this boot. TellUser when it cannot be read: without it no record can be told from one of an
    earlier boot."""
    path = os.path.join(roots.proc, "sys/kernel/random/boot_id")
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except (OSError, ValueError) as error:
        raise TellUser(
            f"reading the boot ID from {path}", str(error), "check the setting for the host's /proc"
        ) from error
    if not text:
        raise TellUser(
            f"reading the boot ID from {path}", "the file is empty", "check the setting for the host's /proc"
        )
    return text
