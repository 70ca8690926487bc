"""The cgroups below which a cluster's pods live, one subtree per cluster in every hierarchy, version 1 or 2."""

from __future__ import annotations

import time
from pathlib import Path

from e2e.cluster import ClusterError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "hugetlb", "io", "memory", "pids")  # a kubelet refuses a root that lacks one


def unified() -> bool:
    """Whether this machine has version 2 alone; kubelets treat a hybrid as version 1."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    if unified():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())


def subtree(cluster: str) -> str:
    return f"dra-e2e.{cluster}"


def make(cluster: str, node: str) -> str:
    """The cgroup that a kubelet is given as root: "/dra-e2e.<cluster>/<node>"."""
    for hierarchy in hierarchies():
        parent = hierarchy
        for name in (subtree(cluster), node):
            _hand_down(parent)
            child = parent / name
            child.mkdir(exist_ok=True)
            _inherit_cpuset(parent, child)
            parent = child
    return f"/{subtree(cluster)}/{node}"


def remove(cluster: str, node: str | None = None) -> None:
    """Remove the subtree of a node, or of the whole cluster. Its processes have ended before."""
    deadline = time.monotonic() + 10
    for hierarchy in hierarchies():
        top = hierarchy / subtree(cluster) / (node or "")
        while top.is_dir():
            try:
                for directory in [*sorted(top.rglob("*/"), reverse=True), top]:
                    if directory.is_dir():
                        directory.rmdir()
            except OSError as error:  # busy for a moment after its last process ended
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"removing cgroup {top}: {error}; see which processes {error.filename}/cgroup.procs lists"
                    ) from error
                time.sleep(0.05)


def leftovers(cluster: str) -> list[Path]:
    return [path for hierarchy in hierarchies() if (path := hierarchy / subtree(cluster)).exists()]


def _hand_down(parent: Path) -> None:
    """Version 2: let children have the controllers; as many as this machine has."""
    control = parent / "cgroup.subtree_control"
    if not unified():
        return
    present = (parent / "cgroup.controllers").read_text().split()
    try:
        control.write_text(" ".join(f"+{name}" for name in CONTROLLERS if name in present))
    except OSError as error:
        raise ClusterError(
            f"handing cgroup controllers down in {control}: {error}; inside a container, "
            f"move its processes out of the root cgroup first, or run on the machine itself"
        ) from error


def _inherit_cpuset(parent: Path, child: Path) -> None:
    """Version 1: a new cpuset is empty, and an empty one takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (child / name).exists() and not unified() and not (child / name).read_text().strip():
            (child / name).write_text((parent / name).read_text())
