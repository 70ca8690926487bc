"""The claims of one call, each on its own: none waits for a slow one, all in bounded time, and with one answer each whatever
happens.

A claim takes a millisecond, and Python runs one thread at a time: so one thread does them one after another, and as soon as
a claim keeps it for longer than that, another thread goes on with the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import DriverError

logger = logging.getLogger(__name__)

# The kubelet gives a call up after 45 s. An answer that comes before that can still tell the user what is slow.
LONGEST_WAIT_S = 40.0

# A claim that takes longer waits for something, and the others need not.
PATIENCE_S = 0.02

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    error: str


class ClaimCalls:
    """`workers` bounds how many claims of calls with several claims are worked on at once; threads are made on demand.
    `log_place` completes "the traceback is in ..." for the reader of a pod event."""

    def __init__(self, workers: int, log_place: str) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="claim")
        self._log_place = log_place
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._running: dict[object, str] = {}
        self._stopped = False

    def each(
        self, verb: str, acts: Mapping[ClaimRef, Callable[[], T]], budget_s: float
    ) -> dict[ClaimRef, Done[T] | Failed]:
        """Does the act of every claim, one entry for each. Never raises.

        Several claims are waited for at most `budget_s` seconds; those that need longer go on, and are answered when the
        kubelet asks again. A single claim is done in the calling thread, and takes as long as its act takes.
        """
        if len(acts) == 1:
            return {ref: self._one(verb, ref, act) for ref, act in acts.items()}
        call = _Call(acts)
        until = time.monotonic() + budget_s
        self._work_on(verb, call)
        while (left := until - time.monotonic()) > 0 and not call.done:
            if call.stands_still(min(left, PATIENCE_S)):
                self._work_on(verb, call)
        answers = call.answers()
        late = f"not finished after {budget_s:.0f} s; it goes on, and the kubelet asks again"
        return {ref: answers.get(ref) or Failed(f"{verb} {ref}: {late}") for ref in acts}

    def _work_on(self, verb: str, call: _Call[T]) -> None:
        def work() -> None:
            while (taken := call.take()) is not None:
                ref, act = taken
                call.answer(ref, self._one(verb, ref, act))

        try:
            self._pool.submit(work)
        except RuntimeError:  # stopped: there is nothing to do but to say so
            work()

    @property
    def running(self) -> list[str]:
        """What is being done now, for people, sorted."""
        with self._lock:
            return sorted(self._running.values())

    def wait(self, until: float) -> bool:
        """Until nothing is being done, at most until this monotonic time; True when it is so."""
        with self._lock:
            return self._ended.wait_for(lambda: not self._running, max(0.0, until - time.monotonic()))

    def stop(self) -> None:
        """Takes no more claims; those that have not begun are answered as failed. Does not wait for running ones."""
        self._stopped = True
        self._pool.shutdown(wait=False)

    def _one(self, verb: str, ref: ClaimRef, act: Callable[[], T]) -> Done[T] | Failed:
        if self._stopped:
            return Failed(f"{verb} {ref}: the driver is stopping; the kubelet asks again")
        token = object()
        with self._lock:
            self._running[token] = f"{verb} {ref}"
        try:
            return Done(act())
        except DriverError as error:
            return Failed(str(error))  # logged by the service, which knows the devices
        except Exception as error:
            # The one place where everything is caught: the other claims of the call, and the kubelet, need an answer.
            logger.exception("%s %s failed: bug in the driver", verb, ref, extra=ref.fields)
            return Failed(
                f"{verb} {ref}: bug in the driver ({type(error).__name__}: {error}); "
                f"the traceback is in {self._log_place}, please report it"
            )
        finally:
            with self._lock:
                del self._running[token]
                self._ended.notify_all()


class _Call(Generic[T]):
    """The claims of one call: those that wait for a thread, and the answers so far."""

    def __init__(self, acts: Mapping[ClaimRef, Callable[[], T]]) -> None:
        self._count = len(acts)
        self._waiting = deque(acts.items())
        self._answers: dict[ClaimRef, Done[T] | Failed] = {}
        self._all_done = threading.Condition()

    @property
    def done(self) -> bool:
        return len(self._answers) == self._count

    def take(self) -> tuple[ClaimRef, Callable[[], T]] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def answer(self, ref: ClaimRef, answer: Done[T] | Failed) -> None:
        with self._all_done:
            self._answers[ref] = answer
            if self.done:
                self._all_done.notify_all()

    def stands_still(self, seconds: float) -> bool:
        """Waits for the last answer, at most so long; True when no answer came meanwhile and claims wait for a thread."""
        with self._all_done:
            before = len(self._answers)
            self._all_done.wait_for(lambda: self.done, seconds)
            return bool(self._waiting) and len(self._answers) == before

    def answers(self) -> dict[ClaimRef, Done[T] | Failed]:
        with self._all_done:
            return dict(self._answers)
