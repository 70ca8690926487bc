"""Where the host's file systems are found: `/` in production, a directory of a simulated machine elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostRoots:
    """Directories as this process sees them. `driver` is the root under which NVIDIA's driver is installed (`usr/bin`,
    `usr/lib64`, ... below it); how the host names that same directory is a setting of `NvidiaDriverFiles`."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    driver: str = "/"
