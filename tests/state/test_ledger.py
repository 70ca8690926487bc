"""The ledger on real files: every test re-opens the directory, as a restarted or second agent would."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dra_driver.model.errors import GiveUp, RetryLater
from dra_driver.model.record import Phase
from dra_driver.ports import Ledger
from dra_driver.state.ledger import FileLedger, Swept

from .conftest import MakeRecord, Mount, reopened

A, B = "claim-a", "claim-b"


def test_it_is_a_ledger_and_an_empty_one_makes_nothing(ledger: FileLedger, directory: Path) -> None:
    port: Ledger = ledger
    assert port.find(A) is None
    assert (port.uids(), port.holders("gpu-0"), port.damaged()) == (frozenset(), frozenset(), ())
    assert not directory.exists()


def test_what_is_put_is_found_by_another_instance(ledger: FileLedger, directory: Path, make_record: MakeRecord) -> None:
    record = make_record(A, "gpu-0", "gpu-1", admin=("gpu-2",))
    ledger.put(record)
    other = reopened(directory)
    assert other.find(A) == record
    assert other.uids() == {A}
    assert other.holders("gpu-0") == other.holders("gpu-1") == {A}
    assert other.holders("gpu-2") == frozenset(), "admin access looks on, it does not hold"

    ready = dataclasses.replace(record, phase=Phase.READY)
    other.put(ready)
    assert ledger.find(A) == ready


def test_a_device_may_have_many_holders(ledger: FileLedger, make_record: MakeRecord) -> None:
    for uid in (A, B):
        ledger.put(make_record(uid, "gpu-0"))
    assert ledger.holders("gpu-0") == {A, B}
    ledger.drop(A)
    assert ledger.holders("gpu-0") == {B}


def test_a_device_that_the_record_no_longer_names_is_free(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.put(make_record(A, "gpu-0", "gpu-1"))
    ledger.put(make_record(A, "gpu-1", "gpu-2"))
    other = reopened(directory)
    assert [other.holders(f"gpu-{n}") for n in range(3)] == [frozenset(), {A}, {A}]
    assert not (directory / "holders/gpu-0" / A).exists()


def test_dropping_removes_everything_and_again_is_success(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    ledger.drop(A)
    ledger.put(make_record(A, "gpu-0"))
    ledger.drop(A)
    ledger.drop(A)
    other = reopened(directory)
    assert (other.find(A), other.uids(), other.holders("gpu-0")) == (None, frozenset(), frozenset())
    assert not [path for path in directory.rglob("*") if path.is_file()]


# Dying between two steps ------------------------------------------------------------------------------------------


def test_holders_written_and_then_dead_before_the_record(ledger: FileLedger, directory: Path) -> None:
    (directory / "holders/gpu-0").mkdir(parents=True)
    (directory / "holders/gpu-0" / A).touch()
    assert ledger.holders("gpu-0") == frozenset()
    assert ledger.sweep() == Swept(stale_holders=(f"gpu-0/{A}",))
    assert ledger.sweep() == Swept()


def test_an_entry_left_behind_does_not_block_when_the_claim_comes_back_with_another_device(
    ledger: FileLedger, directory: Path, make_record: MakeRecord
) -> None:
    """Died in `drop` after the record; the claim was allocated again before anybody swept."""
    ledger.put(make_record(A, "gpu-0"))
    (directory / "claims" / f"{A}.json").unlink()
    ledger.put(make_record(A, "gpu-1"))
    assert (ledger.holders("gpu-0"), ledger.holders("gpu-1")) == (frozenset(), {A})


def test_sweep_rebuilds_an_index_that_was_lost(ledger: FileLedger, directory: Path, make_record: MakeRecord) -> None:
    ledger.put(make_record(A, "gpu-0"))
    (directory / "holders/gpu-0" / A).unlink()
    assert ledger.sweep() == Swept(missing_holders=(f"gpu-0/{A}",))
    assert ledger.holders("gpu-0") == {A}


def test_sweep_removes_what_a_killed_writer_left(ledger: FileLedger, directory: Path, make_record: MakeRecord) -> None:
    ledger.put(make_record(A, "gpu-0"))
    left = directory / "claims" / f".{A}.json.0123456789abcdef.tmp"
    left.write_bytes(b"half")
    assert ledger.uids() == {A}
    assert ledger.sweep() == Swept(temporary=(str(left),))


# Names from outside -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "a\n", ".hidden", "-a", "ä", "a" * 64, "a.b"]
)
def test_what_is_no_uid_names_no_file(ledger: FileLedger, directory: Path, make_record: MakeRecord, bad: str) -> None:
    for attempt in (lambda: ledger.find(bad), lambda: ledger.put(make_record(bad, "gpu-0")), lambda: ledger.drop(bad)):
        with pytest.raises(GiveUp, match="is not a claim UID"):
            attempt()
    assert not directory.exists()


@pytest.mark.parametrize("bad", ["", ".", "..", "../x", "a/b", "a\0b", "a\n", ".hidden", "a" * 128])
def test_what_is_no_device_names_no_file(
    ledger: FileLedger, directory: Path, make_record: MakeRecord, bad: str
) -> None:
    for attempt in (
        lambda: ledger.holders(bad),
        lambda: ledger.put(make_record(A, bad)),
        lambda: ledger.lock(frozenset({"gpu-0", bad}), 1),
    ):
        with pytest.raises(GiveUp, match="is not a device name"):
            attempt()
    assert not directory.exists()


def test_foreign_files_are_not_records(ledger: FileLedger, directory: Path, make_record: MakeRecord) -> None:
    ledger.put(make_record(A, "gpu-0"))
    for name in ("README", "x.yaml", ".json", "a.b.json"):
        (directory / "claims" / name).touch()
    assert ledger.uids() == {A}
    ledger.sweep()
    assert len(list((directory / "claims").iterdir())) == 5


# File systems that refuse -----------------------------------------------------------------------------------------


def test_a_full_file_system_keeps_the_old_record(mount: Mount, make_record: MakeRecord) -> None:
    place = mount("size=64k")
    ledger = FileLedger(str(place))
    old = make_record(A, "gpu-0")
    ledger.put(old)
    with (place / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    with pytest.raises(RetryLater, match=r"writing the record of claim claim-a: .*no space .*; free some"):
        ledger.put(make_record(A, "gpu-0", phase=Phase.READY))
    assert ledger.find(A) == old
    assert not list((place / "claims").glob(".*"))
    ledger.drop(A)
    assert ledger.find(A) is None


def test_no_inodes_left(mount: Mount, make_record: MakeRecord) -> None:
    place = mount("nr_inodes=8")
    ledger = FileLedger(str(place))
    ledger.put(make_record(A, "gpu-0"))

    def fill() -> None:
        for number in range(8):
            ledger.put(make_record(f"claim-{number}", f"gpu-{number}"))

    with pytest.raises(RetryLater, match="no space or no inodes"):
        fill()
    assert ledger.holders("gpu-0") >= {A}
    assert {uid for uid in ledger.uids() if ledger.find(uid) is None} == set()


def test_a_read_only_file_system_keeps_everything_readable(mount: Mount, make_record: MakeRecord) -> None:
    place = mount("size=64k")
    ledger = FileLedger(str(place))
    old = make_record(A, "gpu-0")
    ledger.put(old)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    for attempt in (
        lambda: ledger.put(make_record(A, "gpu-0", phase=Phase.READY)),
        lambda: ledger.put(make_record(B, "gpu-1")),
        lambda: ledger.drop(A),
    ):
        with pytest.raises(RetryLater, match=r"read-only; mount it writable"):
            attempt()
    assert (ledger.find(A), ledger.holders("gpu-0"), ledger.uids()) == (old, {A}, {A})


# Killed writers ---------------------------------------------------------------------------------------------------

WRITER = """
import sys
from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.record import ClaimRecord, Effect, Phase
from dra_driver.state.ledger import FileLedger
ledger = FileLedger(sys.argv[1])
n = 0
while True:
    n += 1
    held = tuple(AllocationResult("r", "p", f"gpu-{i}") for i in range(n % 5))
    effects = tuple(Effect("kind:gpu", "t" * 400, {"n": str(n)}) for _ in range(n % 50))
    ledger.put(ClaimRecord(ClaimRef("claim-a", "team", "train"), Phase.STARTED, "b", held, effects))
    if n % 10 == 0:
        ledger.drop("claim-a")
"""


def test_a_writer_killed_in_a_loop_leaves_no_torn_record_and_a_right_index(directory: Path) -> None:
    found = 0
    for round_number in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)])
        try:
            until = time.monotonic() + 10
            while not (directory / "claims").exists():
                assert time.monotonic() < until
                time.sleep(0.005)
            until = time.monotonic() + 0.12 + round_number * 0.0137
            reader = reopened(directory)
            while time.monotonic() < until:
                found += reader.find(A) is not None
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        after = reopened(directory)
        for _ in ("before the sweep", "after it"):
            record = after.find(A)
            held = record.held_devices if record else frozenset()
            assert {device for device in (f"gpu-{n}" for n in range(5)) if after.holders(device)} == held
            assert after.damaged() == ()
            after.sweep()
        assert after.sweep() == Swept()
        assert not list((directory / "claims").glob(".*"))
    assert found > 20
