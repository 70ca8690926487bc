"""What this node advertised last, in one small file: how a device that was lost before this process started was described.

It may be missing or damaged: then such devices are not published, which harms nobody. So there is no checksum to protect.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver import files
from dra_driver.model.device import AttributeValue, Device, Version
from dra_driver.model.errors import DriverError
from dra_driver.model.gpu import PciAddress

log = logging.getLogger(__name__)

_SCHEMA = 1
_SWEEP_OLDER_THAN_S = 60.0  # younger ones may be a live writer's in another instance


class AdvertisedFile:
    """Implements `ports.Advertised` at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._written: bytes | None = None

    def recall(self) -> Mapping[str, Device]:
        doing = "recalling the devices that were advertised last"
        try:
            directory, _, name = self._path.rpartition("/")
            files.sweep(directory, name, doing, older_than_s=_SWEEP_OLDER_THAN_S)
            data = files.read(self._path, doing)
            document: dict[str, Any] = json.loads(data) if data else {"schema": _SCHEMA, "devices": []}
            devices = [_device(item) for item in document["devices"]] if document["schema"] == _SCHEMA else []
        except (DriverError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning(
                "%s cannot be read, a GPU that was lost before this start is not published: %s", self._path, error
            )
            return {}
        return {device.name: device for device in devices}

    def remember(self, devices: Iterable[Device]) -> None:
        document = {"schema": _SCHEMA, "devices": [_item(device) for device in devices]}
        data = json.dumps(document, separators=(",", ":")).encode()
        if data == self._written:
            return
        try:
            files.replace(self._path, data, "remembering the devices that are advertised")
            self._written = data
        except DriverError as error:
            log.warning("a GPU lost over a restart of the agent would not be published: %s", error)


def _item(device: Device) -> dict[str, Any]:
    attributes = {
        name: {"version": value.text} if isinstance(value, Version) else value
        for name, value in device.attributes.items()
    }
    return {
        "name": device.name,
        "kind": device.kind,
        "gpu": str(device.gpu),
        "attributes": attributes,
        "capacity": dict(device.capacity),
        "counters": {name: dict(counters) for name, counters in device.counters.items()},
    }


def _device(item: Mapping[str, Any]) -> Device:
    attributes: dict[str, AttributeValue] = {
        name: Version(str(value["version"])) if isinstance(value, dict) else value
        for name, value in item["attributes"].items()
    }
    return Device(
        name=str(item["name"]),
        kind=str(item["kind"]),
        gpu=PciAddress.parse(item["gpu"]),
        attributes=attributes,
        capacity={str(name): int(amount) for name, amount in item["capacity"].items()},
        counters={str(name): dict(counters) for name, counters in item["counters"].items()},
    )
