"""Locks that the kernel frees when their holder dies: flock, polled, so that every wait ends.

Each lock has its own open file description, so threads of one process exclude each other like processes do. Taking one
twice in one thread waits for itself until the time is up.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from dra_driver import files
from dra_driver.model.errors import RetryLater

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


@contextmanager
def locked_files(directory: str, names: Iterable[str], timeout_s: float, doing: str) -> Iterator[None]:
    """Holds `<directory>/<name>` for all names, taken in sorted order; the files are made and stay. RetryLater, naming
    the one that stayed busy, after `timeout_s` over all of them."""
    deadline = time.monotonic() + timeout_s
    held: list[int] = []
    try:
        for name in sorted(names):
            fd = _open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, directory, doing)
            held.append(fd)
            if not _take(fd, fcntl.LOCK_EX, deadline):
                why = f"{name} was busy for {timeout_s:g} s with another claim or another instance of the agent"
                raise RetryLater(doing, why, "it is tried again")
        yield
    finally:
        for fd in reversed(held):
            _free(fd)


@contextmanager
def locked_directory(directory: str, timeout_s: float, doing: str, *, shared: bool) -> Iterator[None]:
    """Holds the directory itself, shared or alone; it is made if it is missing."""
    fd = _open(directory, os.O_RDONLY | os.O_DIRECTORY, directory, doing)
    try:
        if not _take(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + timeout_s):
            why = f"{directory} was locked by another instance of the agent for {timeout_s:g} s"
            raise RetryLater(doing, why, "end that instance if it hangs; it is tried again")
        yield
    finally:
        _free(fd)


def _open(path: str, flags: int, directory: str, doing: str) -> int:
    try:
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            return os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise files.refused(doing, path, error) from error


def _take(fd: int, operation: int, deadline: float) -> bool:
    wait = _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(wait, left))
            wait = min(2 * wait, _LONGEST_WAIT_S)
        else:
            return True


def _free(fd: int) -> None:
    # Unlocking first: a child that another thread has just forked shares the description until its exec.
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
