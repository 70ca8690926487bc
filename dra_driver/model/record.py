"""ClaimRecord: what the ledger holds of one claim. Names and strings that we own, never a Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.device import PreparedDevice


class Phase(StrEnum):
    STARTED = "started"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something about to be changed outside the ledger. `owner` is who can undo it (`kind:mig`, `sharing:mps`, `cdi`),
    `target` what is changed, `prior` the values to restore."""

    owner: str
    target: str
    prior: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """`effects` in the order in which they were intended; undo runs them in reverse."""

    ref: ClaimRef
    phase: Phase
    boot_id: str
    results: tuple[AllocationResult, ...]
    effects: tuple[Effect, ...] = ()
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def held_devices(self) -> frozenset[str]:
        """Devices that nobody else may be given. Admin access looks on; it does not hold."""
        return frozenset(result.device for result in self.results if not result.admin_access)


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A ledger file that could not be read. It was moved to `set_aside`; `uid` is told by the file's name."""

    uid: str
    set_aside: str
    why: str
