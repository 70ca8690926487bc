"""Before serving: three snapshots (ledger, hardware, CDI directory) and one broom. While serving: the keeper."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from dra_driver.core.driver import Driver
from dra_driver.core.rooms import Rooms
from dra_driver.model.errors import DriverError, GiveUp
from dra_driver.model.record import ClaimRecord

log = logging.getLogger(__name__)

MOST_PATIENT = 6  # rounds of the keeper between two attempts at what goes on failing


@dataclass(frozen=True, slots=True)
class Swept:
    """What recovery found, by claim UID."""

    kept: tuple[str, ...]
    undone: tuple[str, ...]
    damaged: tuple[str, ...]


def recover(driver: Driver, rooms: Rooms) -> Swept:
    """Reconciles; never raises for the sake of one claim, so that one broken claim does not keep a node from serving."""
    # A file system that is read-only now is told to whoever wants a claim prepared; that needs an agent that serves.
    _guarded("sweeping the ledger", "", rooms.ledger.sweep)
    _guarded("sweeping the CDI directory", "", rooms.cdi.sweep)
    kept: list[str] = []
    undone: list[str] = []
    for uid in sorted(rooms.ledger.uids()):
        try:
            record = rooms.ledger.find(uid)
        except DriverError as error:
            log.error("claim UID %s is left as it is: %s", uid, error)  # noqa: TRY400 - the message says it all
            continue
        if record is not None:
            (kept if _recover_one(driver, rooms, record) else undone).append(uid)
    on_record = rooms.ledger.uids()
    miss_records(driver, rooms, on_record, rooms.cdi.specs())
    damaged = rooms.ledger.damaged()
    for broken in damaged:
        log.error(
            "the record of claim UID %s was damaged, set aside as %s: %s", broken.uid, broken.set_aside, broken.why
        )
    swept = Swept(tuple(kept), tuple(undone), tuple(broken.uid for broken in damaged))
    log.info("recovered", extra={name: len(uids) for name, uids in dataclasses.asdict(swept).items()})
    return swept


def _recover_one(driver: Driver, rooms: Rooms, record: ClaimRecord) -> bool:
    """True when the claim is kept."""
    uid = record.ref.uid
    if driver.is_interrupted(record) and driver.broken(uid) is not None:
        return True  # its pod may be running: the keeper goes on rebuilding it
    if not driver.is_ready(record):
        why = "its preparation was interrupted" if driver.is_interrupted(record) else "it is from before the last boot"
        log.info("undoing %s: %s", record.ref, why)
        return not _undo_unfinished(driver, uid)
    try:
        driver.restore(record)
    except DriverError as error:
        log.warning("%s is kept, but: %s", record.ref, error, extra={"claim_uid": uid})
        rooms.events.warn(record.ref, "PreparedClaimNotConfirmed", f"after a restart of the driver's agent: {error}")
    return True


def miss_records(driver: Driver, rooms: Rooms, on_record: Collection[str], specs: Collection[str]) -> None:
    """A CDI spec without a record: the record has vanished, and a pod may be running. From now on it counts as damaged.

    `specs` were read after `on_record`. Records are written before specs and dropped after them, so whoever has a spec then
    and still no record is not just being prepared or unprepared, in this instance or another.
    """
    for uid in sorted(set(specs) - set(on_record) - {broken.uid for broken in rooms.ledger.damaged()}):
        _guarded("noting that a record has vanished", uid, partial(_miss, driver, rooms, uid))


def _miss(driver: Driver, rooms: Rooms, uid: str) -> None:
    rooms.ledger.miss(uid)
    if uid not in rooms.cdi.specs():  # unprepared at this very moment, which needs no record
        driver.take_down(uid, lambda now: not driver.is_ready(now))


def _undo_unfinished(driver: Driver, uid: str) -> bool:
    """Unless another instance is at it and finishes it. False when the record is still there."""
    gone: list[bool] = []
    act = partial(driver.take_down, uid, lambda now: not driver.is_ready(now))
    _guarded("undoing what was left unfinished", uid, lambda: gone.append(act()))
    return gone == [True]


def _guarded(doing: str, uid: str, act: Callable[[], object]) -> bool:
    try:
        act()
    except DriverError as error:
        log.warning("%s failed, it will be tried again: %s", doing, error, extra={"claim_uid": uid})
        return False
    return True


class Keeper:
    """Puts back what vanishes or is changed behind our back, rebuilds damaged records, and undoes claims that are gone for
    good.

    Every `interval_s` it compares the CDI directory with the ledger (one listing of each, and a stat of each spec). Every `janitor_s` it asks the
    API server about one claim, in turn, so that an idle node makes at most one request in that time; a claim that has
    been gone for `gone_s` is undone (the kubelet, which should have asked for it, has forgotten it). What is unfinished and
    nobody works on is undone when its turn comes.
    """

    def __init__(self, driver: Driver, rooms: Rooms, interval_s: float, janitor_s: float, gone_s: float) -> None:
        self._driver = driver
        self._rooms = rooms
        self._gone_s = gone_s
        self._interval_s = interval_s
        self._janitor_s = janitor_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._visited: list[str] = []
        self._gone_since: dict[str, float] = {}
        self._waits: dict[str, tuple[float, float]] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        next_visit = time.monotonic() + self._janitor_s
        while True:
            self._do(self.put_back)
            self._do(self.rebuild)
            if time.monotonic() >= next_visit:
                next_visit = time.monotonic() + self._janitor_s
                self._do(self.visit_one)
            if self._stopping.wait(self._interval_s):
                return

    def _do(self, act: Callable[[], None]) -> None:
        try:
            act()
        except DriverError as error:
            log.warning("the keeper goes on later: %s", error)
        except Exception:
            log.exception("the keeper met a bug and goes on later; please report it")

    def put_back(self) -> None:
        """Writes the CDI specs of ready claims that are missing or changed; running containers could not be restarted
        without. Opens a case for each spec whose record has vanished."""
        uids = self._rooms.ledger.uids()
        specs = self._rooms.cdi.specs()
        miss_records(self._driver, self._rooms, uids, specs)
        damaged = {broken.uid for broken in self._rooms.ledger.damaged()}
        self._waits = {uid: wait for uid, wait in self._waits.items() if uid in uids | damaged}
        self._rooms.telemetry.claims_prepared(len(uids))
        self._rooms.telemetry.records_damaged(len(damaged))
        for uid in sorted(uid for uid in uids if not specs.get(uid)):
            self._patiently("restoring a CDI spec", uid, partial(self._put_back_one, uid))

    def _put_back_one(self, uid: str) -> None:
        record = self._rooms.ledger.find(uid)
        if record is not None and self._driver.is_ready(record) and self._driver.restore(record):
            log.warning("the CDI spec of %s had vanished or been changed, and was written again", record.ref)

    def rebuild(self) -> None:
        """Prepares claims anew whose records were damaged; forgets those that the API server does not know."""
        for broken in self._rooms.ledger.damaged():
            self._patiently("rebuilding a claim", broken.uid, partial(self._rebuild_one, broken.uid))

    def _rebuild_one(self, uid: str) -> None:
        ref = self._rooms.claims.find(uid)
        if ref is None:
            self._release(uid, "the claim is gone")
            return
        try:
            self._driver.rebuild(ref)
        except GiveUp as error:  # not allocated any more, or to another node: no pod of it can be here
            self._release(uid, str(error))

    def _patiently(self, doing: str, uid: str, act: Callable[[], object]) -> None:
        """What fails is tried again after twice the time, so that a GPU that is gone for days neither fills the log nor
        has all claims of the cluster listed every few seconds."""
        not_before, wait = self._waits.get(uid, (0.0, self._interval_s))
        if time.monotonic() < not_before:
            return
        if _guarded(doing, uid, act):
            self._waits.pop(uid, None)
        else:
            self._waits[uid] = (time.monotonic() + wait, min(2 * wait, MOST_PATIENT * self._interval_s))

    def _release(self, uid: str, why: str) -> None:
        log.warning("releasing what claim UID %s, whose record was damaged, held: %s", uid, why)
        self._driver.take_down(uid, lambda now: not self._driver.is_ready(now))

    def visit_one(self) -> None:
        """Asks about the claim that was not asked about for the longest time. And what a writer killed less than a minute
        before the last start left is old enough by now."""
        _guarded("sweeping the CDI directory", "", self._rooms.cdi.sweep)
        uids = self._rooms.ledger.uids()
        self._visited = [uid for uid in self._visited if uid in uids]
        self._gone_since = {uid: since for uid, since in self._gone_since.items() if uid in uids}
        waiting = sorted(uids - set(self._visited)) or self._visited[:1]
        if not waiting:
            return
        uid = waiting[0]
        self._visited = [*(other for other in self._visited if other != uid), uid]
        record = self._rooms.ledger.find(uid)
        if record is not None and not self._driver.is_ready(record) and self._driver.broken(uid) is None:
            # Nobody is at it once its locks are free: an undo has failed, or another instance has died.
            _undo_unfinished(self._driver, uid)
        elif record is None or self._rooms.claims.exists(record.ref):
            self._gone_since.pop(uid, None)
        elif time.monotonic() - self._gone_since.setdefault(uid, time.monotonic()) >= self._gone_s:
            log.warning("undoing %s: the API server has not known it for %.0f s", record.ref, self._gone_s)
            self._driver.take_down(uid)
