"""Real directories and records for the ledger's tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.record import ClaimRecord, Effect, Phase
from dra_driver.state.ledger import FileLedger

MakeRecord = Callable[..., ClaimRecord]
Mount = Callable[[str], Path]


def reopened(directory: Path) -> FileLedger:
    return FileLedger(str(directory))


def tear(directory: Path, uid: str) -> Path:
    """Cuts a record in half, as no writer of ours would."""
    path = directory / "claims" / f"{uid}.json"
    path.write_bytes(path.read_bytes()[:50])
    return path


@pytest.fixture
def make_record() -> MakeRecord:
    def make(uid: str, *devices: str, admin: tuple[str, ...] = (), phase: Phase = Phase.STARTED) -> ClaimRecord:
        results = tuple(AllocationResult("gpu", "node-a", device) for device in devices)
        looking_on = tuple(AllocationResult("monitor", "node-a", device, admin_access=True) for device in admin)
        effect = Effect("kind:gpu", "compute-mode", {"prior": "default"})
        return ClaimRecord(ClaimRef(uid, "team", "train"), phase, "boot-1", results + looking_on, (effect,))

    return make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def ledger(directory: Path) -> FileLedger:
    return FileLedger(str(directory))


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a tmpfs with these options; skips where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mounted: list[Path] = []

    def make(options: str) -> Path:
        place = tmp_path / f"mount-{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"mount is not allowed here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
