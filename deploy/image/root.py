"""Puts the root together, step by step, and looks whether what is in it works."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.image import debian, interpreter, packages, sbom
from deploy.image.errors import ImageError

__all__ = ["ImageError", "Parts", "make_root"]

PROGRAM = "usr/bin/dra-driver"
# -I: no environment, no current directory, no user's packages; -S: no site; -B: the root is read-only.
_LAUNCHER = """\
#!/{python} -BIS
import sys

sys.path.insert(0, "/{packages}")

from dra_driver.cli.main import main

sys.exit(main())
"""
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Roots are mounted read-only, so that mount points of what pods get must be there: /tmp, /run and the others are.
_DIRECTORIES = {"tmp": 0o1777, "run": 0o755, "var": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755}
_LINKS = {"var/run": "/run"}


@dataclass(frozen=True, slots=True)
class Parts:
    """`source` is the repository; the others are directories that pip filled."""

    source: Path
    packages: Path
    tools: Path | None


def make_root(root: Path, parts: Parts, time: int) -> None:
    """`time`: seconds since the epoch that every file is of. ImageError when a part is missing or the result does not work."""
    if root.exists():
        raise ImageError(f"making {root}: it exists; remove it or name another directory")
    root.mkdir(parents=True)
    python = interpreter.put_python(root)
    packages.put_packages(root, parts.packages, parts.source)
    packages.put_nvidia_smi(root, parts.source, parts.tools)
    owners = debian.owners([*interpreter.put_libraries(root), *interpreter.samples()])
    debian.put_records(root, owners)
    _put_files(root, python)
    packages.compile_all(root)
    sbom.put(root, packages.installed(root), owners)
    _check(root, python)
    _settle(root, time)


def _put_files(root: Path, python: str) -> None:
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, mode in _DIRECTORIES.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    release = Path("/etc/os-release")
    if release.exists():  # what scanners look at first
        shutil.copyfile(release, root / "etc/os-release")
    program = root / PROGRAM
    program.write_text(_LAUNCHER.format(python=python, packages=packages.PLACE))
    program.chmod(0o755)


def _check(root: Path, python: str) -> None:
    """The root's own interpreter, in the root where we may chroot, loads every module that the driver has."""
    inside = os.geteuid() == 0 and shutil.which("chroot") is not None
    program = ("chroot", str(root), f"/{python}") if inside else (str(root / python),)
    script = (
        f"import importlib, pkgutil, sys; sys.path.insert(0, {('/' if inside else f'{root}/') + packages.PLACE!r})\n"
        "for package in map(importlib.import_module, ('dra_driver', 'api')):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = subprocess.run([*program, "-BIS", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(
            f"loading the driver in {root}: {done.stderr.strip()[-1500:]}; see what {packages.__name__} and "
            f"{interpreter.__name__} leave out"
        )


def _settle(root: Path, time: int) -> None:
    """One time and one mode of everything: neither umask nor clock may show."""
    for directory, inner, names in os.walk(root, topdown=False):
        for path in (Path(directory, name) for name in (*inner, *names)):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (time, time), follow_symlinks=False)
        relative = os.path.relpath(directory, root)
        os.chmod(directory, _DIRECTORIES.get(relative, 0o755))
        os.utime(directory, (time, time))
