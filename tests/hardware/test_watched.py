"""Reads that never come back cost one thread each, and nobody waits for them."""

from __future__ import annotations

import threading
import time

import pytest

from dra_driver.hardware.watched import Broken, NoAnswer, Watched


@pytest.fixture
def watched() -> Watched:
    return Watched()


def readers() -> int:
    return sum(thread.name == "nvml-reader" for thread in threading.enumerate())


def test_all_keys_are_read_in_order(watched: Watched) -> None:
    order: list[int] = []
    assert watched.read_each(range(4), lambda key: order.append(key) or key * 2, 1) == {0: 0, 1: 2, 2: 4, 3: 6}
    assert order == [0, 1, 2, 3]
    watched.close()


def test_one_parked_thread_serves_walk_after_walk(watched: Watched) -> None:
    before = readers()
    seen: set[int | None] = set()
    for _ in range(50):
        watched.read_each([0], lambda _: seen.add(threading.get_ident()), 1)
    assert len(seen) <= 2
    assert readers() - before <= 2
    watched.close()


def test_a_hanging_key_is_left_behind_and_the_rest_is_read(watched: Watched) -> None:
    release = threading.Event()

    def read(key: int) -> int:
        if key == 1:
            release.wait(30)
        return key

    start = time.monotonic()
    answers = watched.read_each(range(4), read, 0.4)
    assert time.monotonic() - start < 5
    assert answers == {0: 0, 1: NoAnswer(0.4), 2: 2, 3: 3}
    assert watched.hanging() == {1}

    threads = readers()
    start = time.monotonic()
    again = watched.read_each(range(4), read, 0.4)
    assert time.monotonic() - start < 0.3, "a key that hangs is not waited for again"
    assert isinstance(again[1], NoAnswer)
    assert again[1].seconds >= 0.4
    assert readers() <= threads, "and gets no second thread"

    release.set()
    deadline = time.monotonic() + 5
    while watched.hanging() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert watched.read_each(range(4), read, 1) == {0: 0, 1: 1, 2: 2, 3: 3}
    watched.close()


def test_an_error_belongs_to_its_key(watched: Watched) -> None:
    def read(key: int) -> int:
        if key == 0:
            raise ValueError("broken")
        return key

    answers = watched.read_each(range(2), read, 1)
    assert isinstance(answers[0], Broken)
    assert isinstance(answers[0].error, ValueError)
    assert answers[1] == 1
    watched.close()


def test_walks_do_not_wait_for_each_other(watched: Watched) -> None:
    release = threading.Event()
    slow = threading.Thread(target=lambda: watched.read_each([0], lambda _: release.wait(30), 30))
    slow.start()
    start = time.monotonic()
    assert watched.read_each([1], lambda key: key, 5) == {1: 1}
    assert time.monotonic() - start < 1
    release.set()
    slow.join()
    watched.close()


def test_many_walks_at_once_all_come_back(watched: Watched) -> None:
    results: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(watched.read_each([n], lambda key: key, 10)))
        for n in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(str(result) for result in results) == sorted(str({n: n}) for n in range(32))
    watched.close()


def test_closing_ends_the_parked_threads_and_a_later_walk_works(watched: Watched) -> None:
    before = readers()
    watched.read_each([0], lambda key: key, 1)
    watched.close()
    deadline = time.monotonic() + 5
    while readers() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert readers() <= before
    assert watched.read_each([0], lambda key: key, 1) == {0: 0}
    watched.close()
