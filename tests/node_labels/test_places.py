"""Labels in a file for NFD, and on a Node by server-side apply. The API server here keeps account of owners as the real one does;
e2e/tests/test_node_labels.py asks the real one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.errors import DriverError, RetryLater, TellUser
from dra_driver.model.gpu import GpuProblem, Inventory
from dra_driver.node_labels.keeper import LabelKeeper
from dra_driver.node_labels.places import FeaturesFile, NodeObject
from dra_driver.node_labels.table import Machine
from tests.kubelet.fake_kubelet import eventually
from tests.node_labels.test_table import gpu

LABELS = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-L4"}
OURS = "gpu.nvidia.com-node-labels"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Node:
    """Implements `ports.ResourceApi` for one Node."""

    def __init__(self) -> None:
        self.labels = {"kubernetes.io/os": "linux"}
        self.applied: dict[str, frozenset[str]] = {}
        self.patches: list[dict[str, Any]] = []
        self.failure: DriverError | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        assert path == "/api/v1/nodes/node-1"
        if self.failure is not None:
            raise self.failure
        if method == "PATCH":
            assert body is not None
            assert query == {"fieldManager": OURS, "force": "false"}
            assert content_type == "application/apply-patch+yaml"
            assert body["metadata"]["uid"] == "u1"
            self.patches.append(dict(body["metadata"]["labels"]))
            self.apply(OURS, body["metadata"]["labels"])
        entries = [
            {
                "manager": manager,
                "operation": "Apply",
                "fieldsV1": {"f:metadata": {"f:labels": {f"f:{name}": {} for name in names}}},
            }
            for manager, names in self.applied.items()
        ]
        return {"metadata": {"name": "node-1", "uid": "u1", "labels": dict(self.labels), "managedFields": entries}}

    def apply(self, manager: str, labels: Mapping[str, str]) -> None:
        for name in self.applied.get(manager, frozenset()) - labels.keys():
            if not any(name in names for other, names in self.applied.items() if other != manager):
                del self.labels[name]
        self.labels |= labels
        self.applied[manager] = frozenset(labels)

    def overwrite(self, name: str, value: str) -> None:
        """As `kubectl label --overwrite` does: nobody who applied it keeps it."""
        self.labels[name] = value
        self.applied = {manager: names - {name} for manager, names in self.applied.items()}

    def ask(self, paths: Sequence[str]) -> Sequence[Callable[[], dict[str, Any]]]:
        raise AssertionError("nobody asks for several")

    def watch(self, *_: object) -> None:
        raise AssertionError("nobody watches a Node for its labels")


def test_a_file_for_nfd_is_written_when_something_changes_and_long_before_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "gpu.nvidia.com"
    place = FeaturesFile(path, clock)
    place.put(LABELS)
    lines = ["# +expiry-time=2026-11-22T12:00:00Z", "nvidia.com/gpu.count=8", "nvidia.com/gpu.product=NVIDIA-L4"]
    assert path.read_text().splitlines() == lines
    assert path.stat().st_mode & 0o777 == 0o644
    first = path.stat().st_ino
    clock.now += timedelta(hours=11)
    place.put(LABELS)
    assert path.stat().st_ino == first, "nothing has changed"
    clock.now += timedelta(hours=2)
    place.put(LABELS)
    assert path.read_text().startswith("# +expiry-time=2026-11-23T01:00:00Z\n")
    place.put({"nvidia.com/gpu.count": "7"})
    assert path.read_text().splitlines()[1:] == ["nvidia.com/gpu.count=7"]
    place.put({})
    assert not path.exists()
    assert not list(tmp_path.iterdir()), "nothing beside it that NFD would read"


@pytest.mark.parametrize("damage", ["", "\n", "# +expiry-time=soon\nnvidia.com/gpu.count=8\n", "\x00\xff"])
def test_a_file_that_somebody_damaged_is_written_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "features"
    path.write_text(damage)
    FeaturesFile(path, Clock()).put({"nvidia.com/gpu.count": "8"})
    assert path.read_text() == "# +expiry-time=2026-11-22T12:00:00Z\nnvidia.com/gpu.count=8\n"


def test_without_nfd_nothing_is_written_and_the_way_out_is_told(tmp_path: Path) -> None:
    place = FeaturesFile(tmp_path / "features.d" / "gpu.nvidia.com")
    with pytest.raises(TellUser, match="install Node Feature Discovery, or set node-labels: node"):
        place.put(LABELS)
    place.put({})
    assert place.remove() is False


def test_labels_are_applied_once_and_go_without_those_of_others() -> None:
    node = Node()
    place = NodeObject(node, "node-1", OURS)
    for _ in range(3):
        assert place.put(LABELS) == []
        NodeObject(node, "node-1", OURS).put(LABELS)  # an agent that starts anew
    assert node.labels == {"kubernetes.io/os": "linux", **LABELS}
    assert node.patches == [LABELS]
    place.put({"nvidia.com/gpu.count": "7"})
    assert node.labels == {"kubernetes.io/os": "linux", "nvidia.com/gpu.count": "7"}
    assert place.remove() is True
    assert node.labels == {"kubernetes.io/os": "linux"}
    assert place.remove() is False


def test_labels_that_somebody_else_keeps_otherwise_are_left_alone_and_told() -> None:
    node = Node()
    node.overwrite("nvidia.com/gpu.product", "Tesla-T4")
    place = NodeObject(node, "node-1", OURS)
    assert place.put(LABELS) == ["nvidia.com/gpu.product"]
    assert node.labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert node.labels["nvidia.com/gpu.count"] == "8"
    place.remove()
    assert node.labels["nvidia.com/gpu.product"] == "Tesla-T4"


def test_a_label_that_a_person_overwrote_is_the_persons() -> None:
    node = Node()
    NodeObject(node, "node-1", OURS).put(LABELS)
    node.overwrite("nvidia.com/gpu.count", "1")
    assert NodeObject(node, "node-1", OURS).put(LABELS) == ["nvidia.com/gpu.count"]
    assert node.labels["nvidia.com/gpu.count"] == "1"


def test_labels_that_another_tool_has_with_the_same_values_are_shared() -> None:
    node = Node()
    node.apply("nfd-master", LABELS)
    place = NodeObject(node, "node-1", OURS)
    assert place.put(LABELS) == []
    place.remove()
    assert LABELS.items() <= node.labels.items()


class Kept:
    """A place that remembers."""

    def __init__(self, *, there: bool = False) -> None:
        self.put_there: list[dict[str, str]] = []
        self.there = there
        self.failures: list[DriverError] = []

    def put(self, labels: Mapping[str, str]) -> Collection[str]:
        if self.failures:
            raise self.failures.pop(0)
        self.put_there.append(dict(labels))
        return ()

    def remove(self) -> bool:
        if self.failures:
            raise self.failures.pop(0)
        was, self.there = self.there, False
        return was


class Bench:
    def __init__(self, chosen: str, **places: Kept) -> None:
        self.inventory: Inventory | None = None
        self.keeper = LabelKeeper(
            chosen, places, lambda: self.inventory, lambda _: Machine("DGX", "0x030200"), interval_s=0.01
        )

    def __enter__(self) -> Bench:
        self.keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.keeper.stop()


def test_labels_follow_the_gpus_but_not_their_troubles() -> None:
    place = Kept()
    with Bench("node", node=place) as bench:
        bench.inventory = Inventory((gpu(0), gpu(1)))
        eventually(lambda: place.put_there and place.put_there[-1]["nvidia.com/gpu.count"] == "2")
        bench.inventory = Inventory((gpu(0),), problems=(GpuProblem("0000:01:00.0", "it is lost"),))
        seen = len(place.put_there)
        eventually(lambda: len(place.put_there) > seen + 2)
        bench.inventory = Inventory((), driver_problem="the driver is being reloaded")
        seen = len(place.put_there)
        eventually(lambda: len(place.put_there) > seen + 2)
        assert {put["nvidia.com/gpu.count"] for put in place.put_there} == {"2"}
        bench.inventory = Inventory((gpu(0),))
        eventually(lambda: place.put_there[-1]["nvidia.com/gpu.count"] == "1")
        bench.inventory = Inventory(())
        eventually(lambda: place.put_there[-1] == {})


def test_labels_of_before_stay_while_the_driver_is_not_there_yet() -> None:
    place = Kept()
    with Bench("node", node=place) as bench:
        bench.inventory = Inventory((), driver_problem="no driver")
        bench.inventory = Inventory((gpu(0),))
        eventually(lambda: place.put_there)
        assert {} not in place.put_there


def test_what_another_setting_left_is_removed_also_when_that_takes_several_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    there, refused = Kept(there=True), Kept(there=True)
    there.failures = [RetryLater("removing", "the API server is down")]
    refused.failures = [TellUser("removing", "403", "allow it")]
    bench = Bench("off", node=there, file=refused)
    with bench:
        eventually(lambda: not there.there)
        eventually(lambda: bench.keeper._thread is not None and not bench.keeper._thread.is_alive(), why="it ends")
    assert [record.getMessage() for record in caplog.records] == [
        "labels of this node that node-labels: file had put there may be left: removing: 403; allow it",
        "removed the labels of this node that node-labels: node had put there",
    ]


def test_trouble_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place = Kept()
    place.failures = [TellUser("labelling node-1", "403", "allow verb 'patch' on nodes") for _ in range(3)]
    with Bench("node", node=place) as bench:
        bench.inventory = Inventory((gpu(0),))
        eventually(lambda: place.put_there)
        eventually(lambda: len(caplog.records) == 2)
    assert "labelling this node: labelling node-1: 403" in caplog.records[0].getMessage()
    assert caplog.records[1].getMessage().startswith("over: ")
