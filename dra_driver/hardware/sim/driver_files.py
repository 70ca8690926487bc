"""What an installed driver leaves on a host: libraries with their links, firmware, programs, settings, sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.elf import shared_object
from dra_driver.hardware.sim.instance_files import table
from dra_driver.hardware.sim.layout import Layout
from dra_driver.hardware.sim.nvidia_smi import put_nvidia_smi
from dra_driver.hardware.sim.state import State
from dra_driver.hardware.sim.tree import drop, put_file, put_link

# Name without version, and the suffix of its SONAME; "" where the SONAME carries the driver's version.
_LIBRARIES: Final = {
    "libcuda": "1",
    "libcudadebugger": "1",
    "libnvcuvid": "1",
    "libnvidia-allocator": "1",
    "libnvidia-api": "1",
    "libnvidia-cfg": "1",
    "libnvidia-encode": "1",
    "libnvidia-fbc": "1",
    "libnvidia-ml": "1",
    "libnvidia-ngx": "1",
    "libnvidia-nvvm": "4",
    "libnvidia-opencl": "1",
    "libnvidia-opticalflow": "1",
    "libnvidia-ptxjitcompiler": "1",
    "libnvidia-sandboxutils": "1",
    "libnvoptix": "1",
    "libGLX_nvidia": "0",
    "libEGL_nvidia": "0",
    "libGLESv1_CM_nvidia": "1",
    "libGLESv2_nvidia": "2",
    "libnvidia-eglcore": "",
    "libnvidia-glcore": "",
    "libnvidia-glsi": "",
    "libnvidia-glvkspirv": "",
    "libnvidia-gpucomp": "",
    "libnvidia-pkcs11": "",
    "libnvidia-pkcs11-openssl3": "",
    "libnvidia-rtcore": "",
    "libnvidia-tls": "",
    "vdpau/libvdpau_nvidia": "1",
}
_OWN_VERSIONS: Final = {"libnvidia-egl-gbm": ("1", "1.1.2"), "libnvidia-egl-wayland": ("1", "1.1.19")}
_LINKED_FOR_BUILDING: Final = (
    "libcuda",
    "libnvidia-ml",
    "libnvidia-opticalflow",
    "libnvcuvid",
    "libnvidia-encode",
)
_PROGRAMS: Final = (
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_ICD: Final = '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n'


def write_driver(layout: Layout, state: State) -> None:
    """All that does not change while the machine runs."""
    version, root = layout.machine.driver_version, layout.driver_root
    for name, suffix in _LIBRARIES.items():
        _put_library(layout, name, version, suffix, table(layout, state) if name == "libnvidia-ml" else b"")
    for name, (suffix, own_version) in _OWN_VERSIONS.items():
        _put_library(layout, name, own_version, suffix, b"")
    for firmware in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        put_file(root / "lib/firmware/nvidia" / version / firmware, f"simulated {firmware} {version}\n")
    for path, text in {
        "etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
        "etc/vulkan/icd.d/nvidia_icd.json": _ICD % "libGLX_nvidia.so.0",
        "etc/vulkan/implicit_layer.d/nvidia_layers.json": '{"file_format_version": "1.0.0", "layers": []}\n',
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json": _ICD % "libEGL_nvidia.so.0",
        "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json": _ICD % "libnvidia-egl-gbm.so.1",
        "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json": _ICD % "libnvidia-egl-wayland.so.1",
        "usr/share/nvidia/nvoptix.bin": "simulated\n",
    }.items():
        put_file(root / path, text)
    imex = ("nvidia-imex", "nvidia-imex-ctl") if layout.machine.platform else ()
    put_nvidia_smi(root / "usr/bin", (*_PROGRAMS, *imex))
    _put_socket(root / "run/nvidia-persistenced/socket")
    if layout.machine.nvswitches:
        _put_socket(root / "run/nvidia-fabricmanager/socket")


def _put_library(layout: Layout, name: str, version: str, suffix: str, trailer: bytes) -> None:
    path = layout.libraries / f"{name}.so.{version}"
    soname = f"{path.name.split('.so.')[0]}.so.{suffix or version}"
    put_file(path, shared_object(soname, layout.machine.arch, trailer), 0o755)
    if suffix:
        put_link(path.parent / soname, path.name)
    if name in _LINKED_FOR_BUILDING:
        put_link(path.parent / f"{name}.so", soname)


def show_library(layout: Layout, *, present: bool) -> None:
    """Takes the management library away with its links, or puts it back."""
    here, away = layout.management_library, layout.put_away
    links = {
        f"{here.parent}/libnvidia-ml.so.1": here.name,
        f"{here.parent}/libnvidia-ml.so": "libnvidia-ml.so.1",
    }
    if present and away.exists():
        away.replace(here)
        for link, target in links.items():
            put_link(Path(link), target)
    elif not present and here.exists():
        away.parent.mkdir(exist_ok=True)
        here.replace(away)
        for link in links:
            drop(Path(link))


def _put_socket(path: Path) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:  # through /proc: a socket address has room for 107 bytes only
            listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
