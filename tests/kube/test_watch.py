from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError
from urllib3.response import BaseHTTPResponse

from dra_driver.kube.client import KubeApi
from dra_driver.kube.watch import ListWatch
from tests.kube.stub_api import StubApi

PATH = "/apis/resource.k8s.io/v1/resourceslices"
SLICES = "resource.k8s.io/resourceslices"


def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Follower:
    def __init__(self, api: KubeApi, query: dict[str, str] | None = None) -> None:
        self.api = api
        self.lists: list[list[str]] = []
        self.events: list[tuple[str, str]] = []
        self.stop_asked = threading.Event()
        self.fail_on = ""
        self.thread = threading.Thread(
            target=api.watch, args=(PATH, query or {}, self._event, self._sync, self.stop_asked.is_set), daemon=True
        )
        self.thread.start()

    def _event(self, kind: str, item: dict[str, Any]) -> None:
        if item["metadata"]["name"] == self.fail_on:
            raise RuntimeError("receiver is unwell")
        self.events.append((kind, item["metadata"]["name"]))

    def _sync(self, items: Any) -> None:
        self.lists.append([item["metadata"]["name"] for item in items])

    def stop(self) -> float:
        began = time.monotonic()
        self.stop_asked.set()
        self.api.interrupt()
        self.thread.join(5)
        assert not self.thread.is_alive()
        return time.monotonic() - began


@pytest.fixture
def follow(api: KubeApi) -> Iterator[Callable[..., Follower]]:
    made: list[Follower] = []

    def begin(query: dict[str, str] | None = None) -> Follower:
        made.append(Follower(api, query))
        return made[-1]

    yield begin
    api.close()
    for one in made:
        one.thread.join(5)
        assert not one.thread.is_alive()


def put(stub: StubApi, name: str, **spec: Any) -> None:
    stub.put(SLICES, {"metadata": {"name": name}, "spec": spec})


def test_it_lists_and_then_tells_what_changes(stub: StubApi, follow: Callable[..., Follower]) -> None:
    put(stub, "a", n=1)
    follower = follow()
    until(lambda: stub.open_watches == 1)
    put(stub, "b", n=1)
    put(stub, "a", n=2)
    stub.delete(SLICES, "b")
    until(lambda: len(follower.events) == 3)
    assert follower.lists == [["a"]]
    assert follower.events == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_it_asks_for_bookmarks_a_bounded_time_and_its_selector(stub: StubApi, follow: Callable[..., Follower]) -> None:
    follow({"fieldSelector": "spec.driver=d,spec.nodeName=n"})
    until(lambda: stub.open_watches == 1)
    watch = next(r.url for r in stub.requests if "watch=true" in r.url)
    assert "allowWatchBookmarks=true" in watch
    assert 240 <= int(watch.split("timeoutSeconds=")[1].split("&")[0]) <= 480
    assert "fieldSelector=spec.driver%3Dd%2Cspec.nodeName%3Dn" in watch


def test_a_long_list_is_read_in_pages(stub: StubApi, follow: Callable[..., Follower]) -> None:
    for n in range(1201):
        put(stub, f"s{n:04}")
    follower = follow()
    until(lambda: bool(follower.lists))
    assert len(follower.lists[0]) == 1201
    assert stub.count("GET", "limit=500") == 3


def test_after_a_clean_end_it_goes_on_where_it_was_without_a_new_list(
    stub: StubApi, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    until(lambda: stub.open_watches == 1)
    put(stub, "a")
    until(lambda: len(follower.events) == 1)
    stub._server.close_connections()
    until(lambda: stub.count("GET", "watch=true") == 2, 5)
    put(stub, "b")
    until(lambda: len(follower.events) == 2)
    assert follower.events == [("ADDED", "a"), ("ADDED", "b")]
    assert len(follower.lists) == 1


def test_bookmarks_move_the_place_to_go_on_from(stub: StubApi, follow: Callable[..., Follower]) -> None:
    stub.bookmark_s = 0.05
    follow()
    until(lambda: stub.open_watches == 1)
    stub.put("resource.k8s.io/resourceclaims", {"metadata": {"name": "other", "namespace": "x"}})
    version = stub.version
    time.sleep(0.3)
    stub._server.close_connections()
    until(lambda: stub.count("GET", f"watch=true.*resourceVersion={version}") == 1)


@pytest.mark.parametrize("kind", ["in the stream", "as the answer"])
def test_a_410_lists_again_at_once(stub: StubApi, follow: Callable[..., Follower], kind: str) -> None:
    if kind == "as the answer":
        stub.fail("GET", "watch=true", 410, reason="Expired")
    else:
        gone = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}'
        stub.raw_lines = [gone]
    follower = follow()
    until(lambda: len(follower.lists) == 2, 1)
    until(lambda: stub.count("GET", "watch=true") == 2, 1)


