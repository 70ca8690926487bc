"""What the core needs of the other rooms, by port; and what they may ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.core.configs import Decoder
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import DriverError
from dra_driver.ports import CdiStore, Claims, DriverFiles, Events, Kind, Ledger, Neighbours, SharingMode, Telemetry


@dataclass(frozen=True)
class Rooms:
    claims: Claims
    ledger: Ledger
    cdi: CdiStore
    files: DriverFiles
    events: Events
    telemetry: Telemetry
    neighbours: Neighbours
    kinds: Mapping[str, Kind]
    modes: Mapping[str, SharingMode]
    decode: Decoder


def prepared(ledger: Ledger) -> dict[str, ClaimRef]:
    """Which claim has which GPU or MIG device, by UUID; those who only look on are left out. Reads every record."""
    found: dict[str, ClaimRef] = {}
    for uid in sorted(ledger.uids()):
        try:
            record = ledger.find(uid)
        except DriverError:  # of a newer version: reported by whoever needs it
            continue
        if record is not None:
            found |= {device.uuid: record.ref for device in record.devices if not device.admin_access}
    return found
