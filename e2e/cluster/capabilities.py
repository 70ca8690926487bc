"""What this process, and whatever it starts, may ever be allowed to do."""

from __future__ import annotations

from pathlib import Path

CAP_SYS_RESOURCE = 24  # linux/capability.h


def may_have(capability: int) -> bool:
    """Whether a process started from here may ever have it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False
