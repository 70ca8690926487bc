"""The claims of one call, each on its own: in parallel, in bounded time, and with one answer each whatever happens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import DriverError

logger = logging.getLogger(__name__)

# The kubelet gives a call up after 45 s. An answer that comes before that can still tell the user what is slow.
LONGEST_WAIT_S = 40.0

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

    def each(
        self, verb: str, refs: Iterable[ClaimRef], act: Callable[[ClaimRef], T], budget_s: float
    ) -> dict[str, Done[T] | Failed]:
        """Does `act` for every claim; keyed by UID, one entry for each UID. Never raises.

        Several claims are waited for at most `budget_s` seconds; those that need longer go on, and are answered when the
        kubelet asks again. A single claim is done in the calling thread, and takes as long as `act` takes.
        """
        by_uid = {ref.uid: ref for ref in refs}
        if len(by_uid) == 1:
            return {uid: self._one(verb, ref, act) for uid, ref in by_uid.items()}
        try:
            futures = {uid: self._pool.submit(self._one, verb, ref, act) for uid, ref in by_uid.items()}
        except RuntimeError:  # the pool has been stopped
            return {uid: _stopping(verb, ref) for uid, ref in by_uid.items()}
        wait(futures.values(), timeout=budget_s)
        return {uid: _answer(verb, by_uid[uid], future, budget_s) for uid, future in futures.items()}

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
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, verb: str, ref: ClaimRef, act: Callable[[ClaimRef], T]) -> Done[T] | Failed:
        token = object()
        with self._lock:
            self._running[token] = f"{verb} {ref}"
        try:
            return Done(act(ref))
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


def _answer(verb: str, ref: ClaimRef, future: Future[Done[T] | Failed], waited_s: float) -> Done[T] | Failed:
    if not future.done():
        return Failed(f"{verb} {ref}: not finished after {waited_s:.0f} s; it goes on, and the kubelet asks again")
    return _stopping(verb, ref) if future.cancelled() else future.result()


def _stopping(verb: str, ref: ClaimRef) -> Failed:
    return Failed(f"{verb} {ref}: the driver is stopping; the kubelet asks again")
