"""What the core needs of the other rooms, by port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.core.configs import Decoder
from dra_driver.ports import CdiStore, Claims, DriverFiles, Events, Kind, Ledger, SharingMode, Telemetry


@dataclass(frozen=True)
class Rooms:
    claims: Claims
    ledger: Ledger
    cdi: CdiStore
    files: DriverFiles
    events: Events
    telemetry: Telemetry
    kinds: Mapping[str, Kind]
    modes: Mapping[str, SharingMode]
    decode: Decoder
