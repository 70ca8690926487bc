from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kubernetes.client.models.core_v1_event import CoreV1Event

from dra_driver.kube.client import KubeApi
from dra_driver.kube.events import ApiEvents
from dra_driver.model.claim import ClaimRef
from tests.kube.stub_api import StubApi

REF = ClaimRef("u1", "ml", "train")


def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def events(api: KubeApi) -> Iterator[ApiEvents]:
    made = ApiEvents(api, "gpu.nvidia.com", "node-1", repeat_s=0.2)
    yield made
    made.stop(0.5)


def test_an_event_on_the_claim_is_what_kubernetes_expects(stub: StubApi, events: ApiEvents) -> None:
    events.warn(REF, "PrepareFailed", "the GPU is on fire")
    until(lambda: len(stub.list("events")) == 1)
    [event] = stub.list("events")
    CoreV1Event.model_validate(event)
    assert event["involvedObject"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "namespace": "ml",
        "name": "train",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "PrepareFailed", "the GPU is on fire")
    assert event["source"] == {"component": "gpu.nvidia.com", "host": "node-1"}
    assert event["reportingComponent"] == "gpu.nvidia.com"
    assert event["count"] == 1
    assert event["metadata"]["namespace"] == "ml"
    time.strptime(event["lastTimestamp"], "%Y-%m-%dT%H:%M:%SZ")
    assert "eventTime" not in event


def test_an_event_on_the_node_is_where_kubectl_describe_node_looks(stub: StubApi, events: ApiEvents) -> None:
    events.warn_node("DevicePluginBeside", "somebody else gives GPUs away")
    until(lambda: len(stub.list("events")) == 1)
    [event] = stub.list("events")
    CoreV1Event.model_validate(event)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["reason"]) == ("Warning", "DevicePluginBeside")


def test_repeats_are_counted_not_multiplied(stub: StubApi, events: ApiEvents) -> None:
    for _ in range(500):
        events.warn(REF, "PrepareFailed", "again")
    until(lambda: bool(stub.list("events")) and stub.list("events")[0]["count"] == 500)
    assert len(stub.writes()) <= 3
    events.warn(REF, "PrepareFailed", "something else")
    events.warn(ClaimRef("u2", "ml", "train"), "PrepareFailed", "again")
    until(lambda: len(stub.list("events")) == 3)


def test_an_event_that_has_expired_is_made_anew(stub: StubApi, events: ApiEvents) -> None:
    events.warn(REF, "PrepareFailed", "again")
    until(lambda: len(stub.list("events")) == 1)
    stub.delete("events", stub.list("events")[0]["metadata"]["name"], "ml")
    events.warn(REF, "PrepareFailed", "again")
    until(lambda: len(stub.list("events")) == 1)
    assert stub.list("events")[0]["count"] == 1


def test_warn_never_waits_and_what_cannot_be_kept_is_counted(stub: StubApi, events: ApiEvents) -> None:
    stub.fail("POST", "events", 500, delay_s=0.5, times=None)
    began = time.monotonic()
    for n in range(1000):
        events.warn(ClaimRef(f"u{n}", "ml", f"c{n}"), "PrepareFailed", "x")
    assert time.monotonic() - began < 0.5
    assert events.dropped >= 700


def test_a_refused_event_is_dropped_and_the_next_one_sent(stub: StubApi, events: ApiEvents) -> None:
    stub.fail("POST", "events", 403)
    events.warn(REF, "PrepareFailed", "first")
    until(lambda: events.dropped == 1)
    events.warn(REF, "PrepareFailed", "second")
    until(lambda: [e["message"] for e in stub.list("events")] == ["second"])


def test_a_long_message_is_cut_to_what_the_server_takes(stub: StubApi, events: ApiEvents) -> None:
    events.warn(REF, "R" * 200, "ü" * 2000)
    until(lambda: len(stub.list("events")) == 1)
    [event] = stub.list("events")
    assert len(event["message"].encode()) <= 1024
    assert len(event["reason"]) == 128


def test_no_thread_runs_before_the_first_event_and_stop_sends_what_waits(stub: StubApi, api: KubeApi) -> None:
    events = ApiEvents(api, "gpu.nvidia.com", "node-1")
    assert not [thread for thread in threading.enumerate() if thread.name == "events"]
    events.warn(REF, "PrepareFailed", "once")
    until(lambda: len(stub.list("events")) == 1)
    events.warn(REF, "PrepareFailed", "once")
    events.stop()
    assert stub.list("events")[0]["count"] == 2
    assert not [thread for thread in threading.enumerate() if thread.name == "events"]
    events.warn(REF, "PrepareFailed", "too late")
