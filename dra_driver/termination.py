"""SIGTERM and SIGINT as something to wait for."""

from __future__ import annotations

import signal
import threading
from queue import Empty, SimpleQueue


class Termination:
    """An Event would not do: a handler that sets one waits for the Event's lock, and for ever where it has interrupted the
    very wait that holds it. `SimpleQueue.put` takes no lock of Python's."""

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def listen(self) -> None:
        """Only the main thread can; elsewhere nothing happens."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.tell())

    def tell(self) -> None:
        self._told.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """True when told, False after `seconds` (None: no limit)."""
        try:
            self._told.get(timeout=seconds)
        except Empty:
            return False
        return True
