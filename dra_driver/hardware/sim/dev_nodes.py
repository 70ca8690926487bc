"""The host's /dev: character device nodes where this process may make them, files in their place where not."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from dra_driver.hardware.sim.layout import (
    CAPS_MAJOR,
    DRM_MAJOR,
    NVIDIA_MAJOR,
    NVSWITCH_MAJOR,
    UVM_MAJOR,
    Layout,
)
from dra_driver.hardware.sim.state import State
from dra_driver.hardware.sim.sys_files import drm_numbers
from dra_driver.hardware.sim.tree import drop, put_link


class Node(NamedTuple):
    path: str
    major: int
    minor: int
    mode: int = 0o666


def write_dev(layout: Layout, state: State) -> None:
    """Brings /dev into line with the state. Nodes of MIG instances are not made: the host's need not exist, and often
    do not, so that whoever needs one must make it from the numbers in /proc."""
    for node in _common(layout):
        _put(layout.dev, node)
    for index, gpu in enumerate(layout.machine.gpus):
        card, render = drm_numbers(index)
        nodes = (
            Node(f"nvidia{gpu.minor}", NVIDIA_MAJOR, gpu.minor),
            Node(f"dri/card{card}", DRM_MAJOR, card, 0o660),
            Node(f"dri/renderD{render}", DRM_MAJOR, render),
        )
        links = {f"pci-{gpu.pci}-card": f"../card{card}", f"pci-{gpu.pci}-render": f"../renderD{render}"}
        present = state["gpus"][gpu.pci]["present"]
        for node in nodes:
            if present:
                _put(layout.dev, node)
            else:
                drop(layout.dev / node.path)
        for name, target in links.items():
            if present:
                put_link(layout.dev / "dri/by-path" / name, target)
            else:
                drop(layout.dev / "dri/by-path" / name)


def nodes_are_real(layout: Layout) -> bool:
    return stat.S_ISCHR(os.stat(layout.dev / "nvidiactl").st_mode)


def _common(layout: Layout) -> tuple[Node, ...]:
    nodes = [
        Node("nvidiactl", NVIDIA_MAJOR, 255),
        Node("nvidia-modeset", NVIDIA_MAJOR, 254),
        Node("nvidia-uvm", UVM_MAJOR, 0),
        Node("nvidia-uvm-tools", UVM_MAJOR, 1),
    ]
    if any(layout.machine.board(gpu) for gpu in layout.machine.gpus):
        nodes += [
            Node("nvidia-caps/nvidia-cap1", CAPS_MAJOR, 1, 0o400),
            Node("nvidia-caps/nvidia-cap2", CAPS_MAJOR, 2, 0o444),
        ]
    if layout.machine.nvswitches:
        nodes.append(Node("nvidia-nvswitchctl", NVSWITCH_MAJOR, 255))
        nodes += [Node(f"nvidia-nvswitch{n}", NVSWITCH_MAJOR, n) for n in range(len(layout.machine.nvswitches))]
    return tuple(nodes)


def _put(dev: Path, node: Node) -> None:
    path = dev / node.path
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | node.mode, os.makedev(node.major, node.minor))
    except OSError:  # not root, or no CAP_MKNOD
        path.write_text(f"c {node.major}:{node.minor}\n")
    path.chmod(node.mode)
