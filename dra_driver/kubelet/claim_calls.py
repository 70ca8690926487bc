"""The claims of all calls, each on its own: none waits for a slow one, all in bounded time, and with one answer each whatever
happens.

A claim takes a millisecond, and Python runs one thread at a time: so one thread does them one after another, also those of
other calls, and as soon as a claim keeps it for longer than that, another thread goes on with the rest. Threads that fight
for the interpreter change at every file: eight calls at once, each in its own thread, take half as long again. The calls
themselves wait in an event loop, and take no thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import DriverError

logger = logging.getLogger(__name__)

# The kubelet gives a call up after 45 s. An answer that comes before that can still tell the user what is slow.
LONGEST_WAIT_S = 40.0

# A claim that takes longer waits for something, and the others need not.
PATIENCE_S = 0.02

T = TypeVar("T")

# Begins with the claims of a call together: what finishes each, in the same order.
Begin = Callable[[Sequence[ClaimRef]], Sequence[Callable[[], T]]]


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    error: str


class ClaimCalls:
    """`workers` bounds how many claims are worked on at once; threads are made on demand. `log_place` completes "the
    traceback is in ..." for the reader of a pod event."""

    def __init__(self, workers: int, log_place: str) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="claim")
        self._log_place = log_place
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._new: deque[_Call[Any]] = deque()  # calls that have not begun
        self._begun: deque[_Begun] = deque()  # claims that wait for a thread
        self._taken = 0  # how many of both, ever
        self._at_work = 0  # threads that take them
        self._looks = False  # whether a look at them is due
        self._running: dict[object, tuple[str, Sequence[ClaimRef]]] = {}
        self._open = 0  # calls whose answers have not gone out
        self._stopped = False

    async def each(
        self, verb: str, begin: Begin[T], refs: Sequence[ClaimRef], budget_s: float
    ) -> dict[ClaimRef, Done[T] | Failed]:
        """Begins with the claims and finishes each, one entry for each. Raises nothing of its own.

        They are waited for at most `budget_s` seconds; those that need longer go on, and are answered when the kubelet asks
        again. The calls of a `ClaimCalls` are all made in one event loop.
        """
        if not refs:
            return {}
        loop = asyncio.get_running_loop()
        call = _Call(verb, begin, refs, loop)
        with self._lock:
            self._new.append(call)
        self._work(only_if=lambda: not self._at_work)
        self._look_later(loop)
        too_late = loop.call_later(budget_s, call.tell)
        try:
            await call.told
        finally:
            too_late.cancel()
        answers = call.answers()
        late = f"not finished after {budget_s:.0f} s; it goes on, and the kubelet asks again"
        return {ref: answers.get(ref) or Failed(f"{verb} {ref}: {late}") for ref in refs}

    @property
    def running(self) -> list[str]:
        """What is being done now, for people, sorted."""
        with self._lock:
            return sorted(f"{verb} {', '.join(map(str, refs))}" for verb, refs in self._running.values())

    def opened(self) -> None:
        """A call has come."""
        with self._lock:
            self._open += 1

    def closed(self) -> None:
        """The answer of a call has gone out, or nobody waits for it any more."""
        with self._lock:
            self._open -= 1
            self._ended.notify_all()

    def wait(self, until: float) -> bool:
        """Until nothing is being done and all answers have gone out, at most until this monotonic time; True when it is so."""
        with self._lock:
            return self._ended.wait_for(lambda: not self._busy and not self._open, max(0.0, until - time.monotonic()))

    def stop(self) -> None:
        """Takes no more claims; those that have not begun are answered as failed. Does not wait for running ones."""
        self._stopped = True
        self._pool.shutdown(wait=False)

    @property
    def _busy(self) -> bool:
        return bool(self._running or self._begun or self._new)

    def _work(self, only_if: Callable[[], bool]) -> None:
        """With one more thread, until nothing waits."""
        with self._lock:
            if not (self._new or self._begun) or not only_if():
                return
            self._at_work += 1
        try:
            self._pool.submit(self._take_all)
        except RuntimeError:  # stopped: there is nothing to do but to say so
            self._take_all()

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """With another thread, should all that take claims be kept by one until then."""
        if not self._looks:
            self._looks = True
            loop.call_later(PATIENCE_S, self._look, loop, self._taken)

    def _look(self, loop: asyncio.AbstractEventLoop, taken: int) -> None:
        self._looks = False
        self._work(only_if=lambda: self._taken == taken)
        if self._new or self._begun:
            self._look_later(loop)

    def _take_all(self) -> None:
        """Begins with a call before it finishes a claim: the API server works on them meanwhile."""
        while True:
            with self._lock:
                self._taken += 1
                call = self._new.popleft() if self._new else None
                begun = self._begun.popleft() if call is None and self._begun else None
                if call is None and begun is None:
                    self._at_work -= 1
                    return
            if call is not None:
                claims = [_Begun(call, ref, act) for ref, act in self._begin(call)]
                with self._lock:
                    self._begun += claims
            elif begun is not None:
                begun.call.answer(begun.ref, self._one(begun.call.verb, begun.ref, begun.act))

    def _begin(self, call: _Call[T]) -> list[tuple[ClaimRef, Callable[[], T]]]:
        with self._lock:
            self._running[call] = call.verb, call.refs
        try:
            return list(zip(call.refs, call.begin(call.refs), strict=True))
        except Exception as error:  # noqa: BLE001 - raised again for each claim, and answered there
            return [(ref, partial(_raise, error)) for ref in call.refs]
        finally:
            with self._lock:
                del self._running[call]
                self._ended.notify_all()

    def _one(self, verb: str, ref: ClaimRef, act: Callable[[], T]) -> Done[T] | Failed:
        if self._stopped:
            return Failed(f"{verb} {ref}: the driver is stopping; the kubelet asks again")
        token = object()
        with self._lock:
            self._running[token] = verb, (ref,)
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
    """One call and its answers so far."""

    def __init__(self, verb: str, begin: Begin[T], refs: Sequence[ClaimRef], loop: asyncio.AbstractEventLoop) -> None:
        self.verb = verb
        self.begin = begin
        self.refs = refs
        self.told: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._answers: dict[ClaimRef, Done[T] | Failed] = {}
        self._lock = threading.Lock()

    def answer(self, ref: ClaimRef, answer: Done[T] | Failed) -> None:
        """In whatever thread."""
        with self._lock:
            self._answers[ref] = answer
            last = len(self._answers) == len(self.refs)
        if last:
            self._loop.call_soon_threadsafe(self.tell)

    def tell(self) -> None:
        """In the loop: nobody waits any longer."""
        if not self.told.done():
            self.told.set_result(None)

    def answers(self) -> dict[ClaimRef, Done[T] | Failed]:
        with self._lock:
            return dict(self._answers)


@dataclass(frozen=True, slots=True)
class _Begun:
    call: _Call[Any]
    ref: ClaimRef
    act: Callable[[], Any]


def _raise(error: Exception) -> Any:
    raise error
