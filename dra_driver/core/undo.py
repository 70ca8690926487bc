"""The one way down: a failed prepare, unprepare, start-up recovery and the janitor all end here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from dra_driver.model.errors import TellUser
from dra_driver.model.record import ClaimRecord, Effect, Phase
from dra_driver.ports import CdiStore, Ledger

CDI = "cdi"


class Undoes(Protocol):
    def undo(self, effect: Effect) -> None: ...


class CdiEffects:
    """Undoes the writing of a claim's CDI spec."""

    def __init__(self, cdi: CdiStore) -> None:
        self._cdi = cdi

    def undo(self, effect: Effect) -> None:
        self._cdi.remove(effect.target)


class LedgerJournal:
    """Puts intents on the claim's record. Implements `ports.Journal`; `record` is what was put on file last."""

    def __init__(self, ledger: Ledger, record: ClaimRecord) -> None:
        self._ledger = ledger
        self.record = record

    def intend(self, effect: Effect) -> None:
        if effect in self.record.effects:
            return
        self.put(dataclasses.replace(self.record, effects=(*self.record.effects, effect)))

    def put(self, record: ClaimRecord) -> None:
        self._ledger.put(record, replaces=self.record)
        self.record = record


def undo(record: ClaimRecord, owners: Mapping[str, Undoes], ledger: Ledger, *, keep_record: bool = False) -> None:
    """Undoes all effects in reverse, then drops the record (unless it is to be kept, as started). Where one fails the
    record stays, so that it is tried again; the error says which. Running it twice is the same as once."""
    if record.phase is Phase.READY and (keep_record or any(effect.owner != CDI for effect in record.effects)):
        # First of all: a claim that is taken apart half way must not be answered as prepared. A lost CDI spec alone is
        # written anew.
        record = dataclasses.replace(record, phase=Phase.STARTED, devices=())
        ledger.put(record)
    for effect in reversed(record.effects):
        owner = owners.get(effect.owner)
        if owner is None:
            raise TellUser(
                f"undoing {effect.owner} {effect.target} of {record.ref}",
                "no part of this agent knows how: the record was made by another version or with a feature now off",
                "start the agent with that feature on, or drain the node and reboot it",
            )
        owner.undo(effect)
    if not keep_record:
        ledger.drop(record.ref.uid)
