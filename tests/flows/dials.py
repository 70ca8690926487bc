"""Kind `dial`: devices with effects of their own, as MIG and MPS will have them, on hardware made of files.

The hardware of device `dial-0` is the directory `<hardware>/dial-0`: `mode` and `clock` have values from before us that
must be restored, `instance` exists only while a claim has it. It refuses what real hardware refuses: an instance or
another clock needs the mode on, and the mode cannot be turned off while either is there. So undo in a wrong order fails.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from dra_driver import app
from dra_driver.app import Parts
from dra_driver.core.catalog import Catalog
from dra_driver.core.driver import Driver
from dra_driver.core.recovery import Keeper
from dra_driver.hardware.sysfs import boot_id
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.device import Device, LiveDevice
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import Inventory, PciAddress
from dra_driver.model.record import Effect
from dra_driver.ports import Journal
from dra_driver.settings import Settings
from dra_driver.state.advertised import AdvertisedFile

BEFORE = {"mode": "off", "clock": "100"}
PCI = PciAddress(0x20, 0, 0, 0)


class Hardware:
    """`<device>/stuck` holds the name of what cannot be undone, and how often; with `<device>/broken` no instance can be
    made, and `<device>/hold` stops whoever acquires."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, directory: Path, *devices: str) -> Hardware:
        for device in devices:
            (directory / device).mkdir(parents=True)
            for name, value in BEFORE.items():
                (directory / device / name).write_text(value)
        return cls(directory)

    def devices(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def is_as_before(self) -> bool:
        return all(self.state(device) == BEFORE for device in self.devices())

    def state(self, device: str) -> dict[str, str]:
        names = ("mode", "clock", "instance")
        return {name: value for name in names if (value := self.read(device, name)) is not None}

    def read(self, device: str, name: str) -> str | None:
        try:
            return (self.directory / device / name).read_text()
        except FileNotFoundError:
            return None

    def set(self, device: str, name: str, value: str) -> None:
        if name == "clock" and value != BEFORE["clock"] and self.read(device, "mode") != "on":
            raise RetryLater(f"setting the clock of {device}", "its mode is off")
        busy = self.read(device, "instance") is not None or self.read(device, "clock") != BEFORE["clock"]
        if name == "mode" and value == "off" and busy:
            raise RetryLater(f"turning {device} off", "it is in use")
        fd = os.open(self.directory / device / name, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, value.encode())
        os.close(fd)

    def make_instance(self, device: str) -> str:
        if self.read(device, "mode") != "on":
            raise RetryLater(f"making an instance on {device}", "its mode is off")
        if self.read(device, "broken") is not None:
            raise RetryLater(f"making an instance on {device}", "it is broken")
        uuid = f"DIAL-{secrets.token_hex(4)}"
        fd = os.open(self.directory / device / "instance", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, uuid.encode())
        os.close(fd)
        return uuid

    def remove_instance(self, device: str) -> None:
        (self.directory / device / "instance").unlink(missing_ok=True)

    def strike(self, device: str, name: str) -> None:
        """Fails as often as `stuck` says."""
        stuck, _, times = (self.read(device, "stuck") or "").partition(" ")
        if stuck == name and int(times):
            if int(times) > 1:
                (self.directory / device / "stuck").write_text(f"{stuck} {int(times) - 1}")
            else:
                (self.directory / device / "stuck").unlink()
            raise RetryLater(f"undoing {name} of {device}", "it is stuck")

    def wait_while_held(self, device: str) -> None:
        hold = self.directory / device / "hold"
        if hold.exists():
            (self.directory / device / "inside").touch()
            while hold.exists():
                time.sleep(0.01)


class DialKind:
    """Implements `ports.Kind`."""

    name = "dial"

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def advertise(self, inventory: Inventory) -> Sequence[Device]:
        return [Device(device, self.name, PCI, {}, {}) for device in self._hardware.devices()]

    def acquire(self, device: Device, journal: Journal) -> LiveDevice:
        for name, value in (("mode", "on"), ("clock", "900")):
            prior = self._hardware.read(device.name, name)
            assert prior is not None
            journal.intend(Effect("kind:dial", f"{device.name}/{name}", {"value": prior}))
            self._hardware.set(device.name, name, value)
        self._hardware.wait_while_held(device.name)
        journal.intend(Effect("kind:dial", f"{device.name}/instance"))
        uuid = self._hardware.read(device.name, "instance") or self._hardware.make_instance(device.name)
        return self._live(device.name, uuid)

    def find(self, device: str, uuid: str) -> LiveDevice | None:
        return self._live(device, uuid) if self._hardware.read(device, "instance") == uuid else None

    def edits(self, live: LiveDevice) -> ContainerEdits:
        return ContainerEdits(env=(f"DIAL={live.uuid}",))

    def undo(self, effect: Effect) -> None:
        device, _, name = effect.target.partition("/")
        self._hardware.strike(device, name)
        if name == "instance":
            self._hardware.remove_instance(device)
        else:
            self._hardware.set(device, name, effect.prior["value"])

    def _live(self, device: str, uuid: str) -> LiveDevice:
        return LiveDevice(device, self.name, uuid, uuid, PCI, 0)


def build(settings: Settings, hardware: Path | None) -> Parts:
    """The parts of an agent; with the kind of this module beside its own when there is hardware for it."""
    parts = app.build(settings)
    if hardware is None:
        return parts
    kind = DialKind(Hardware(hardware))
    kinds = {**parts.rooms.kinds, kind.name: kind}
    rooms = dataclasses.replace(parts.rooms, kinds=kinds)
    catalog = Catalog(
        parts.host.hardware,
        tuple(kinds.values()),
        held=lambda device: bool(parts.ledger.holders(device)),
        telemetry=rooms.telemetry,
        neighbours=rooms.neighbours,
        taint_domain=settings.driver_name,
        advertised_before=AdvertisedFile(str(settings.ledger_dir.parent / "advertised.json")),
    )
    driver = Driver(settings.node_name, boot_id(parts.host.roots), catalog, rooms)
    keeper = Keeper(driver, rooms, settings.keeper_s, settings.janitor_s, settings.gone_s)
    return dataclasses.replace(parts, rooms=rooms, catalog=catalog, driver=driver, keeper=keeper)
