"""The catalog: which devices this node promises now. One refresh, used by publishing, preparing and recovering."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from dra_driver.model.device import Device, PreparedDevice, Taint
from dra_driver.model.errors import DriverError
from dra_driver.model.gpu import Inventory
from dra_driver.ports import Hardware, Kind, Ledger, Telemetry

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


def recorded(ledger: Ledger) -> tuple[PreparedDevice, ...]:
    """The devices that claims hold, as far as their records can be read."""
    found: list[PreparedDevice] = []
    for uid in sorted(ledger.uids()):
        try:
            record = ledger.find(uid)
        except DriverError:
            continue  # of a newer version: recovery tells of it
        if record is not None:
            found += [prepared for prepared in record.devices if not prepared.admin_access]
    return tuple(found)


class Catalog:
    """Holds the last answer; `refresh` asks the hardware again. Reading it costs nothing.

    `recorded` is asked once, by the first refresh: a GPU that was lost before this process started is known from there only.
    """

    def __init__(
        self,
        hardware: Hardware,
        kinds: Sequence[Kind],
        held: Callable[[str], bool],
        telemetry: Telemetry,
        taint_key: str,
        recorded: Callable[[], Sequence[PreparedDevice]] = tuple,
    ) -> None:
        self._hardware = hardware
        self._kinds = kinds
        self._held = held
        self._telemetry = telemetry
        self._taint_key = taint_key
        self._recorded = recorded
        self._refreshing = threading.Lock()
        self._devices: Mapping[str, Device] = {}
        self._lost: frozenset[str] = frozenset()
        self._addresses: dict[str, str] = {}
        self._complaints: frozenset[str] = frozenset()
        self.inventory: Inventory | None = None

    @property
    def devices(self) -> Mapping[str, Device]:
        return self._devices

    @property
    def present(self) -> Mapping[str, Device]:
        """Those that exist: without the ones that are only kept because a claim holds them."""
        return {name: device for name, device in self._devices.items() if name not in self._lost}

    def why_absent(self, name: str) -> str:
        """What may explain that a device is not present, in words; empty when nothing does. Its GPU may come back then."""
        inventory = self.inventory
        if inventory is None or name in self.present:
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
            before = self._devices if self.inventory is not None else self._recalled()
            self._devices = with_lost(now, before, self._held, self._taint_key)
            self._lost = frozenset(self._devices) - frozenset(now)
            self._addresses |= {name: str(device.gpu) for name, device in now.items()}
            self.inventory = inventory
            self._report(inventory, len(now))
            return tuple(self._devices.values())

    def _recalled(self) -> dict[str, Device]:
        kinds = {kind.name: kind for kind in self._kinds}
        return {
            prepared.device: kinds[prepared.kind].recall(prepared.device, prepared.uuid)
            for prepared in self._recorded()
            if prepared.kind in kinds
        }

    def _report(self, inventory: Inventory, published: int) -> None:
        complaints = {f"{problem.where}: {problem.why}" for problem in inventory.problems}
        if inventory.driver_problem:
            complaints.add(inventory.driver_problem)
        complaints |= {f"{name}: lost while a claim holds it" for name in self._lost}
        for complaint in sorted(complaints - self._complaints):
            log.warning("GPU problem: %s", complaint)
        for complaint in sorted(self._complaints - complaints):
            log.info("GPU problem is over: %s", complaint)
        self._complaints = frozenset(complaints)
        self._telemetry.devices_seen(published, len(complaints))
