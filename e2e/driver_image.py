"""The driver's image without Docker: the root that the Dockerfile makes (deploy/image), as an archive that nodes load.

Kept in the cache of the cluster's programs, by all that determines it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.golang import cache_directory
from e2e.cluster.images import Image
from e2e.cluster.steps import step

ROOT = Path(__file__).resolve().parent.parent
LOCK, TOOLS_LOCK = "requirements.lock", "deploy/image/build.lock"
SOURCES = ("api", "dra_driver", "deploy/image")
_PIP = ("--disable-pip-version-check", "install", "--quiet", "--no-compile", "--no-deps", "--only-binary", ":all:")


def driver_image(tag: str, source: Path = ROOT) -> Path:
    """A docker-archive of the image of a source tree, under `tag`. ClusterError with the last lines of what went wrong."""
    home = cache_directory() / "image"
    home.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(home):
        archive = home / f"{_key(source, tag)}.tar"
        if not archive.exists():
            packages, tools = _installed(home, source / LOCK), _installed(home, source / TOOLS_LOCK)
            with step(f"image {tag}", "built in"), tempfile.TemporaryDirectory(dir=home, prefix=".unfinished-") as work:
                root = Path(work) / "root"
                _run(["-m", "deploy.image", str(root), "--packages", str(packages), "--tools", str(tools)], source)
                unfinished = image(tag, root).write(Path(work) / "archive.tar")
                unfinished.rename(archive)
        for older in _unused(home, "*.tar", archive, 4):
            older.unlink()
    return archive


def image(tag: str, root: Path) -> Image:
    """What the last stage of the Dockerfile says."""
    files: dict[str, Path | bytes] = {}
    links, directories = {}, {}
    for directory, names, others in os.walk(root):
        for name in (*names, *others):
            path = Path(directory, name)
            place = str(path.relative_to(root))
            if path.is_symlink():
                links[place] = os.readlink(path)
            elif path.is_dir():
                if not any(path.iterdir()):
                    directories[place] = path.stat().st_mode & 0o7777
            else:
                files[place] = path
    return Image(tag, files, links, directories, entrypoint=("/usr/bin/dra-driver",), command=("agent",))


def _key(source: Path, tag: str) -> str:
    digest = hashlib.sha256(f"{tag} {platform.machine()} {sys.version}".encode())
    files = [path for name in SOURCES for path in (source / name).rglob("*") if "__pycache__" not in path.parts]
    for path in sorted([source / LOCK, *filter(Path.is_file, files)]):
        digest.update(f"{path.relative_to(source)} {path.stat().st_mode}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _installed(home: Path, lock: Path) -> Path:
    """A directory with the packages of a lock file, on this Python."""
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = home / f"{lock.stem}-{digest}"
    if not place.exists():
        with step(f"packages of {lock.name}"), tempfile.TemporaryDirectory(dir=home, prefix=".unfinished-") as work:
            target = Path(work) / "packages"
            _run(["-m", "pip", *_PIP, "--require-hashes", "--target", str(target), "--requirement", str(lock)], ROOT)
            target.rename(place)
    for older in _unused(home, f"{lock.stem}-*", place, 2):  # this version's and the one's before
        shutil.rmtree(older)
    return place


def _unused(home: Path, pattern: str, used: Path, kept: int) -> list[Path]:
    """What of a kind has not been used for longest; `used` is being used now."""
    os.utime(used)
    return sorted(home.glob(pattern), key=lambda path: path.stat().st_mtime)[:-kept]


def _run(arguments: list[str], directory: Path) -> None:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(
            f"making the driver's image with `{' '.join(command)}`: {(done.stderr or done.stdout).strip()[-1500:]}; "
            f"run the command by hand in {directory}"
        )


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    with (home / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in home.glob(".unfinished-*"):  # of builds that were killed
            shutil.rmtree(left)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.driver_image", description=__doc__)
    parser.add_argument("tag", nargs="?", default="dra-driver:0.1.0", help="name of the image (default %(default)s)")
    print(driver_image(parser.parse_args().tag))
    return 0


if __name__ == "__main__":
    sys.exit(main())
