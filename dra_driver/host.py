"""The machine that this process works for, from settings: the real one or a simulated one, and the kinds of its devices.
Everything above takes it as it is."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.hardware.driver_files import NvidiaDriverFiles
from dra_driver.hardware.driver_root import CANDIDATES, DriverRoot, below, find_driver_root
from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.errors import TellUser
from dra_driver.ports import Kind
from dra_driver.settings import Settings


@dataclass(frozen=True)
class Host:
    """`roots` are where proc, sys, dev and the driver are seen; nothing is started yet."""

    hardware: NvmlHardware
    files: NvidiaDriverFiles
    roots: HostRoots


def host(settings: Settings) -> Host:
    """A simulated machine is made if it is not there; a real one is only looked at."""
    return _simulated(settings) if settings.machine else _real(settings)


def kinds(machine: Host) -> tuple[Kind, ...]:
    """Every kind of device that can be made of it; to add one, add it here."""
    return (GpuKind(machine.hardware, machine.files),)


def _real(settings: Settings) -> Host:
    candidates = (settings.driver_root,) if settings.driver_root else CANDIDATES
    roots = HostRoots(
        proc=settings.proc_root,
        sys=settings.sys_root,
        dev=below(settings.host_root, f"{settings.dev_root}/dev"),
        driver=below(settings.host_root, settings.driver_root or "/"),
    )

    def locate() -> DriverRoot:
        return find_driver_root(candidates, settings.host_root)

    files = NvidiaDriverFiles(
        roots,
        host_dev_root=settings.dev_root or None,
        host_root=settings.host_root,
        cdi_hook=settings.cdi_hook,
        locate=locate,
    )
    return Host(NvmlHardware(roots, locate=locate, call_timeout_s=settings.nvml_timeout_s), files, roots)


def _simulated(settings: Settings) -> Host:
    from dra_driver.hardware.sim.errors import SimulationError
    from dra_driver.hardware.sim.library import SimulatedNvml
    from dra_driver.hardware.sim.simulation import SimulatedMachine

    try:
        machine = SimulatedMachine.create(settings.simulation_path, settings.machine, seed=settings.node_name)
    except SimulationError as error:
        doing = f"simulating machine {settings.machine}"
        raise TellUser(doing, str(error), "see `dra-driver machines` for the known ones") from error
    prefix = str(machine.root)
    roots = HostRoots(proc=f"{prefix}/proc", sys=f"{prefix}/sys", dev=f"{prefix}/dev", driver=prefix)

    def locate() -> DriverRoot:
        found = find_driver_root(CANDIDATES, prefix)
        # To the container runtime the simulated files lie where they are, not below its own root.
        return DriverRoot(host=found.seen, seen=found.seen)

    files = NvidiaDriverFiles(roots, host_root=settings.host_root, cdi_hook=settings.cdi_hook, locate=locate)
    hardware = NvmlHardware(
        roots, nvml_library=SimulatedNvml(settings.simulation_path), call_timeout_s=settings.nvml_timeout_s
    )
    return Host(hardware, files, roots)
