"""Bringing a planned claim up, and confirming one that is up: make real, then share, then describe.

Intent goes on record before each effect; the record is READY only when everything is there. Who calls holds the locks of
the claim's devices.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence

from dra_driver.core.catalog import Catalog, uuid
from dra_driver.core.configs import decode_all
from dra_driver.core.plan import Group, plan
from dra_driver.core.rooms import Rooms
from dra_driver.core.undo import CDI, LedgerJournal, Undoes, undo
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef
from dra_driver.model.device import Device, LiveDevice, PreparedDevice
from dra_driver.model.errors import DriverError, RetryLater
from dra_driver.model.record import ClaimRecord, Effect, Phase

log = logging.getLogger(__name__)


class Preparation:
    def __init__(self, pool: str, boot_id: str, catalog: Catalog, rooms: Rooms, owners: Mapping[str, Undoes]) -> None:
        self._pool = pool
        self._boot_id = boot_id
        self._catalog = catalog
        self._rooms = rooms
        self._owners = owners

    def confirm(self, record: ClaimRecord) -> Sequence[PreparedDevice]:
        """Proves that a READY record's devices are there and writes its CDI spec anew from what exists."""
        lives: list[tuple[PreparedDevice, LiveDevice]] = []
        for prepared in record.devices:
            kind = self._rooms.kinds.get(prepared.kind)
            live = kind.find(prepared.device, prepared.uuid) if kind else None
            if live is None:
                raise RetryLater(
                    f"confirming {record.ref}",
                    f"its device {prepared.device} ({prepared.uuid}) is prepared, but does not answer any more",
                    "look at `nvidia-smi` and `dmesg | grep -i xid` on this node; delete the pod to get another device",
                )
            lives.append((prepared, live))
        self._write_spec(record.ref.uid, lives)
        return record.devices

    def bring_up(self, claim: Claim, *, keep_record: bool = False) -> Sequence[PreparedDevice]:
        groups = self._plan(claim)
        ledger = self._rooms.ledger
        record = ClaimRecord(
            ref=claim.ref,
            phase=Phase.STARTED,
            boot_id=self._boot_id,
            results=claim.results,
            effects=(Effect(CDI, claim.ref.uid),),
        )
        ledger.put(record)
        journal = LedgerJournal(ledger, record)
        try:
            lives = [pair for group in groups for pair in self._make_real(claim.ref, group, journal)]
            order = {id(result): position for position, result in enumerate(claim.results)}
            lives.sort(key=lambda entry: order[id(entry[0])])
            pairs = [(prepared, live) for _, prepared, live in lives]
            self._write_spec(claim.ref.uid, pairs)
            devices = tuple(prepared for prepared, _ in pairs)
            journal.put(dataclasses.replace(journal.record, phase=Phase.READY, devices=devices))
        except BaseException:
            try:
                undo(journal.record, self._owners, ledger, keep_record=keep_record)
            except DriverError as failure:
                log.warning("undo is left to the next attempt: %s", failure, extra=claim.ref.fields)
            raise
        return devices

    def _plan(self, claim: Claim) -> tuple[Group, ...]:
        decoded = decode_all(claim.ref, claim.configs, self._rooms.decode)
        present = self._catalog.present
        if any(result.device not in present for result in claim.results):
            self._catalog.refresh()
            present = self._catalog.present
        holders = {result.device: self._other_holders(result.device, claim.ref.uid) for result in claim.results}
        missing = [result.device for result in claim.results if result.device not in present]
        absent = {device: self._catalog.why_absent(device) for device in missing}
        taken = self._taken({result.device for result in claim.results if not result.admin_access}, present)
        return plan(claim, self._pool, present, decoded, self._rooms.modes, holders, absent, taken)

    def _taken(self, wanted: Collection[str], present: Mapping[str, Device]) -> dict[str, str]:
        inventory = self._catalog.inventory
        if inventory is None or not wanted:
            return {}
        why = self._rooms.neighbours.holders(inventory)
        return {name: why[uuid(present[name])] for name in wanted if name in present and uuid(present[name]) in why}

    def _other_holders(self, device: str, uid: str) -> Sequence[str]:
        words = []
        for other in sorted(self._rooms.ledger.holders(device) - {uid}):
            words.append(self._words(other))
        return words

    def _words(self, uid: str) -> str:
        try:
            record = self._rooms.ledger.find(uid)
        except DriverError as error:  # of a newer version: it is the other claim's trouble, and holds all the same
            return f"the claim with UID {uid}, whose record cannot be read ({error.why})"
        return str(record.ref) if record else f"the claim with UID {uid}, whose record is damaged and being rebuilt"

    def _make_real(
        self, ref: ClaimRef, group: Group, journal: LedgerJournal
    ) -> list[tuple[AllocationResult, PreparedDevice, LiveDevice]]:
        """Makes the devices exist, then shares what exists."""
        lives = [self._rooms.kinds[member.device.kind].acquire(member.device, journal) for member in group.members]
        edits = self._rooms.modes[group.config.strategy].apply(lives, group.config.value, ref, journal)
        made = []
        for member, live in zip(group.members, lives, strict=True):
            result = member.result
            prepared = PreparedDevice(
                request=result.base_request,
                pool=result.pool,
                device=result.device,
                kind=live.kind,
                uuid=live.uuid,
                cdi_ids=(self._rooms.cdi.qualified(ref.uid, result.device, result.share_id),),
                share_id=result.share_id,
                admin_access=result.admin_access,
                sharing_edits=edits,
            )
            made.append((result, prepared, live))
        return made

    def _write_spec(self, uid: str, pairs: Sequence[tuple[PreparedDevice, LiveDevice]]) -> None:
        common = self._rooms.files.common_edits()
        devices = {
            prepared.cdi_ids[0].partition("=")[2]: self._rooms.kinds[live.kind].edits(live) + prepared.sharing_edits
            for prepared, live in pairs
        }
        self._rooms.cdi.write(uid, tuple(devices.items()), common)
