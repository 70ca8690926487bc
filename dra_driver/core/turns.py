"""Taking turns within this process: calls for one claim, and claims at the interpreter."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dra_driver.model.errors import RetryLater


class Turns:
    """One thing at a time for one claim; between processes the locks of its devices see to that.

    A prepare that still waits for the API server has neither record nor lock. Unprepared meanwhile, it would go on
    and hold devices that nobody gives back: the kubelet that asked for it may have been restarted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()

    @property
    def busy(self) -> bool:
        return bool(self._busy)

    @contextmanager
    def of(self, uid: str, timeout_s: float, doing: str) -> Iterator[None]:
        """RetryLater when another call is busy with this claim for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: uid not in self._busy, timeout_s):
                why = f"another call for this claim has been running for {timeout_s:.0f} s"
                raise RetryLater(doing, why, "the kubelet asks again; the log of the driver's pod says what is slow")
            self._busy.add(uid)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(uid)
                self._changed.notify_all()


class Interpreter:
    """Python runs one thread at a time: taking turns saves the fights for it (calls at once mostly share a thread by
    themselves; where they do not, turns save a tenth). It is no lock: nobody waits longer than `patience_s`, and who takes longer is slow for
    reasons of its own, so the others go on without regard to it."""

    def __init__(self, patience_s: float = 0.02) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        lock = self._lock
        if not lock.acquire(timeout=self._patience_s):
            self._lock = lock = threading.Lock()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
