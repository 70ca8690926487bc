from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dra_driver.model.device import Taint
from tests.controller.conftest import NODE, SLICES, Bench, device, until


def test_errors_are_retried_and_counted_and_the_first_wake_does_not_hurry_them(bench: Bench) -> None:
    bench.stub.fail("POST", "resourceslices", 500, times=2)
    bench.stub.fail("GET", "/nodes/", 404)
    bench.publisher.start()
    for _ in range(50):
        bench.publisher.wake()
    until(lambda: ("create", "ok") in bench.counts.slices, 10)
    assert bench.counts.slices == [("create", "retry"), ("create", "retry"), ("create", "ok")]
    assert bench.looks == 4


def test_a_429_is_waited_out_as_asked(bench: Bench) -> None:
    bench.stub.fail("POST", "resourceslices", 429, headers={"Retry-After": "2"})
    began = time.monotonic()
    bench.publisher.start()
    until(bench.settled, 6)
    assert time.monotonic() - began >= 2


def test_a_conflict_is_resolved_from_a_new_list(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.stub.fail("PUT", "resourceslices", 409, reason="Conflict")
    bench.publish([device("gpu-9")])
    assert ("update", "retry") in bench.counts.slices


def test_a_refusal_is_retried_for_ever_and_the_thread_lives_on(bench: Bench) -> None:
    fault = bench.stub.fail("POST", "resourceslices", 422, message="no", times=None)
    bench.publisher.start()
    until(lambda: len(bench.counts.slices) >= 2)
    assert set(bench.counts.slices) == {("create", "tell_user")}
    bench.stub.faults.remove(fault)
    until(bench.settled, 10)


def test_a_delete_that_is_forbidden_keeps_no_device_from_being_published(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    [kept] = bench.stub.list(SLICES)
    stray = {
        **kept,
        "metadata": {"name": "stray"},
        "spec": {**kept["spec"], "pool": {**kept["spec"]["pool"], "name": "x"}},
    }
    fault = bench.stub.fail("DELETE", "stray", 403, times=None)
    bench.stub.put(SLICES, stray)
    until(lambda: ("delete", "tell_user") in bench.counts.slices)
    bench.stub.mutate = lambda item: [one.pop("taints", None) for one in item["spec"]["devices"]] and None
    bench.devices = [device("gpu-9", taints=(Taint("gpu.nvidia.com/xid", "79", "NoSchedule"),))]
    bench.publisher.wake()
    until(lambda: ("update", "ok") in bench.counts.slices, 10)
    until(lambda: [dropped.fields for dropped in bench.dropped] == [("devices.taints",)])
    bench.stub.faults.remove(fault)
    until(bench.settled, 20)


def test_a_caller_that_fails_does_not_end_the_publisher(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.devices = None  # type: ignore[assignment]
    bench.publisher.start()
    until(lambda: "next try" in caplog.text)
    bench.devices = [device("gpu-0")]
    until(bench.settled)


def test_fields_that_the_server_drops_are_adopted_and_reported_once_by_gate(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def gate_off(item: dict[str, Any]) -> None:
        for one in item["spec"]["devices"]:
            one.pop("taints", None)

    bench.stub.mutate = gate_off
    bench.devices = [device("gpu-0", taints=(Taint("gpu.nvidia.com/xid", "79", "NoSchedule"),)), device("gpu-1")]
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    for _ in range(3):
        bench.publish()
    time.sleep(0.7)
    assert len(bench.stub.writes()) == 1
    [dropped] = bench.dropped
    assert dropped.fields == ("devices.taints",)
    assert dropped.gates == ("DRADeviceTaints",)
    assert caplog.text.count("DRADeviceTaints") == 1
    bench.publish([*bench.devices, device("gpu-2")])
    assert len(bench.stub.writes()) == 2
    assert len(bench.dropped) == 1


def test_a_taint_keeps_the_time_that_the_server_gave_it(bench: Bench) -> None:
    stamped = 0

    def stamp(item: dict[str, Any]) -> None:
        nonlocal stamped
        for one in item["spec"]["devices"]:
            for taint in one.get("taints", []):
                if "timeAdded" not in taint:
                    stamped += 1
                    taint["timeAdded"] = f"2026-11-20T08:00:{stamped:02}Z"

    bench.stub.mutate = stamp
    bench.devices = [device("gpu-0", taints=(Taint("gpu.nvidia.com/xid", "79", "NoExecute"),))]
    bench.publisher.start()
    until(bench.settled)
    bench.publish()
    bench.publish([*bench.devices, device("gpu-1")])
    assert stamped == 1
    assert bench.slices()[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-11-20T08:00:01Z"
    assert not bench.dropped


def test_an_attribute_that_is_too_long_is_left_out_alone_and_said_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.devices = [device("gpu-0", productName="x" * 65)]
    bench.publisher.start()
    until(bench.settled)
    bench.publish()
    assert "productName" not in bench.slices()[0]["spec"]["devices"][0]["attributes"]
    assert caplog.text.count("attribute 'productName' left out") == 1


def test_an_older_api_server_gets_its_own_shape_and_an_upgrade_is_followed(bench: Bench) -> None:
    bench.stub.served = ["v1beta1"]
    bench.publisher.start()
    until(bench.settled)
    [item] = bench.slices()
    assert item["apiVersion"] == "resource.k8s.io/v1beta1"
    assert item["spec"]["devices"][0]["basic"]["capacity"] == {"memory": {"value": "81559Mi"}}
    bench.watching()
    bench.stub.served = ["v1"]
    bench.devices = [device("gpu-7")]
    bench.publisher.wake()
    until(lambda: bench.published() == ["gpu-7"], 10)
    until(lambda: bench.stub.count("GET", "/v1/resourceslices.*watch=true") > 0)
    assert "attributes" in bench.slices()[0]["spec"]["devices"][0]


def test_a_changed_node_uid_is_the_owner_of_what_is_written_next(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.stub.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid-2"}})
    bench.publish([device("gpu-5")])
    assert bench.slices()[0]["metadata"]["ownerReferences"][0]["uid"] == "node-uid-2"


def test_stop_is_quick_leaves_the_slices_and_start_works_again(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    began = time.monotonic()
    bench.publisher.stop()
    assert time.monotonic() - began < 1
    until(lambda: not [t for t in threading.enumerate() if t.name in ("publisher", "slices")])
    assert bench.published() == ["gpu-0", "gpu-1"]
    bench.devices = [device("gpu-3")]
    bench.publisher.start()
    until(bench.settled)


def test_stop_during_an_outage_is_quick(bench: Bench) -> None:
    bench.stub.fail("GET", "resourceslices", 500, times=None)
    bench.publisher.start()
    until(lambda: bench.stub.count("GET", "resourceslices") > 0)
    began = time.monotonic()
    bench.publisher.stop()
    assert time.monotonic() - began < 1


def test_nothing_happens_before_start(bench: Bench) -> None:
    bench.publisher.wake()
    bench.publisher.stop()
    assert bench.looks == 0
    assert not bench.stub.requests


def test_many_devices_that_change_at_once_end_as_one_complete_pool(bench: Bench) -> None:
    bench.devices = [device(f"gpu-{n:03}") for n in range(300)]
    bench.publisher.start()
    until(bench.settled)
    bench.publish([replace(one, capacity={"memory": 1}) for one in bench.devices])
    until(lambda: bench.slices()[0]["spec"]["devices"][0]["capacity"]["memory"]["value"] == "1")
    until(lambda: {s["spec"]["pool"]["generation"] for s in bench.slices()} == {2})
    assert [s["spec"]["pool"]["resourceSliceCount"] for s in bench.slices()] == [3, 3, 3]


class Meanwhile:
    """Holds back the answer to one request until `act` has been done and the watch has told of a deletion."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[], None]) -> None:
        self.happened = False
        told = threading.Event()
        request, watch = bench.api.request, bench.api.watch

        def held_back(asked: str, path: str, **more: Any) -> dict[str, Any]:
            answer = request(asked, path, **more)
            if self.armed and asked == method and "resourceslices" in path:
                self.armed = False
                act()
                self.happened = told.wait(5)
            return answer

        def watched(path: str, query: Any, on_event: Callable[[str, Any], None], *more: Any) -> None:
            def heard(kind: str, item: Any) -> None:
                on_event(kind, item)
                if kind == "DELETED" and not self.armed:
                    told.set()

            watch(path, query, heard, *more)

        self.armed = False
        monkeypatch.setattr(bench.api, "request", held_back)
        monkeypatch.setattr(bench.api, "watch", watched)


def _delete_all(bench: Bench) -> None:
    for item in bench.slices():
        bench.stub.delete(SLICES, item["metadata"]["name"])


def test_a_slice_that_is_deleted_before_the_answer_to_its_creation_comes_is_published_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = Meanwhile(bench, monkeypatch, "POST", lambda: _delete_all(bench))
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    meanwhile.armed = True
    _delete_all(bench)
    until(lambda: meanwhile.happened)
    until(bench.settled)
    assert bench.stub.count("POST") == 3


def test_a_slice_that_is_deleted_while_it_is_being_listed_is_published_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_back(_verb: str, result: str) -> None:
        if result == "retry":
            bench.devices.pop()

    meanwhile = Meanwhile(bench, monkeypatch, "GET", lambda: _delete_all(bench))
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    meanwhile.armed = True
    bench.stub.fail("PUT", "resourceslices", 500)  # so it lists, and by then there is nothing to be changed any more
    monkeypatch.setattr(bench.counts, "slice_written", changed_back)
    bench.devices.append(device("gpu-2"))
    bench.publisher.wake()
    until(lambda: meanwhile.happened)
    until(bench.settled)
