"""What is published of a GPU that nobody has seen since the start, because it was lost before."""

from __future__ import annotations

from dra_driver.core.catalog import Catalog, recorded
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.device import PreparedDevice, Taint
from dra_driver.model.errors import TellUser
from dra_driver.model.gpu import Inventory
from dra_driver.model.record import ClaimRecord, Phase

DEVICE = "gpu-0000-3b-00-0"


class NoGpus:
    def inventory(self) -> Inventory:
        return Inventory(gpus=(), driver_problem="no driver")


class Ignored:
    def __getattr__(self, _: str):
        return lambda *_: None


class Records:
    def __init__(self, *records: ClaimRecord) -> None:
        self.records = {record.ref.uid: record for record in records}

    def uids(self) -> frozenset[str]:
        return frozenset(self.records) | {"newer"}

    def find(self, uid: str) -> ClaimRecord:
        if uid == "newer":
            raise TellUser("reading a record", "a newer version wrote it")
        return self.records[uid]


def record(uid: str, *, admin: bool = False) -> ClaimRecord:
    result = AllocationResult("gpu", "node", DEVICE, admin)
    prepared = PreparedDevice("gpu", "node", DEVICE, "gpu", "GPU-1", ("id",), admin_access=admin)
    return ClaimRecord(ClaimRef(uid, "default", uid), Phase.READY, "boot", (result,), (), (prepared,))


def catalog(ledger: Records, held: frozenset[str]) -> Catalog:
    kinds = (GpuKind(Ignored(), Ignored()),)
    return Catalog(NoGpus(), kinds, held.__contains__, Ignored(), "gpu-lost", recorded=lambda: recorded(ledger))


def test_a_held_gpu_that_was_lost_before_the_start_is_published_with_a_taint_until_it_is_released() -> None:
    held = {DEVICE}
    one = catalog(Records(record("a")), held)  # type: ignore[arg-type]
    for _ in range(2):
        (device,) = one.refresh()
        assert device.taints == (Taint("gpu-lost", "lost", "NoSchedule"),)
        assert device.attributes == {"type": "gpu", "uuid": "GPU-1"}
    assert one.present == {}
    held.clear()
    assert one.refresh() == ()


def test_who_only_looked_on_keeps_nothing_published() -> None:
    assert catalog(Records(record("a", admin=True)), frozenset()).refresh() == ()
