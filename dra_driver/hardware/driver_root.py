"""Finding NVIDIA's driver under a root that is not `/`: links, directories, and the two names of each path.

A driver root is treated like a chroot: absolute links inside it are followed inside it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from dra_driver.hardware import ld_so_cache
from dra_driver.model.errors import TellUser

# Host paths in the order in which they are tried: an ordinary installation, the GPU operator's driver container, GKE.
CANDIDATES = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")

# Below a driver root. The first are NVIDIA's own list, `lib64` and `lib` cover GKE, the last distributions that keep
# drivers apart.
LIBRARY_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib",
    "lib",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
    "",
)

_MAX_LINKS = 40  # as the kernel


@dataclass(frozen=True, slots=True)
class DriverRoot:
    """One directory under two names: `host` as the container runtime sees it, `seen` as this process does."""

    host: str
    seen: str


def resolve(root: str, path: str) -> str | None:
    """`path` (below `root`, with or without a leading slash) with all links followed inside the root: an absolute path
    below the root without the root, like `/usr/lib64/libcuda.so.580.65.06`. None when it does not exist or loops."""
    pending = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == ".":
            continue
        if part == "..":
            if done:
                done.pop()
            continue
        here = os.path.join(root, *done, part)
        try:
            mode = os.lstat(here).st_mode
        except OSError:
            return None
        if not stat.S_ISLNK(mode):
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        target = os.readlink(here)
        if target.startswith("/"):
            done.clear()
        pending.extend(part for part in reversed(target.split("/")) if part)
    return "/" + "/".join(done)


def below(root: str, path: str) -> str:
    """Joins a path inside the root to the root: `("/driver-root", "/usr/bin")` is `/driver-root/usr/bin`."""
    return os.path.join(root, path.lstrip("/"))


def on_host(host_root: str, path: str) -> str:
    """What the host calls a path inside the driver root. The one place where host paths are made:
    `("/run/nvidia/driver", "/usr/bin/nvidia-smi")` is `/run/nvidia/driver/usr/bin/nvidia-smi`."""
    return os.path.normpath("/" + host_root.strip("/") + "/" + path.lstrip("/")).replace("//", "/")


def is_file(root: str, path: str) -> bool:
    """True for a regular file. A directory of the same name (left by a container runtime that mounted a missing file)
    must not pass for a library."""
    try:
        return stat.S_ISREG(os.lstat(below(root, path)).st_mode)
    except OSError:
        return False


def library_directories(root: str) -> tuple[str, ...]:
    """Those of `LIBRARY_DIRECTORIES` that exist, links followed, each once, in order; then where the root's ld.so.cache
    has libcuda or libnvidia-ml."""
    found = [resolve(root, directory) for directory in LIBRARY_DIRECTORIES]
    try:
        with open(below(root, "etc/ld.so.cache"), "rb") as file:
            cache = file.read()
    except OSError:
        cache = b""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        found.extend(resolve(root, os.path.dirname(path)) for path in ld_so_cache.library_paths(cache, name))
    return tuple(dict.fromkeys(path for path in found if path is not None and os.path.isdir(below(root, path))))


def find_library(root: str, name: str) -> str | None:
    """The file behind `name` (`libnvidia-ml.so.1`) in the first library directory that has it, as `resolve` gives it."""
    for directory in library_directories(root):
        path = resolve(root, os.path.join(directory, name))
        if path is not None and is_file(root, path):
            return path
    return None


def find_driver_root(candidates: Iterable[str] = CANDIDATES, prefix: str = "/") -> DriverRoot:
    """The first candidate (a host path) that holds libnvidia-ml or libcuda. `prefix` is where this process sees the
    host's root directory. TellUser with the list of places when none does."""
    tried = []
    for host in candidates:
        seen = below(prefix, host)
        tried.append(host)
        if find_library(seen, "libnvidia-ml.so.1") or find_library(seen, "libcuda.so.1"):
            return DriverRoot(host=host, seen=seen)
    raise TellUser(
        "looking for NVIDIA's driver libraries",
        f"neither libnvidia-ml.so.1 nor libcuda.so.1 below {', '.join(tried)} (host paths, seen below {prefix}) in any of "
        + ", ".join(directory or "." for directory in LIBRARY_DIRECTORIES),
        "install the driver, or set the driver root to where it is",
    )


def find_dev_root(root: DriverRoot) -> str:
    """The host path above the `dev` that belongs to this driver: the GPU operator's driver container can bring its own;
    everywhere else it is `/`."""
    own = root.host != "/" and os.path.exists(below(root.seen, "dev/nvidiactl"))
    return root.host if own else "/"
