"""Builds the programs of a cluster, once: what is finished lies in a cache keyed by all that determines it.

A program appears in the cache by rename only, so whatever is there is whole, however a build ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.golang import Go, cache_directory
from e2e.cluster.parts import Program
from e2e.cluster.steps import say, step

PAUSE_SOURCE = Path(__file__).with_name("pause.c")
PAUSE_FLAGS = ("-static", "-Os", "-s")

Programs = Mapping[str, Path]  # name -> where it lies


def places(programs: Iterable[Program], go_version: str, *, pause: bool = True) -> dict[str, Path]:
    """Where each program lies in the cache, or will; by default with `pause`, the only one that is compiled by gcc."""
    root = cache_directory() / "bin"
    found = {program.name: root / program.module.key(go_version) / program.called for program in programs}
    if not pause:
        return found
    key = hashlib.sha256(PAUSE_SOURCE.read_bytes() + " ".join((*PAUSE_FLAGS, platform.machine())).encode())
    return {**found, "pause": root / f"pause-{key.hexdigest()[:12]}" / "pause"}


def missing(programs: Iterable[Program], go_version: str, *, pause: bool = True) -> list[str]:
    return [name for name, place in places(programs, go_version, pause=pause).items() if not place.exists()]


def build(programs: Iterable[Program], go: Go, *, pause: bool = True) -> Programs:
    """Every program, built where it is not cached; one line each. ClusterError with the compiler's last lines."""
    wanted = {program.name: program for program in programs}
    where = places(wanted.values(), go.version, pause=pause)
    with _one_build_at_a_time():
        for number, (name, place) in enumerate(where.items(), 1):
            version = wanted[name].module.version if name in wanted else ""
            line = f"[{number}/{len(where)}] {name} {version}".rstrip()
            if place.exists():
                say(f"{line} ... cached")
                continue
            with step(line, "built in"), _unfinished(place) as unfinished:
                if name in wanted:
                    _go_build(wanted[name], go, unfinished)
                else:
                    _run(["gcc", *PAUSE_FLAGS, "-o", str(unfinished), str(PAUSE_SOURCE)], Path("/"), None)
    return where


def _go_build(program: Program, go: Go, output: Path) -> None:
    module = program.module
    command = [str(go.program), "build", *module.flags, "-o", str(output), program.package]
    _run(command, module.directory, go.environment(cgo=module.cgo))


def _run(command: list[str], directory: Path, environment: Mapping[str, str] | None) -> None:
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(
            f"building with `{' '.join(command)}` in {directory}: {done.stderr.strip()[-1500:] or done.returncode}; "
            f"run the command by hand, or empty {cache_directory()} if the disk is full"
        )


@contextmanager
def _unfinished(place: Path) -> Iterator[Path]:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".unfinished-") as directory:
        yield Path(directory) / place.name
        os.rename(Path(directory) / place.name, place)


@contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(directory / "bin")
        yield


def _sweep(bins: Path) -> None:
    """Remove what killed builds left; safe under the lock alone."""
    for directory in bins.glob("*/.unfinished-*"):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
