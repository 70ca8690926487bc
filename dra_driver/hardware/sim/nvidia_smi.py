"""Puts a working `nvidia-smi` into a driver root: a static program built once per machine that runs this, or a shell
script with the same answers where there is no C compiler."""

from __future__ import annotations

import logging
import os
import platform
import shutil
from pathlib import Path
from typing import Final

from dra_driver.hardware.sim.tree import drop

HERE: Final = Path(__file__).resolve().parent
FLAGS: Final = ("-D_GNU_SOURCE", "-static", "-Os", "-s", "-Wall", "-Wextra")
_log = logging.getLogger(__name__)


def put_nvidia_smi(directory: Path, others: tuple[str, ...]) -> None:
    """`others`: programs that are only there to be found; the same file, which looks at its own name."""
    program = built_program()
    if program is None:
        _log.warning(
            "building the simulated nvidia-smi: no C compiler that links statically was found; installing a shell "
            "script instead, which runs only in images with /bin/sh; install gcc and create the machine again"
        )
        program = HERE / "nvidia_smi.sh"
    directory.mkdir(parents=True, exist_ok=True)
    main = directory / "nvidia-smi"
    if not main.exists() or main.read_bytes() != program.read_bytes():
        temporary = directory / ".nvidia-smi.new"
        shutil.copyfile(program, temporary)
        temporary.chmod(0o755)
        temporary.replace(main)
    for name in others:
        drop(directory / name)
        try:
            os.link(main, directory / name)
        except OSError:  # a filesystem without hard links
            shutil.copy2(main, directory / name)


def program_name() -> str:
    """With the hash of the source, so that a program is never of another source."""
    import hashlib

    digest = hashlib.sha256((HERE / "nvidia_smi.c").read_bytes() + repr(FLAGS).encode()).hexdigest()[:16]
    return f"nvidia-smi-{platform.machine()}-{digest}"


def built_program() -> Path | None:
    """Beside the source, where the container image has it; else from `${XDG_CACHE_HOME:-~/.cache}/dra-driver-sim/`, built
    there when missing."""
    import subprocess

    source, name = HERE / "nvidia_smi.c", program_name()
    if (HERE / name).exists():
        return HERE / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dra-driver-sim"
    program = cache / name
    if program.exists():
        return program
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    temporary = program.with_suffix(f".{os.getpid()}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, *FLAGS, "-o", temporary, source], check=True, capture_output=True, timeout=120)
        temporary.replace(program)
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("building the simulated nvidia-smi with %s: %s", compiler, error)
        temporary.unlink(missing_ok=True)
        return None
    return program
