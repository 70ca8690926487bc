"""Records that cannot be read, or come from a newer version: they block, are reported, and nothing is lost."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from dra_driver.model.errors import TellUser
from dra_driver.model.record import Phase
from dra_driver.state.ledger import FileLedger, Swept
from dra_driver.state.schema import encode, frame

from .conftest import MakeRecord, reopened, tear

A, B = "claim-a", "claim-b"


def test_a_damaged_record_is_set_aside_and_keeps_blocking_its_devices(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    ledger.put(make_record(B, "gpu-1"))
    torn = tear(directory, A).read_bytes()
    assert ledger.holders("gpu-0") == {A}, "before anybody looked at it"
    assert ledger.find(A) is None
    other = reopened(directory)
    assert other.holders("gpu-0") == {A}
    assert other.uids() == {B}
    [damaged] = other.damaged()
    assert (damaged.uid, damaged.set_aside) == (A, str(directory / "damaged" / f"{A}.1"))
    assert "first line" in damaged.why
    assert Path(damaged.set_aside).read_bytes() == torn
    assert other.sweep() == Swept()
    assert other.holders("gpu-0") == {A}, "sweeping is not rebuilding"


def test_putting_the_rebuilt_record_ends_the_damage(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0", "gpu-1"))
    tear(directory, A)
    assert ledger.find(A) is None
    ledger.put(make_record(A, "gpu-1", phase=Phase.READY))
    other = reopened(directory)
    assert other.damaged() == ()
    assert (other.holders("gpu-0"), other.holders("gpu-1")) == (frozenset(), {A})
    assert sorted(path.name for path in (directory / "holders/gpu-0").iterdir()) == []
    assert [path.name for path in (directory / "damaged").iterdir()] == [f"{A}.1.settled"], "kept to be looked at"


def test_a_record_that_is_missed_counts_as_damaged_until_its_claim_is_ready_again(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    for number in (1, 2):
        ledger.miss(A)
        ledger.miss(A)
        other = reopened(directory)
        [damaged] = other.damaged()
        assert (damaged.uid, damaged.set_aside) == (A, str(directory / "damaged" / f"{A}.{number}"))
        assert damaged.why == "it had vanished, or was empty"
        assert other.sweep() == Swept()
        ledger.put(make_record(A, "gpu-0", phase=Phase.STARTED))
        assert [damaged.uid for damaged in other.damaged()] == [A]
        ledger.put(make_record(A, "gpu-0", phase=Phase.READY))
        assert (other.damaged(), other.holders("gpu-0")) == ((), {A})
        ledger.drop(A)


def test_a_record_that_is_there_is_not_missed(ledger: FileLedger, directory: Path, make_record: MakeRecord) -> None:
    ledger.put(make_record(A, "gpu-0"))
    ledger.miss(A)
    assert ledger.damaged() == ()
    tear(directory, A)
    ledger.miss(A)
    assert ledger.damaged() == (), "it is there, and set aside when it is read"
    assert ledger.find(A) is None
    ledger.miss(A)
    assert [damaged.why for damaged in ledger.damaged()] == ["the first line is not that of a ledger file"]


def test_a_claim_that_is_missed_and_gone_is_dropped(ledger: FileLedger) -> None:
    ledger.miss(A)
    ledger.drop(A)
    assert (ledger.damaged(), ledger.uids()) == ((), frozenset())


def test_what_a_damaged_record_held_stays_blocked_until_its_claim_is_ready_again(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    """Whoever rebuilds it may fail or die on the way, and a pod may be running on the devices all the time."""
    ledger.put(make_record(A, "gpu-0"))
    tear(directory, A)
    for devices in (("gpu-0", "gpu-1"), ("gpu-1",)):
        ledger.put(make_record(A, *devices, phase=Phase.STARTED))
        other = reopened(directory)
        assert [damaged.uid for damaged in other.damaged()] == [A]
        assert other.sweep() == Swept()
        assert (other.holders("gpu-0"), other.holders("gpu-1")) == ({A}, {A})
    ledger.put(make_record(A, "gpu-1", phase=Phase.READY))
    assert (other.holders("gpu-0"), other.holders("gpu-1")) == (frozenset(), {A})
    assert other.damaged() == ()


@pytest.mark.parametrize("looked_first", [True, False])
def test_dropping_a_damaged_claim_frees_its_devices(
    ledger: FileLedger, directory: Path, make_record: MakeRecord, looked_first: bool
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    tear(directory, A)
    if looked_first:
        assert ledger.find(A) is None
    ledger.drop(A)
    other = reopened(directory)
    assert (other.holders("gpu-0"), other.damaged(), other.find(A)) == (frozenset(), (), None)
    assert not (directory / "holders/gpu-0" / A).exists()


def test_putting_over_a_damaged_record_nobody_looked_at_keeps_the_evidence(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    for number in (1, 2):
        ledger.put(make_record(A, "gpu-0"))
        tear(directory, A)
        ledger.put(make_record(A, "gpu-0", phase=Phase.READY))
        assert len(list((directory / "damaged").glob("*.settled"))) == number
    assert ledger.damaged() == ()


def test_the_record_of_another_claim_under_this_name_is_damage(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    (directory / "claims" / f"{A}.json").write_bytes(encode(make_record(B, "gpu-1")))
    assert ledger.find(A) is None
    assert f"another claim, {B}" in ledger.damaged()[0].why


def test_a_record_with_a_path_for_a_device_touches_nothing_outside(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    (directory / A).touch()
    (directory / "claims" / f"{A}.json").write_bytes(encode(make_record(A, "..")))
    ledger.drop(A)
    assert (directory / A).exists()


def test_dead_between_the_rebuilt_record_and_settling_it(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    tear(directory, A)
    assert ledger.find(A) is None
    (directory / "claims" / f"{A}.json").write_bytes(encode(make_record(A, "gpu-1", phase=Phase.READY)))
    (directory / "holders/gpu-1").mkdir()
    (directory / "holders/gpu-1" / A).touch()
    other = reopened(directory)
    assert (other.damaged(), other.holders("gpu-0"), other.holders("gpu-1")) == ((), frozenset(), {A})
    assert other.sweep() == Swept(stale_holders=(f"gpu-0/{A}",))
    (directory / "claims" / f"{A}.json").unlink()
    assert other.damaged() == (), "settled by the sweep"


def test_only_so_many_settled_records_are_kept(ledger: FileLedger, directory: Path) -> None:
    (directory / "damaged").mkdir(parents=True)
    for number in range(40):
        (directory / "damaged" / f"{A}.{number}.settled").touch()
        os.utime(directory / "damaged" / f"{A}.{number}.settled", (number, number))
    ledger.sweep()
    kept = {int(path.name.split(".")[1]) for path in (directory / "damaged").iterdir()}
    assert kept == set(range(8, 40))


def test_a_record_rebuilt_meanwhile_is_not_set_aside(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    """Many readers find the damage at once while one thread rebuilds: the rebuilt record must survive each time."""
    record = make_record(A, "gpu-0")
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            ledger.find(A)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(60):
            ledger.put(record)
            assert ledger.find(A) == record
            tear(directory, A)
            until = time.monotonic() + 5
            while not ledger.damaged():
                assert time.monotonic() < until
            assert ledger.holders("gpu-0") == {A}
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_a_record_of_a_newer_version_is_refused_blocks_and_is_never_overwritten(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0"))
    path = directory / "claims" / f"{A}.json"
    newer = frame(2, 0, b"a later form")
    path.write_bytes(newer)
    for attempt in (lambda: ledger.find(A), lambda: ledger.put(make_record(A, "gpu-1")), lambda: ledger.drop(A)):
        with pytest.raises(TellUser, match=r"newer version .* upgrade the agent again, or drain the node"):
            attempt()
    assert path.read_bytes() == newer
    assert ledger.holders("gpu-0") == {A}
    assert ledger.holders("gpu-1") == frozenset()
    assert ledger.sweep() == Swept()
    assert (ledger.damaged(), ledger.uids()) == ((), {A})
