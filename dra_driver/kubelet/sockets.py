"""Unix socket files: whose they are, whether somebody answers on them, and how they change hands without a gap."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.model.errors import RetryLater, TellUser

# The inode of a bound socket lives as long as the process that bound it: while we serve, no other file has this pair.
Identity = tuple[int, int]

# Between bind and listen a socket refuses like a dead one. Nobody takes this long from the one to the other.
_SURELY_DEAD_AFTER_S = 10.0


def identity(path: Path) -> Identity | None:
    """Device and inode number of the file at `path`; None when there is none or it cannot be looked at."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def somebody_answers(path: Path) -> bool:
    """True when a process listens on the socket at `path`, False when there is no file or nobody listens any more.

    TellUser when something else than a stream socket is there. Connects and hangs up; no byte is sent.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise _in_the_way(path, "a file that is not a socket is in its place")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except BlockingIOError:
        return True  # so busy that its backlog is full
    except OSError as error:
        if error.errno == errno.EPROTOTYPE:
            raise _in_the_way(path, "a socket of another type is in its place") from error
        raise _in_the_way(path, os.strerror(error.errno or 0)) from error
    return True


def require_free(path: Path) -> None:
    """TellUser when another process answers at `path`; a file left behind by a dead one is no obstacle."""
    if somebody_answers(path):
        raise TellUser(
            f"serving on {path}",
            "another instance of the driver answers there",
            "stop it, or give each instance a name of its own (--instance, POD_UID)",
        )


def remove_if_ours(path: Path, ours: Identity) -> bool:
    """Deletes the socket at `path` only if it is still the one that we made; says whether it did. Call it under `locked`.

    RetryLater when the file system refuses.
    """
    if identity(path) != ours:
        return False
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RetryLater(f"removing the socket {path}", error.strerror or str(error)) from error
    return True


def sweep(directory: Path, is_litter: Callable[[Path], bool], older_than_s: float = _SURELY_DEAD_AFTER_S) -> list[Path]:
    """Deletes sockets that killed instances left behind: those for which `is_litter` holds and where nobody answers.

    Returns what it deleted, sorted. Never raises: litter does no harm that would be worth a failure.
    """
    swept = []
    try:
        for path in sorted(directory.iterdir()):
            if not is_litter(path):
                continue
            try:
                if time.time() - path.lstat().st_ctime > older_than_s and not somebody_answers(path):
                    path.unlink()
                    swept.append(path)
            except (OSError, TellUser):
                continue
    except OSError:
        pass
    return swept


@contextmanager
def locked(lock_file: Path, timeout_s: float = 5.0) -> Iterator[None]:
    """Holds `lock_file` against every other thread and process. The kernel frees it when the process dies.

    TellUser when the file cannot be made, RetryLater when somebody else keeps it for longer than `timeout_s`.
    """
    try:
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TellUser(
            f"opening the lock {lock_file}", error.strerror or str(error), "make the plugin data directory writable"
        ) from error
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RetryLater(
                        f"taking the lock {lock_file}",
                        f"another instance has held it for {timeout_s:g} s",
                        "see whether an instance hangs while it starts or stops",
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _in_the_way(path: Path, why: str) -> TellUser:
    return TellUser(f"serving on {path}", why, f"look at it, and remove {path}")
