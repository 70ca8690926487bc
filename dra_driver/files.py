"""Small files that are replaced whole: the one atomic writer of the driver, below every room that keeps files.

It knows paths and bytes, not what they mean. Every OSError leaves as RetryLater or TellUser.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from contextlib import suppress

from dra_driver.model.errors import RetryLater, TellUser

_READ_BYTES = 65536
_OWNER_ONLY = 0o600
# Dot in front: no reader of ours or of CDI takes it for a file of its own. `.tmp`: CDI readers parse *.json and *.yaml.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp")

_WHO_MUST_ACT: dict[int, tuple[str, str]] = {
    errno.EACCES: ("permission denied", "let the agent run as root and check the mode of the directory"),
    errno.EPERM: ("operation not permitted", "let the agent run as root and check the mount and SELinux or AppArmor"),
    errno.ENOTDIR: ("a part of the path is not a directory", "remove what lies in its place"),
    errno.EISDIR: ("a directory lies in its place", "remove it"),
    errno.ELOOP: ("a symbolic link lies in its place", "remove it"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter directory or driver name in the settings"),
}
_PASSES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("no space or no inodes left on its file system", "free some; it is tried again"),
    errno.EDQUOT: ("the quota of its file system is used up", "raise it; it is tried again"),
    errno.EROFS: ("its file system is read-only", "mount it writable; it is tried again"),
    errno.EMFILE: ("the agent has too many files open", "raise its limit of open files if this stays"),
}


def refused(doing: str, path: str, error: OSError) -> RetryLater | TellUser:
    """The error to raise (`from error`) when the system refused a file operation. TellUser where only a person can change
    it (EACCES, EPERM, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG), RetryLater for all else (ENOSPC, EROFS, EIO, ...)."""
    number = error.errno or 0
    if number in _WHO_MUST_ACT:
        why, next_step = _WHO_MUST_ACT[number]
        return TellUser(doing, f"{path}: {why}", next_step)
    why, next_step = _PASSES.get(number, (error.strerror or str(error), "it is tried again"))
    return RetryLater(doing, f"{path}: {why}", next_step)


def read(path: str, doing: str) -> bytes | None:
    """All bytes of the file, None when it does not exist. RetryLater or TellUser when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(doing, path, error) from error
    try:
        data = os.read(fd, _READ_BYTES)
        if len(data) == _READ_BYTES:
            parts = [data]
            while part := os.read(fd, _READ_BYTES):
                parts.append(part)
            data = b"".join(parts)
    except OSError as error:
        raise refused(doing, path, error) from error
    finally:
        os.close(fd)
    return data


def replace(
    path: str, data: bytes, doing: str, *, mode: int = 0o600, directory_mode: int = 0o700, durable: bool = False
) -> None:
    """Puts a file with these bytes at `path` in one step: a reader sees the old file or the new one, whole, also when this
    process is killed at any instruction. The directory is made if it is missing. `durable`: it also outlives a power
    loss once this returns (fsync of file and directory). Nothing has changed when RetryLater or TellUser is raised, except
    that after a failed fsync of the directory the new file is there but may not outlive a power loss.

    The temporary file lies in the same directory: CDI readers watch for the rename within it, and rename does not cross
    file systems. Its name is unpredictable and created exclusively, so that nobody can put a link in its place.
    """
    directory, name = os.path.split(path)
    temporary = f"{directory or '.'}/.{name}.{secrets.token_hex(8)}.tmp"
    try:
        fd = _create(temporary, directory, directory_mode, durable)
        try:
            try:
                if mode != _OWNER_ONLY:
                    os.fchmod(fd, mode)  # the umask has no say
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            sync_directory(directory)
    except OSError as error:
        raise refused(doing, path, error) from error


def _create(temporary: str, directory: str, directory_mode: int, durable: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, _OWNER_ONLY)
    except FileNotFoundError:
        os.makedirs(directory, mode=directory_mode, exist_ok=True)
        os.chmod(directory, directory_mode)
        if durable:
            sync_directory(os.path.dirname(directory))
        return os.open(temporary, flags, _OWNER_ONLY)


def remove(path: str, doing: str, *, durable: bool = False) -> bool:
    """Removes the file; False when it was not there. RetryLater or TellUser when it cannot be removed."""
    try:
        os.unlink(path)
        if durable:
            sync_directory(os.path.dirname(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refused(doing, path, error) from error
    return True


def names(directory: str, doing: str) -> list[str]:
    """Names in the directory, sorted; empty when it does not exist. RetryLater or TellUser when it cannot be listed."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(doing, directory, error) from error


def sync_directory(directory: str) -> None:
    """Makes the names in the directory outlive a power loss. OSError as the system says it."""
    fd = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(directory: str, prefix: str, doing: str, *, older_than_s: float) -> tuple[str, ...]:
    """Removes temporary files that a killed writer left for files whose names start with `prefix`; their paths, sorted.

    `older_than_s` protects a writer that is alive in another instance: a write takes microseconds, so a minute is
    certain. Pass 0 only where a lock keeps writers away.
    """
    swept = []
    now = time.time()
    for name in names(directory, doing):
        match = _TEMPORARY.fullmatch(name)
        if match is None or not match["name"].startswith(prefix):
            continue
        path = f"{directory}/{name}"
        try:
            if now - os.stat(path, follow_symlinks=False).st_mtime < older_than_s:
                continue
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise refused(doing, path, error) from error
        swept.append(path)
    return tuple(swept)
