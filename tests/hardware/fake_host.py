"""Driver roots as installers leave them, in a temporary directory."""

from __future__ import annotations

from pathlib import Path

from dra_driver.hardware.roots import HostRoots
from dra_driver.model.gpu import Gpu, PciAddress

VERSION = "580.126.20"


class FakeHost:
    """A host in a directory. `write("/usr/bin/x")` makes a file, `link("/lib", "usr/lib")` a symbolic link."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = str(path)

    def write(self, *names: str, content: bytes = b"x") -> FakeHost:
        for name in names:
            file = self.path / name.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return self

    def link(self, name: str, target: str) -> FakeHost:
        file = self.path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)
        return self

    def remove(self, name: str) -> None:
        (self.path / name.lstrip("/")).unlink()

    def driver(self, directory: str, version: str = VERSION, binaries: str = "/usr/bin") -> FakeHost:
        """A small driver: libraries with their links, two programs, firmware, a control node."""
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-opticalflow", "libnvidia-ptxjitcompiler"):
            self.write(f"{directory}/{stem}.so.{version}")
            self.link(f"{directory}/{stem}.so.1", f"{stem}.so.{version}")
        self.link(f"{directory}/libcuda.so", "libcuda.so.1")
        self.write(f"{directory}/libnvidia-egl-gbm.so.1.1.2", f"{directory}/vdpau/libvdpau_nvidia.so.{version}")
        self.write(f"{directory}/libc.so.6", f"{directory}/libcuda.so.1.0.0.unrelated")
        self.write(f"{binaries}/nvidia-smi", f"{binaries}/nvidia-cuda-mps-control")
        self.write(f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin", f"/lib/firmware/nvidia/{version}/readme")
        return self

    def nodes(self, *names: str) -> FakeHost:
        return self.write(*(f"/dev/{name}" for name in names))

    def roots(self) -> HostRoots:
        return HostRoots(proc=f"{self.root}/proc", sys=f"{self.root}/sys", dev=f"{self.root}/dev", driver=self.root)


def make_gpu(minor: int = 0, pci: str = "0000:1b:00.0") -> Gpu:
    return Gpu(
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        pci=PciAddress.parse(pci),
        index=0,
        minor=minor,
        product_name="NVIDIA L4",
        brand="Nvidia",
        architecture="Ada Lovelace",
        compute_capability=(8, 9),
        memory_bytes=1,
        driver_version=VERSION,
        cuda_version=(13, 0),
    )
