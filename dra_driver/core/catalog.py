"""The catalog: which devices this node promises now. One refresh, used by publishing, preparing and recovering."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from dra_driver.model.device import Device, Taint
from dra_driver.model.gpu import Inventory
from dra_driver.ports import Advertised, Hardware, Kind, Neighbours, Telemetry

log = logging.getLogger(__name__)


def advertised(kinds: Sequence[Kind], inventory: Inventory) -> dict[str, Device]:
    """All devices of all kinds by name, sorted. Pure."""
    devices = [device for kind in kinds for device in kind.advertise(inventory)]
    return {device.name: device for device in sorted(devices, key=lambda device: device.name)}


def with_lost(
    now: Mapping[str, Device], before: Mapping[str, Device], held: Callable[[str], bool], taint_key: str
) -> dict[str, Device]:
    """Keeps devices that vanished while a claim holds them, tainted: an allocated device must stay published until it is
    released, else its allocation is forgotten by whoever counts (upstream allocator semantics). Pure."""
    lost = Taint(key=taint_key, value="lost", effect="NoSchedule")
    kept = {
        name: dataclasses.replace(device, taints=(lost,))
        for name, device in before.items()
        if name not in now and held(name)
    }
    return dict(sorted({**now, **kept}.items()))


def with_taken(devices: Mapping[str, Device], taken: Collection[str], taint_key: str) -> dict[str, Device]:
    """Keeps the scheduler from devices that are not for claims now, by UUID. Pure."""
    taint = Taint(key=taint_key, value="taken", effect="NoSchedule")
    return {
        name: dataclasses.replace(device, taints=(*device.taints, taint)) if uuid(device) in taken else device
        for name, device in devices.items()
    }


def uuid(device: Device) -> str:
    """Empty for a device that has yet to be made."""
    return str(device.attributes.get("uuid", ""))


class Catalog:
    """Holds the last answer; `refresh` asks the hardware again. Reading it costs nothing."""

    def __init__(
        self,
        hardware: Hardware,
        kinds: Sequence[Kind],
        held: Callable[[str], bool],
        telemetry: Telemetry,
        neighbours: Neighbours,
        taint_domain: str,
        advertised_before: Advertised,
    ) -> None:
        """`taint_domain` is the part of the taints' keys before the slash: the driver's name."""
        self._hardware = hardware
        self._kinds = kinds
        self._held = held
        self._telemetry = telemetry
        self._neighbours = neighbours
        self._taint_domain = taint_domain
        self._advertised_before = advertised_before
        self._refreshing = threading.Lock()
        self._devices: Mapping[str, Device] = {}
        self._lost: frozenset[str] = frozenset()
        self._addresses: dict[str, str] = {}
        self._complaints: frozenset[str] = frozenset()
        self.inventory: Inventory | None = None

    def look_ahead(self) -> None:
        """For who is about to prepare several devices: as `ports.Hardware` says."""
        self._hardware.look_ahead()

    @property
    def devices(self) -> Mapping[str, Device]:
        return self._devices

    @property
    def present(self) -> Mapping[str, Device]:
        """Those that exist: without the ones that are only kept because a claim holds them."""
        return {name: device for name, device in self._devices.items() if name not in self._lost}

    def why_absent(self, name: str) -> str:
        """What may explain that a device is not present, in words: it may come back. Empty when nothing does."""
        inventory = self.inventory
        if inventory is None:
            return ""
        if inventory.driver_problem:
            return inventory.driver_problem
        where = self._addresses.get(name)
        # Who has not seen the device since the start cannot tell which of the GPUs in trouble it sits on.
        problems = [problem for problem in inventory.problems if where in (None, problem.where)]
        if not problems and name in self._lost:
            return "its GPU was there and is gone"
        return "; ".join(f"GPU {problem.where}: {problem.why}" for problem in problems)

    def refresh(self) -> Sequence[Device]:
        """Reads the hardware, reports what is newly wrong or right again, and returns all devices to publish."""
        with self._refreshing:
            inventory = self._hardware.inventory()
            now = advertised(self._kinds, inventory)
            before = self._devices if self.inventory is not None else self._advertised_before.recall()
            devices = with_lost(now, before, self._held, f"{self._taint_domain}/gpu-lost")
            self._lost = frozenset(devices) - frozenset(now)
            taken = self._neighbours.look(inventory)
            self._devices = with_taken(devices, taken, f"{self._taint_domain}/device-plugin")
            self._addresses |= {name: str(device.gpu) for name, device in now.items()}
            self.inventory = inventory
            self._advertised_before.remember(self._devices.values())
            self._report(inventory, len(now))
            return tuple(self._devices.values())

    def _report(self, inventory: Inventory, published: int) -> None:
        complaints = {f"{problem.where}: {problem.why}" for problem in inventory.problems}
        if inventory.driver_problem:
            complaints.add(inventory.driver_problem)
        complaints |= {f"{name}: lost while a claim holds it" for name in self._lost}
        for complaint in sorted(complaints - self._complaints):
            log.warning("GPU problem: %s", complaint)
        for complaint in sorted(self._complaints - complaints):
            log.info("GPU problem is over; it was: %s", complaint)
        self._complaints = frozenset(complaints)
        self._telemetry.devices_seen(published, len(complaints))
