"""A limit of the machine that kind's nodes run into: where it is too low, nodes fail in ways that do not name it."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.cluster import ClusterError

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 1024  # twice what kind's documentation advises
EACH_NODE = 20  # systemd 4, kubelet 7, containerd 2, and what pods need; the control plane's are a few more


def check_inotify(nodes: int) -> None:
    """ClusterError where root has too few inotify instances left. Only root can count them."""
    if os.geteuid() != 0 or not LIMIT.exists():
        return
    limit, used = int(LIMIT.read_text()), _used()
    wanted = EACH_NODE * nodes
    if limit - used < wanted:
        raise ClusterError(
            f"making {nodes} nodes with kind: they need about {wanted} inotify instances, and of root's {limit} {used} are "
            f"in use; take another cluster down, or raise the limit: sudo sysctl fs.inotify.max_user_instances=512"
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
