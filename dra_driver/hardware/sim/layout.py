"""Where things lie below the root of a simulated host, and the numbers the driver gives them. Paths only, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.facts import Machine

NVIDIA_MAJOR: Final = 195  # fixed; the others are dynamic on a real host and only need to differ
UVM_MAJOR: Final = 510
CAPS_MAJOR: Final = 237
IMEX_MAJOR: Final = 236
NVSWITCH_MAJOR: Final = 235
DRM_MAJOR: Final = 226
MINORS: Final = 32  # GPUs that the static capability table has room for
GPU_INSTANCES: Final = 15
COMPUTE_INSTANCES: Final = 8


@dataclass(frozen=True, slots=True)
class Layout:
    directory: Path
    machine: Machine

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def driver_root(self) -> Path:
        return self.root / self.machine.driver_root.lstrip("/")

    @property
    def dev(self) -> Path:
        return self.root / self.machine.dev_root.lstrip("/") / "dev"

    @property
    def libraries(self) -> Path:
        return self.driver_root / "usr/lib" / f"{self.machine.arch}-linux-gnu"

    @property
    def management_library(self) -> Path:
        return self.libraries / f"libnvidia-ml.so.{self.machine.driver_version}"

    @property
    def put_away(self) -> Path:
        """Where the management library waits while it is missing."""
        return self.directory / "put-away" / self.management_library.name

    @property
    def proc(self) -> Path:
        return self.root / "proc/driver/nvidia"


def gpu_instance_capability(minor: int, gi: int) -> int:
    """The minor of nvidia-cap<N> of a GPU instance: the static numbering of `/proc/driver/nvidia-caps/mig-minors`."""
    return 3 + (minor * GPU_INSTANCES + gi) * (COMPUTE_INSTANCES + 1)


def compute_instance_capability(minor: int, gi: int, ci: int) -> int:
    return gpu_instance_capability(minor, gi) + 1 + ci
