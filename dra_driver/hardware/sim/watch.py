"""Wakes a waiting call when the state file is replaced, through inotify, so that an idle agent stays idle."""

from __future__ import annotations

import ctypes
import os
import select
import time
from pathlib import Path
from typing import Final

_MOVED_TO: Final = 0x80  # IN_MOVED_TO: the new state file is renamed into place
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have these values
_LONGEST_SECONDS: Final = 1.0  # two waiters share a descriptor, and the other may have read what was there
_SLICE_SECONDS: Final = 0.01


class ChangeWatch:
    """Where the kernel gives no inotify descriptor, waiting is short sleeps instead."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def start(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(_FLAGS)
        if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(self._directory), _MOVED_TO) < 0:
            os.close(descriptor)
            descriptor = -1
        self._descriptor = descriptor

    def wait(self, seconds: float) -> None:
        """Until a change after `start` or the last wait, or for at most `seconds`; it may return early."""
        descriptor = self._descriptor
        if descriptor < 0:
            time.sleep(min(seconds, _SLICE_SECONDS))
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(min(seconds, _LONGEST_SECONDS) * 1000):
            try:
                while os.read(descriptor, 4096):
                    pass
            except OSError:  # drained, or closed by stop
                pass

    def stop(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
