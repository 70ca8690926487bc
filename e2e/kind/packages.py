"""Debian packages fetched with apt-get and unpacked below the cache: nothing is installed, the machine's lists stay as found."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.golang import cache_directory
from e2e.cluster.steps import step


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """A directory with the files of these packages and of what they depend on and this machine lacks; made once.

    Maintainer scripts do not run, so it holds what a package ships, not what installing it would set up.
    """
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    key = hashlib.sha256("\0".join((*packages, release)).encode()).hexdigest()[:12]
    place = cache_directory() / "packages" / f"{name}-{key}"
    if place.exists():
        return place
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ClusterError(
            f"fetching {' '.join(packages)}: there is no apt-get here; install them with this machine's own package manager"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with (
        step(f"fetching {' '.join(packages)} (unpacked in {place}, not installed)"),
        tempfile.TemporaryDirectory(dir=place.parent, prefix=".unfinished-") as directory,
    ):
        root = Path(directory) / "root"
        root.mkdir()
        for archive in _download(packages, Path(directory)):
            _run(["dpkg-deb", "--extract", str(archive), str(root)], f"unpacking {archive.name}")
        os.rename(root, place)
    return place


def known(package: str) -> bool:
    """Whether this machine's sources have a package of that name."""
    return subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0


def _download(packages: Sequence[str], directory: Path) -> list[Path]:
    archives, lists = directory / "archives", directory / "lists"
    for made in (archives / "partial", lists / "partial"):
        made.mkdir(parents=True)
    own = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    install = ["apt-get", *own, "install", "--download-only", "--no-install-recommends", "-y", "-q", *packages]
    # First with the machine's lists as they are: quick. They may be absent or too old: then with lists of our own.
    if subprocess.run(install, capture_output=True, check=False, env=_environment()).returncode:
        ours = ["-o", f"Dir::State::lists={lists}", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        # Status unasked: of all of a machine's sources one may be out of reach, and the others do.
        subprocess.run(["apt-get", *own, *ours, "update", "-q"], capture_output=True, check=False, env=_environment())
        _run([*install, *ours], f"fetching {' '.join(packages)}")
    return sorted(archives.glob("*.deb"))


def _run(command: Sequence[str], doing: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise ClusterError(f"{doing} with `{' '.join(command)}`: {done.stderr.strip()[-600:]}; run it by hand")


def _environment() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