@pytest.mark.parametrize(
    "trouble", ["refused", "forbidden", "closed at once", "expired for ever", "dropped", "list fails"]
)
def test_whatever_goes_wrong_the_server_sees_a_handful_of_requests(
    stub: StubApi, follow: Callable[..., Follower], trouble: str
) -> None:
    if trouble == "closed at once":
        stub.close_watches_at_once = True
    elif trouble == "expired for ever":
        stub.fail("GET", "watch=true", 410, times=None)
    elif trouble == "forbidden":
        stub.fail("GET", "resourceslices", 403, times=None)
    elif trouble == "dropped":
        stub.fail("GET", "watch=true", drop=True, times=None)
    elif trouble == "list fails":
        stub.fail("GET", "limit", 500, times=None)
    else:
        stub.fail("GET", "watch=true", 503, times=None)
    follower = follow()
    time.sleep(4)
    assert 2 <= stub.count("GET") <= 12
    assert follower.stop() < 0.5


def test_a_429_is_waited_out(stub: StubApi, follow: Callable[..., Follower]) -> None:
    stub.fail("GET", "watch=true", 429, headers={"Retry-After": "2"})
    follow()
    until(lambda: stub.open_watches == 1)
    first, second = (r.at for r in stub.requests if "watch=true" in r.url)
    assert second - first >= 2


def test_one_poisoned_event_is_skipped_and_counted_not_fatal(
    stub: StubApi, api: KubeApi, follow: Callable[..., Follower], caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"type": "ADDED", "object": {"metadata": {"name": "x", "resourceVersion": "101"}}}'
    poison = [
        b"{",
        b"[]",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": 5}',
        b'{"type": "ADDED", "object": {}}',
        b"",
    ]
    stub.raw_lines = [*poison, good]
    with caplog.at_level(logging.WARNING):
        follower = follow()
        until(lambda: len(follower.events) == 1)
    assert api.watch_events_skipped == 5
    assert "cannot be read" in caplog.text
    assert stub.count("GET", "watch=true") == 1


def test_a_receiver_that_fails_does_not_end_the_watch(
    stub: StubApi, api: KubeApi, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    follower.fail_on = "bad"
    until(lambda: stub.open_watches == 1)
    put(stub, "bad")
    put(stub, "good")
    until(lambda: follower.events == [("ADDED", "good")])
    assert api.watch_events_skipped == 1


def test_stop_is_quick_while_nothing_happens(stub: StubApi, follow: Callable[..., Follower]) -> None:
    follower = follow()
    until(lambda: stub.open_watches == 1)
    assert follower.stop() < 0.5


def test_stop_is_quick_while_it_waits_to_try_again(stub: StubApi, follow: Callable[..., Follower]) -> None:
    stub.fail("GET", "watch=true", 429, times=None, headers={"Retry-After": "60"})
    follower = follow()
    until(lambda: stub.count("GET", "watch=true") == 1)
    time.sleep(0.1)
    assert follower.stop() < 0.5


def test_an_interrupt_meant_for_another_watch_costs_no_event(
    stub: StubApi, api: KubeApi, follow: Callable[..., Follower]
) -> None:
    stays, goes = follow(), follow()
    until(lambda: stub.open_watches == 2)
    goes.stop()
    put(stub, "a")
    until(lambda: stays.events == [("ADDED", "a")])
    assert len(stays.lists) == 1


def test_closing_the_client_ends_all_watches(stub: StubApi, api: KubeApi, follow: Callable[..., Follower]) -> None:
    followers = [follow(), follow()]
    until(lambda: stub.open_watches == 2)
    api.close()
    for one in followers:
        one.thread.join(1)
        assert not one.thread.is_alive()


class HalfOpen:
    """A server that lists and then says nothing, as a connection that a firewall forgot."""

    watch_events_skipped = 0

    def __init__(self) -> None:
        self.lists = 0
        self.timeouts: list[float] = []
        self.queries: list[dict[str, str]] = []

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        self.lists += 1
        return {"metadata": {"resourceVersion": "7"}, "items": None}

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> BaseHTTPResponse:
        self.timeouts.append(read_timeout_s)
        self.queries.append(dict(query))
        raise ReadTimeoutError(HTTPConnectionPool("stub"), path, "Read timed out.")


def test_silence_longer_than_the_bookmarks_is_a_broken_connection_and_not_a_reason_to_list() -> None:
    source = HalfOpen()
    ListWatch(source, PATH, {}, lambda kind, item: None, lambda items: None, lambda: len(source.timeouts) >= 2).run()
    assert all(75 <= timeout <= 90 for timeout in source.timeouts)
    assert source.lists == 1
    assert [query["resourceVersion"] for query in source.queries] == ["7", "7"]
