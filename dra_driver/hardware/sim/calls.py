"""The table row of one simulated C function, and what the first argument of each kind of function stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dra_driver.hardware.sim.facts import MachineGpu
from dra_driver.hardware.sim.state import ComputeInstance, GpuInstance, GpuState


class Subject(Enum):
    """What a call is about, which decides what is checked before it runs."""

    LIBRARY = "the library itself: works before nvmlInit"
    SYSTEM = "the system, or a device that the call itself looks up"
    DEVICE = "a device handle, of a GPU or of a MIG device"
    GPU_INSTANCE = "a GPU instance handle"
    COMPUTE_INSTANCE = "a compute instance handle"


@dataclass(frozen=True, slots=True)
class Target:
    """What a handle stands for now. A MIG device has both instances, a GPU neither."""

    gpu: MachineGpu
    state: GpuState
    gi: GpuInstance | None = None
    ci: ComputeInstance | None = None

    @property
    def is_mig(self) -> bool:
        return self.ci is not None

    @property
    def instance(self) -> GpuInstance:
        assert self.gi is not None, "only for subjects with a GPU instance"
        return self.gi

    @property
    def compute(self) -> ComputeInstance:
        assert self.ci is not None, "only for subjects with a compute instance"
        return self.ci


@dataclass(frozen=True, slots=True)
class Call:
    """`function(session, [target,] *arguments)` answers None for success, raises Refused for any other code.

    `since`: the driver branch that brought the symbol. `mig`: it also takes the handle of a MIG device; the others
    answer NOT_SUPPORTED to one.
    """

    symbol: str
    function: Callable[..., Any]
    subject: Subject = Subject.DEVICE
    since: int = 0
    mig: bool = False
