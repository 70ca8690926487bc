"""The driver's packages: what pip installed, less what never runs, our own source, compiled."""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import platform
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.image.errors import ImageError
from deploy.image.interpreter import STDLIB

PLACE = "opt/dra-driver"
# The driver reads kubeconfigs with the `kubernetes` package and nothing else; the rest of it is 100 MB, and its
# asynchronous half brings a second HTTP client.
_DISTRIBUTIONS_WITHOUT = frozenset(
    (
        "aiohappyeyeballs",
        "aiohttp",
        "aiohttp-retry",
        "aiosignal",
        "attrs",
        "frozenlist",
        "multidict",
        "propcache",
        "yarl",
    )
)
_EMPTIED = ("kubernetes/aio", "kubernetes/client/api", "kubernetes/client/models")
# Tests and sources of compiled modules that wheels bring along.
_PATTERNS = ("**/tests", "**/*.pyx", "**/*.pxd", "**/*.c", "**/*.h", "**/include")
_TARGETS = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl"}


def put_packages(root: Path, installed: Path, source: Path) -> None:
    """ImageError when what is to be left out is not there any more: then this table is out of date."""
    place = root / PLACE
    shutil.copytree(installed, place, ignore=shutil.ignore_patterns("__pycache__"))
    for distribution in importlib.metadata.distributions(path=[str(place)]):
        if distribution.metadata["Name"].lower().replace("_", "-") in _DISTRIBUTIONS_WITHOUT:
            _remove_distribution(place, distribution)
    for name in _EMPTIED:
        kept = (place / name / "__init__.py").read_bytes() if (place / name / "__init__.py").exists() else None
        if kept is None:
            raise ImageError(f"leaving out {name}: it is not there; bring the table in {__name__} up to date")
        shutil.rmtree(place / name)
        if name != "kubernetes/aio":  # the others are imported, and load what is in them when it is asked for
            (place / name).mkdir()
            (place / name / "__init__.py").write_bytes(kept)
    shutil.rmtree(place / "bin", ignore_errors=True)
    for pattern in _PATTERNS:
        for path in sorted(place.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for package in ("api", "dra_driver"):
        shutil.copytree(source / package, place / package, ignore=shutil.ignore_patterns("__pycache__", "generate.py"))


def _remove_distribution(place: Path, distribution: importlib.metadata.Distribution) -> None:
    for file in distribution.files or ():
        path = place / str(file)
        if path.is_relative_to(place):
            path.unlink(missing_ok=True)
            parent = path.parent
            while parent != place and parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
                parent = parent.parent


def put_nvidia_smi(root: Path, source: Path, tools: Path | None) -> None:
    """The simulated nvidia-smi, where `dra_driver.hardware.sim` looks for it: no image has a compiler."""
    if tools is None:
        return
    sys.path.insert(0, str(source))
    from dra_driver.hardware.sim.nvidia_smi import FLAGS, HERE, program_name

    target = _TARGETS.get(platform.machine())
    if target is None:
        raise ImageError(f"compiling nvidia_smi.c for {platform.machine()}: only {', '.join(_TARGETS)} are known")
    output = root / PLACE / HERE.relative_to(source.resolve()) / program_name()
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        target,
        *FLAGS,
        "-o",
        str(output),
        str(HERE / "nvidia_smi.c"),
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tools)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ImageError(f"compiling {HERE / 'nvidia_smi.c'} with {' '.join(command)}: {done.stderr.strip()[-800:]}")


def compile_all(root: Path) -> None:
    """Bytecode that is never compared with its source, whose time a layer may change; by hash, so that it is reproducible."""
    for name in (STDLIB, PLACE):
        compileall.compile_dir(
            str(root / name),
            quiet=2,
            force=True,
            maxlevels=20,
            stripdir=str(root),
            prependdir="/",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def installed(root: Path) -> list[importlib.metadata.Distribution]:
    found = importlib.metadata.distributions(path=[str(root / PLACE)])
    return sorted(found, key=lambda distribution: distribution.metadata["Name"].lower())
