"""SIGTERM and SIGINT as something to wait for."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress


class Termination:
    """The interpreter itself writes each signal into a socket pair, and waiting is reading from it.

    Not a handler of Python's, which runs between two instructions of the main thread only: one that comes when the wait has
    begun and not yet reached the kernel (with busy threads, one in some hundreds) would be heard when the wait is over.
    """

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        self._listens = False

    def listen(self) -> None:
        """Only the main thread can; elsewhere nothing happens."""
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
            self._listens = True
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: None)

    def tell(self) -> None:
        with suppress(BlockingIOError):  # full: it has been told often enough
            self._told.send(b"\0")

    def wait(self, seconds: float | None = None) -> bool:
        """True when told, once for each time; False after `seconds` (None: no limit)."""
        self._heard.settimeout(seconds)
        try:
            self._heard.recv(1)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """From then on signals are ignored."""
        if self._listens:
            signal.set_wakeup_fd(-1)
        self._heard.close()
        self._told.close()
