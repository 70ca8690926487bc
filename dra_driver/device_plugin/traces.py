"""Whether there can be a device plugin at all, told by one `stat` of the directory that the kubelet keeps for them."""

from __future__ import annotations

import os
import time
from pathlib import Path

# The kubelet's own socket, and what older ones leave there. Sockets of plugins, and the kubelet's checkpoint of what they
# offer and what pods have of it, which outlives them, are everything else.
_OF_THE_KUBELET = frozenset({"kubelet.sock", "DEPRECATION"})
_SETTLED_AFTER_S = 1.0  # two changes within one tick of the file system's clock look like one

Stamp = tuple[int, int] | None


class Traces:
    """`directory` is device-plugins in the kubelet's directory. The kubelet writes its checkpoint there whenever a plugin
    comes, goes or changes its offer, and whenever a pod gets devices, before the pod starts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stamp(self) -> Stamp:
        """As long as it stays the same nothing has happened; None when that cannot be said."""
        try:
            status = os.stat(self._directory)
        except OSError:
            return (0, 0)  # nobody keeps device plugins here
        if time.time() - status.st_mtime < _SETTLED_AFTER_S:
            return None
        return (status.st_ino, status.st_mtime_ns)

    def any(self) -> bool:
        """Whether a device plugin is there, or ever was."""
        try:
            return not _OF_THE_KUBELET.issuperset(os.listdir(self._directory))
        except OSError:
            return False
