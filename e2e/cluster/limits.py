"""A limit of the machine that nodes run into: where it is too low, they fail in ways that do not name it."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.cluster import ClusterError

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 1024  # twice what kind's documentation advises


def check_inotify(doing: str, wanted: int, file: Path = LIMIT) -> None:
    """ClusterError where root has fewer inotify instances left. Only root can count them."""
    if os.geteuid() != 0 or not file.exists():
        return
    limit, used = int(file.read_text()), _used()
    if limit - used < wanted:
        raise ClusterError(
            f"{doing}: this takes about {wanted} inotify instances, and of root's {limit} {used} are in use; take another "
            f"cluster down, or raise the limit: sudo sysctl fs.inotify.max_user_instances=512"
        )


def raise_inotify(record: Path, limit: Path = LIMIT) -> None:
    """Where whoever starts a private Docker has given us the machine: the former limit is on record first."""
    former = int(limit.read_text()) if limit.exists() else ENOUGH
    if former < ENOUGH:
        record.write_text(str(former))
        limit.write_text(str(ENOUGH))


def restore_inotify(record: Path, limit: Path = LIMIT) -> None:
    """Unless somebody else has set it since."""
    if record.exists():
        if int(limit.read_text()) == ENOUGH:
            limit.write_text(record.read_text())
        record.unlink()


def _used() -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == 0:
                count += sum(os.readlink(file) == "anon_inode:inotify" for file in (process / "fd").iterdir())
        except OSError:
            continue  # it has ended
    return count
