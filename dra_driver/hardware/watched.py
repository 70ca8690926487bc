"""Calls that may never come back, made by threads that nobody waits for longer than a time limit.

An NVML call cannot be cancelled: when a GPU hangs, the calling thread is lost until the kernel gives up. So a helper
thread walks the keys (GPUs), and the caller watches it. Stuck on one key, it is left behind, that key is marked until
the thread returns, and a new helper goes on with the rest. While all is well, one parked thread serves every walk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

_PARKED_THREADS = (
    8  # as many prepares at the same time as a machine has GPUs; more threads than this end after their walk
)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The read of this key has been running for `seconds` and still is."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Broken:
    """The read of this key raised."""

    error: Exception


class Walk(Generic[T]):
    """`results` are there as soon as they are read, `finished` once all are."""

    def __init__(self, keys: deque[int], read: Callable[[int], T]) -> None:
        self.keys = keys
        self.read = read
        self.results: dict[int, T | Broken] = {}
        self.current: int | None = None
        self.since = time.monotonic()
        self.abandoned = False
        self.finished = False
        self.done = threading.Lock()  # free once finished; half the cost of an Event, which matters for one GPU
        self.done.acquire()


class Watched:
    """One set of hanging keys and helper threads. All methods from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Walk[object] | None] = SimpleQueue()
        self._parked = 0  # threads that wait for a walk, without those that one has been put on the queue for
        self._hanging: dict[int, float] = {}
        self._closed = False

    def hanging(self) -> frozenset[int]:
        """Keys whose reads were left behind and have not come back."""
        with self._lock:
            return frozenset(self._hanging)

    def read_each(
        self, keys: Iterable[int], read: Callable[[int], T], limit_s: float
    ) -> dict[int, T | Broken | NoAnswer]:
        """Reads the keys one after another, at most `limit_s` for each. A key that still hangs from before is not tried
        again."""
        answers: dict[int, T | Broken | NoAnswer] = {}
        rest: deque[int] = deque()
        now = time.monotonic()
        with self._lock:
            for key in keys:
                if key in self._hanging:
                    answers[key] = NoAnswer(now - self._hanging[key])
                else:
                    rest.append(key)
        while rest:
            walk = Walk(rest, read)
            self._hand_over(walk)  # type: ignore[arg-type]  # the queue does not care for the type of the results
            stuck = self._watch(walk, limit_s)
            answers.update(walk.results)
            if stuck is None:
                break
            answers[stuck] = NoAnswer(limit_s)
            rest = deque(key for key in walk.keys)
        return answers

    def begin(self, keys: Iterable[int], read: Callable[[int], T]) -> Walk[T]:
        """Begins to read the keys, without those that hang. Nobody watches: where a read does not come back, the walk just
        never finishes, and its thread is lost; begin no other before that."""
        with self._lock:
            walk = Walk(deque(key for key in keys if key not in self._hanging), read)
        self._hand_over(walk)  # type: ignore[arg-type]  # as above
        return walk

    def close(self) -> None:
        """Ends the parked threads. A later walk starts a new one."""
        with self._lock:
            self._closed = True
            parked, self._parked = self._parked, 0
        for _ in range(parked):
            self._queue.put(None)

    def _hand_over(self, walk: Walk[object]) -> None:
        with self._lock:
            self._closed = False
            walk.since = time.monotonic()
            parked = self._parked > 0
            self._parked -= parked
        if parked:
            self._queue.put(walk)
        else:
            threading.Thread(target=self._serve, args=(walk,), name="nvml-reader", daemon=True).start()

    def _watch(self, walk: Walk[T], limit_s: float) -> int | None:
        """Waits for the walk; returns the key on which it was left behind, if it was."""
        left = limit_s
        while not walk.done.acquire(timeout=left):
            with self._lock:
                if walk.finished:
                    return None
                left = walk.since + limit_s - time.monotonic()
                if left > 0:
                    continue
                walk.abandoned = True
                key = walk.current
                if key is None:  # no thread has taken it up: the machine is starved, which looks the same from here
                    return walk.keys.popleft()
                self._hanging[key] = walk.since
                return key
        return None

    def _serve(self, first: Walk[object]) -> None:
        walk: Walk[object] | None = first
        while walk is not None and self._run(walk):
            walk = self._next()

    def _next(self) -> Walk[object] | None:
        with self._lock:
            if self._parked >= _PARKED_THREADS or self._closed:
                return None
            self._parked += 1
        return self._queue.get()

    def _run(self, walk: Walk[object]) -> bool:
        """Reads the keys of the walk. False when it was left behind meanwhile: this thread then has no more to do."""
        while True:
            with self._lock:
                if walk.abandoned:
                    return False
                if not walk.keys:
                    walk.finished = True
                    walk.done.release()
                    return True
                walk.current = key = walk.keys.popleft()
                walk.since = time.monotonic()
            try:
                result: object = walk.read(key)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller, and a helper thread must not die of it
                result = Broken(error)
            with self._lock:
                if walk.abandoned:
                    self._hanging.pop(key, None)
                    return False
                walk.results[key] = result
