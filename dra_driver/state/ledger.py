"""The ledger on files: see `FileLedger` for the layout and for who counts as a holder."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from dra_driver import files
from dra_driver.model.errors import DriverError, TellUser
from dra_driver.model.record import ClaimRecord, DamagedRecord, Phase
from dra_driver.state.index import HolderIndex, SetAside
from dra_driver.state.locks import locked_directory, locked_files
from dra_driver.state.names import check_device, check_uid, is_device, is_uid
from dra_driver.state.schema import DamagedError, NewerError, decode, encode

_INSTANCE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What `FileLedger.sweep` found to do: temporary files removed, `device/uid` entries removed and added."""

    temporary: tuple[str, ...] = ()
    stale_holders: tuple[str, ...] = ()
    missing_holders: tuple[str, ...] = ()


class FileLedger:
    """Implements `ports.Ledger` below one directory on a tmpfs (nothing here is synced to disk):

        claims/<uid>.json          the record, replaced whole
        holders/<device>/<uid>     index: whose record to read to learn who holds the device
        damaged/<uid>.<n>          set aside, or in the place of one that vanished; with `.settled` once the claim is ready
                                   again or dropped
        locks/<device>             flock files, never removed

    **Who holds a device.** A UID with an entry under `holders/<device>/` counts if and only if

    1. its record is there and names the device among its `held_devices`, or
    2. its record is there and cannot be understood (damaged, or of a newer version): it may hold the device, or
    3. it has no record, or one that is only started, and `damaged/<uid>.<n>` is there and not settled: what it held stays
       blocked until `put` of a ready record, or `drop`. A pod may be using it while the claim is being rebuilt.

    Any other entry is stale: left by a process that died between two steps. It never counts; `sweep` removes it.

    `put` writes entries, record, settles what was set aside, removes entries that the record no longer names. `drop`
    removes the record (or settles what was set aside), then the entries. So there is no moment at which a record is there
    and the index does not lead to it.

    `put` and `drop` of one claim must not run at the same time (the device locks see to that). They hold `claims/` shared,
    for microseconds; setting aside and sweeping hold it alone, so that neither takes away what is just being written.
    """

    def __init__(self, directory: str) -> None:
        self._claims = f"{directory}/claims"
        self._locks = f"{directory}/locks"
        self._index = HolderIndex(f"{directory}/holders")
        self._aside = SetAside(f"{directory}/damaged")

    def find(self, uid: str) -> ClaimRecord | None:
        """TellUser when a newer version wrote the record, RetryLater or TellUser when the file cannot be read."""
        doing = f"reading the record of claim {uid}"
        found = self._read(uid, doing)
        if isinstance(found, DamagedError):
            with self._alone(doing):
                found = self._read(uid, doing)  # another thread may have rebuilt it meanwhile
                if isinstance(found, DamagedError):
                    self._aside.take(self._path(uid), uid, doing)
                    return None
        return _understood(found, doing)

    def put(self, record: ClaimRecord, *, replaces: ClaimRecord | None = None) -> None:
        """RetryLater when the file system is full or read-only, TellUser when it does not let us; the old record and its
        holders then stand. TellUser when a newer version wrote the old record."""
        uid, held = record.ref.uid, record.held_devices
        doing = f"writing the record of claim {uid}"
        check_uid(uid, doing)
        for device in held:
            check_device(device, doing)
        data = encode(record)
        with self._shared(doing):
            old = replaces or self._on_file(uid, doing)
            held_before = old.held_devices if old else frozenset()
            try:
                for device in sorted(held - held_before):
                    self._index.add(device, uid, doing)
                files.replace(self._path(uid), data, doing)
            except DriverError:
                self._take_back(held - held_before, uid, doing)
                raise
            if record.phase is Phase.READY and self._aside.settle(uid, doing):
                held_before = frozenset(self._index.devices(doing))
            given_up = held_before - held
            if given_up and uid in self._aside.open_cases(doing):
                return
            for device in sorted(given_up):
                self._index.remove(device, uid, doing)

    def _take_back(self, devices: frozenset[str], uid: str, doing: str) -> None:
        """Entries that no record follows count for nothing, but a node that stays full would collect them. Not those that
        a damaged record put there."""
        with suppress(DriverError):
            if uid not in self._aside.open_cases(doing):
                for device in sorted(devices):
                    self._index.remove(device, uid, doing)

    def drop(self, uid: str) -> None:
        """TellUser when a newer version wrote the record: it stays."""
        doing = f"removing the record of claim {uid}"
        check_uid(uid, doing)
        with self._shared(doing):
            old = self._on_file(uid, doing)
            files.remove(self._path(uid), doing)
            held_before = old.held_devices if old else frozenset()
            if self._aside.settle(uid, doing):
                held_before = frozenset(self._index.devices(doing))
            for device in sorted(held_before):
                self._index.remove(device, uid, doing)

    def holders(self, device: str) -> frozenset[str]:
        """Reads one record per entry (about 20 microseconds each), by the rule of this class."""
        doing = f"looking up who holds device {device}"
        check_device(device, doing)
        return frozenset(uid for uid in self._index.uids(device, doing) if self._holds(uid, device, doing))

    def uids(self) -> frozenset[str]:
        found = (
            name.removesuffix(".json") for name in files.names(self._claims, "listing the records") if _is_record(name)
        )
        return frozenset(found)

    def damaged(self) -> tuple[DamagedRecord, ...]:
        """The newest per claim, sorted by UID; also those that an earlier run of the agent set aside."""
        doing = "listing the damaged records"
        return tuple(
            DamagedRecord(uid, paths[-1], self._why(uid, paths[-1], doing))
            for uid, paths in sorted(self._aside.open_cases(doing).items())
            if not self._is_ready(uid, doing)  # killed before it could settle
        )

    def miss(self, uid: str) -> None:
        doing = f"noting that the record of claim {uid} is missing"
        with self._alone(doing):
            if self._read(uid, doing) is None and uid not in self._aside.open_cases(doing):
                self._aside.open(uid, doing)

    def lock(self, devices: frozenset[str], timeout_s: float) -> AbstractContextManager[None]:
        """Any names that `names.check_device` lets pass may be locked, PCI addresses too. Taken on entry; not twice in one
        thread."""
        doing = f"locking {', '.join(sorted(devices))}"
        for device in devices:
            check_device(device, doing)
        return locked_files(self._locks, devices, timeout_s, doing)

    def sweep(self) -> Swept:
        """For the start of the agent: removes temporary files and stale index entries, adds entries that are missing, sets
        damaged records aside. Reads every record once."""
        doing = "sweeping the ledger"
        with self._alone(doing):
            temporary = files.sweep(
                self._claims, "", doing, older_than_s=0
            )  # no writer is alive: `put` holds it shared
            set_aside = self._aside.open_cases(doing).keys()
            missing = [entry for uid in sorted(self.uids()) for entry in self._complete(uid, uid in set_aside, doing)]
            stale = []
            for device in self._index.devices(doing):
                for uid in self._index.uids(device, doing):
                    if not self._holds(uid, device, doing):
                        self._index.remove(device, uid, doing)
                        stale.append(f"{device}/{uid}")
            self._aside.prune(doing)
        return Swept(temporary, tuple(stale), tuple(missing))

    def _complete(self, uid: str, set_aside: bool, doing: str) -> list[str]:
        found = self._read(uid, doing)
        if isinstance(found, DamagedError):
            self._aside.take(self._path(uid), uid, doing)
        if not isinstance(found, ClaimRecord):
            return []
        if set_aside and found.phase is Phase.READY:
            self._aside.settle(uid, doing)
        missing = [device for device in sorted(found.held_devices) if uid not in self._index.uids(device, doing)]
        for device in missing:
            self._index.add(device, uid, doing)
        return [f"{device}/{uid}" for device in missing]

    def _holds(self, uid: str, device: str, doing: str) -> bool:
        found = self._read(uid, doing)
        if found is None:
            if uid in self._aside.open_cases(doing):
                return True
            found = self._read(uid, doing)  # it may have been rebuilt and settled between the two looks
        if isinstance(found, ClaimRecord):
            rebuilding = found.phase is Phase.STARTED and uid in self._aside.open_cases(doing)
            return device in found.held_devices or rebuilding
        return found is not None

    def _is_ready(self, uid: str, doing: str) -> bool:
        found = self._read(uid, doing)
        return isinstance(found, ClaimRecord) and found.phase is Phase.READY

    def _on_file(self, uid: str, doing: str) -> ClaimRecord | None:
        """What is about to be replaced or removed; set aside if it is damaged."""
        found = self._read(uid, doing)
        if isinstance(found, DamagedError):
            self._aside.take(self._path(uid), uid, doing)
            return None
        return _understood(found, doing)

    def _read(self, uid: str, doing: str) -> ClaimRecord | DamagedError | NewerError | None:
        check_uid(uid, doing)
        data = files.read(self._path(uid), doing)
        return None if data is None else _judge(uid, data)

    def _why(self, uid: str, path: str, doing: str) -> str:
        try:
            data = files.read(path, doing)
        except DriverError as error:
            return str(error)
        if data == b"":
            return "it had vanished, or was empty"
        found = None if data is None else _judge(uid, data)
        return str(found) if isinstance(found, DamagedError) else "it was read as damaged, and can be read now"

    def _path(self, uid: str) -> str:
        return f"{self._claims}/{uid}.json"

    def _shared(self, doing: str) -> AbstractContextManager[None]:
        return locked_directory(self._claims, _INSTANCE_TIMEOUT_S, doing, shared=True)

    def _alone(self, doing: str) -> AbstractContextManager[None]:
        return locked_directory(self._claims, _INSTANCE_TIMEOUT_S, doing, shared=False)


def _judge(uid: str, data: bytes) -> ClaimRecord | DamagedError | NewerError:
    try:
        record = decode(data)
    except (DamagedError, NewerError) as error:
        return error
    if record.ref.uid != uid:
        return DamagedError(f"it is the record of another claim, {record.ref.uid}")
    if not all(is_device(device) for device in record.held_devices):
        return DamagedError("it names a device that cannot be one")
    return record


def _understood(found: ClaimRecord | DamagedError | NewerError | None, doing: str) -> ClaimRecord | None:
    if isinstance(found, NewerError):
        why = f"it was written by a newer version of the agent ({found})"
        raise TellUser(doing, why, "upgrade the agent again, or drain the node and reboot it")
    return found if isinstance(found, ClaimRecord) else None


def _is_record(name: str) -> bool:
    return name.endswith(".json") and is_uid(name.removesuffix(".json"))
