"""Processes of the host by id and time of start, so that no signal ever reaches a stranger with a reused id."""

from __future__ import annotations

import os
import select
import signal as signals
from dataclasses import dataclass
from pathlib import Path

ENDED = -1  # in place of the time of start of a process that was gone before one could look


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    started: int  # clock ticks after boot, field 22 of /proc/PID/stat

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def send(self, signal: int) -> bool:
        """Whether the process was there to be signalled."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The handle pins the process: if the times agree now, the signal goes to it and to no other.
            if not self.alive:
                return False
            signals.pidfd_send_signal(handle, signal)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait(self, timeout: float) -> bool:
        """Whether it ended within `timeout` seconds; a zombie has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return not self.alive or bool(select.select([handle], [], [], timeout)[0])
        finally:
            os.close(handle)

    def stop(self, timeout: float = 10) -> None:
        """SIGTERM, then SIGKILL; it is gone when this returns."""
        if self.send(signals.SIGTERM) and not self.wait(timeout):
            self.kill()

    def kill(self) -> None:
        if self.send(signals.SIGKILL):
            self.wait(30)


def identify(pid: int) -> Identity | None:
    started = _started(pid)
    return None if started is None else Identity(pid, started)


def _started(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])
