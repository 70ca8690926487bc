"""Prepare and unprepare: the one way up, and the call of the one way down (`undo`).

Decides by the record, under the locks of the claim's devices; `preparation` does it. No state is kept in memory: the ledger's
files are the truth, so a kill at any instruction loses nothing, and two instances of the agent (an upgrade) see each other's
work. Device locks are held for one claim's devices only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from dra_driver.core.catalog import Catalog
from dra_driver.core.plan import StillHeld
from dra_driver.core.preparation import Preparation
from dra_driver.core.rooms import Rooms
from dra_driver.core.turns import Interpreter, Turns
from dra_driver.core.undo import CDI, CdiEffects, Undoes, undo
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import PreparedDevice
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser
from dra_driver.model.record import ClaimRecord, DamagedRecord, Phase

log = logging.getLogger(__name__)

T = TypeVar("T")

# Waits for what the API server says about a claim it was asked for; to be called once.
Answer = Callable[[], Claim]

# All waiting of one call together. Below the kubelet's deadline of 45 s, so that it gets our reason instead of its own
# timeout; and so that a call that it has given up has failed by then, or holds locks that keep the next one waiting.
CALL_TIMEOUT_S = 40.0

# How often it is looked at whether another claim has let go; a look costs one GET and less than a millisecond.
HANDOVER_LOOK_S = 0.2

_RESULTS: Mapping[type[DriverError], str] = {RetryLater: "retry", GiveUp: "give_up", TellUser: "tell_user"}


class Driver:
    """Implements `ports.NodeService`."""

    def __init__(self, pool: str, boot_id: str, catalog: Catalog, rooms: Rooms, handover_s: float = 0.0) -> None:
        """`handover_s` is how long a prepare waits for another claim to let go of a device."""
        self._pool = pool
        self._handover_s = handover_s
        self._boot_id = boot_id
        self._catalog = catalog
        self._rooms = rooms
        self._turns = Turns()
        self._interpreter = Interpreter()
        self._taken_down = 0  # how often anything was; two threads that count as one still make it another number
        self._owners: Mapping[str, Undoes] = {
            CDI: CdiEffects(rooms.cdi),
            **{f"kind:{name}": kind for name, kind in rooms.kinds.items()},
            **{f"sharing:{strategy}": mode for strategy, mode in rooms.modes.items()},
        }
        self._preparation = Preparation(pool, boot_id, catalog, rooms, self._owners)

    def prepare_each(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], Sequence[PreparedDevice]]]:
        taken_down = self._taken_down
        answers = self._rooms.claims.ask(refs)
        if len(refs) > 1 or self._turns.busy:
            self._catalog.look_ahead()  # while the API server works
        return [
            partial(self._prepare_asked, ref, answer, taken_down) for ref, answer in zip(refs, answers, strict=True)
        ]

    def _prepare_asked(self, ref: ClaimRef, answer: Answer, taken_down: int) -> Sequence[PreparedDevice]:
        def act() -> Sequence[PreparedDevice]:
            until = time.monotonic() + CALL_TIMEOUT_S
            with self._turns.of(ref.uid, CALL_TIMEOUT_S, f"preparing {ref}"):
                if self._taken_down == taken_down:
                    return self._prepare_when_free(ref, answer, until)
                # Unprepared since it was asked for, it may be gone: what was true then would bring it back.
                with suppress(DriverError):
                    answer()
                return self._prepare_when_free(ref, self._ask(ref), until)

        return self._observed("prepare", ref, act)

    def rebuild(self, ref: ClaimRef) -> None:
        """Prepares a claim anew whose record was damaged; nothing if that has been settled meanwhile, as by unprepare."""
        until = time.monotonic() + CALL_TIMEOUT_S
        with self._turns.of(ref.uid, CALL_TIMEOUT_S, f"rebuilding {ref}"):
            if self.broken(ref.uid) is not None:
                self._observed("prepare", ref, lambda: self._prepare(ref, self._ask(ref), until))

    def _ask(self, ref: ClaimRef) -> Answer:
        (answer,) = self._rooms.claims.ask([ref])
        return answer

    def unprepare(self, ref: ClaimRef) -> None:
        self._observed("unprepare", ref, lambda: self.take_down(ref.uid))

    def take_down(self, uid: str, only_if: Callable[[ClaimRecord], bool] = lambda _: True) -> bool:
        """Undoes whatever is on record for this claim, if `only_if` still holds once its devices are locked: another
        instance may have finished meanwhile. An unknown claim is success. True when nothing is on record afterwards."""
        doing = f"unpreparing the claim with UID {uid}"
        until = time.monotonic() + CALL_TIMEOUT_S
        with self._turns.of(uid, CALL_TIMEOUT_S, doing):
            self._taken_down += 1
            return self._take_down(uid, only_if, until, doing)

    def _take_down(self, uid: str, only_if: Callable[[ClaimRecord], bool], until: float, doing: str) -> bool:
        ledger = self._rooms.ledger
        for _ in range(3):
            record = ledger.find(uid)
            with ledger.lock(_devices(record), _left(until)):
                if ledger.find(uid) != record:
                    continue
                if record is None:
                    if (broken := self.broken(uid)) is not None:
                        why = (uid, broken.set_aside, broken.why)
                        log.error("claim UID %s: its record was damaged, set aside as %s: %s; it is released", *why)
                    self._rooms.cdi.remove(uid)
                    ledger.drop(uid)
                elif only_if(record):
                    undo(record, self._owners, ledger)
                else:
                    return False
                return True
        raise RetryLater(doing, "another instance of the agent keeps changing its record", "the kubelet asks again")

    def restore(self, record: ClaimRecord) -> bool:
        """Confirms a READY record and writes its spec anew, unless the claim has changed meanwhile: then False."""
        with self._rooms.ledger.lock(_devices(record), 5.0):  # whoever is at it now writes the spec, too
            if self._rooms.ledger.find(record.ref.uid) != record:
                return False
            self._preparation.confirm(record)
            return True

    def is_ready(self, record: ClaimRecord) -> bool:
        """Prepared as a whole, and since the last boot: what it describes dies with the boot."""
        return record.phase is Phase.READY and record.boot_id == self._boot_id

    def is_interrupted(self, record: ClaimRecord) -> bool:
        """Begun since the last boot and not finished; whether somebody is still at it, only its devices' locks say."""
        return record.phase is Phase.STARTED and record.boot_id == self._boot_id

    def _prepare_when_free(self, ref: ClaimRef, answer: Answer, until: float) -> Sequence[PreparedDevice]:
        """Waits for another claim to let go, holding no device meanwhile: the pod of a forced delete goes a moment later
        than its claim, and what is refused is asked for again only after 10 s or more."""
        patient_until = time.monotonic() + self._handover_s
        while True:
            try:
                return self._prepare(ref, answer, until)
            except StillHeld:
                if time.monotonic() >= patient_until:
                    raise
                time.sleep(HANDOVER_LOOK_S)
                answer = self._ask(ref)

    def _prepare(self, ref: ClaimRef, answer: Answer, until: float) -> Sequence[PreparedDevice]:
        ledger = self._rooms.ledger
        try:
            claim = answer()
        except (RetryLater, TellUser):
            # UIDs are never used twice: what is on record as ready for this one is still right without asking. Neither a
            # server that is down nor a token or a role that is wrong may keep a restarted kubelet from its running pods.
            record = ledger.find(ref.uid)
            if record is None or not self.is_ready(record):
                raise
            claim = Claim(record.ref, record.results)
        wanted = frozenset(result.device for result in claim.results)
        for _ in range(3):
            with ledger.lock(wanted, _left(until)), self._interpreter.turn():
                record = ledger.find(ref.uid)
                if not _devices(record) <= wanted:
                    wanted |= _devices(record)
                    continue
                if record is not None and self.is_ready(record) and record.results == claim.results:
                    return self._preparation.confirm(record)
                broken = self.broken(ref.uid)
                if record is not None:
                    undo(record, self._owners, ledger, keep_record=broken is not None)
                if broken is None:
                    return self._preparation.bring_up(claim)
                return self._rebuild(claim, broken)
        why = "another instance of the agent keeps changing its record"
        raise RetryLater(f"preparing {ref}", why, "the kubelet asks again")

    def broken(self, uid: str) -> DamagedRecord | None:
        """What was set aside of this claim, until it is ready again."""
        return next((damaged for damaged in self._rooms.ledger.damaged() if damaged.uid == uid), None)

    def _rebuild(self, claim: Claim, broken: DamagedRecord) -> Sequence[PreparedDevice]:
        log.error("%s: its record was damaged, set aside as %s: %s", claim.ref, broken.set_aside, broken.why)
        # A pod may be running on the devices: should this fail, the started record goes on holding them.
        devices = self._preparation.bring_up(claim, keep_record=True)
        log.warning("%s: its record was rebuilt", claim.ref)
        self._rooms.events.warn(
            claim.ref,
            "ClaimRebuilt",
            f"its record on node {self._pool} was damaged ({broken.why}) and was rebuilt; nothing has to be done, "
            f"the damaged one is kept in {broken.set_aside}.settled on the node",
        )
        return devices

    def _observed(self, operation: str, ref: ClaimRef, act: Callable[[], T]) -> T:
        begin = time.perf_counter()
        try:
            answer = act()
        except Exception as error:
            seconds = time.perf_counter() - begin
            result = next((word for cls, word in _RESULTS.items() if isinstance(error, cls)), "bug")
            self._rooms.telemetry.claim_done(operation, result, seconds)
            if not isinstance(error, DriverError):
                raise  # a bug: logged with its traceback where it is answered
            told = _about(operation, ref, error)
            log.warning("%s failed: %s", operation, told, extra={**ref.fields, "seconds": round(seconds, 4)})
            if isinstance(told, TellUser | GiveUp):
                self._rooms.events.warn(ref, f"{operation.capitalize()}Refused", str(told))
            if told is error:
                raise
            raise told from error
        seconds = time.perf_counter() - begin
        self._rooms.telemetry.claim_done(operation, "ok", seconds)
        devices = [prepared.device for prepared in answer] if isinstance(answer, tuple) else []
        log.info("%sd", operation, extra={**ref.fields, "devices": devices, "seconds": round(seconds, 4)})
        return answer


def _devices(record: ClaimRecord | None) -> frozenset[str]:
    return frozenset(result.device for result in record.results) if record else frozenset()


def _about(operation: str, ref: ClaimRef, error: DriverError) -> DriverError:
    """The error, beginning with what was being done to which claim: some rooms know a path or a device only."""
    doing = f"{operation.removesuffix('e')}ing {ref}"
    if str(ref) in error.doing:
        return error
    cls = next(cls for cls in _RESULTS if isinstance(error, cls))
    return cls(doing, f"{error.doing}: {error.why}", error.next_step)


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
