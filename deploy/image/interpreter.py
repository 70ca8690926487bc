"""Python and the libraries that it and its packages load, taken from the machine that runs this.

Python finds its standard library relative to itself, so it may lie elsewhere in the image than on the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.image.errors import ImageError

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = f"usr/bin/{VERSION}"
STDLIB = f"usr/lib/{VERSION}"
# Of no use to a program that only runs: tests, teaching, graphics, building, terminals, databases.
_WITHOUT = (
    *(
        "test",
        "idlelib",
        "tkinter",
        "turtledemo",
        "turtle.py",
        "lib2to3",
        "distutils",
        "ensurepip",
        "pydoc_data",
        "venv",
    ),
    *("unittest/test", "ctypes/test", "sqlite3", "curses", "dbm", "site-packages", "dist-packages", "config-*"),
    *("LICENSE.txt", "EXTERNALLY-MANAGED", "__pycache__", "sitecustomize.py", "*.exe", "*.whl"),
)
_WITHOUT_EXTENSIONS = re.compile(
    r"(_tkinter|_sqlite3|_curses.*|readline|_dbm|_gdbm|nis|ossaudiodev|_test.*|_ctypes_test|xx.*|_xx.*|audioop)\."
)
# NVIDIA's libraries load these by name; in newer C libraries they are empty and nothing else wants them.
_LOADED_BY_THE_DRIVER = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")
_LDD = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x|^\s*(\S+) => (not found)")


def put_python(root: Path) -> str:
    """The interpreter with its standard library; where it lies in the root."""
    program = root / PYTHON
    program.parent.mkdir(parents=True)
    shutil.copyfile(Path(getattr(sys, "_base_executable", sys.executable)).resolve(), program)
    program.chmod(0o755)
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix, "installed_base": sys.base_prefix}
    stdlib = Path(sysconfig.get_path("stdlib", vars=base))
    extensions = Path(sysconfig.get_config_var("DESTSHARED") or stdlib / "lib-dynload")
    shutil.copytree(
        stdlib, root / STDLIB, ignore=shutil.ignore_patterns(*_names_without(), "lib-dynload"), symlinks=False
    )
    for path in _WITHOUT:
        if "/" in path:
            shutil.rmtree(root / STDLIB / path, ignore_errors=True)
    dynload = root / STDLIB / "lib-dynload"
    dynload.mkdir()
    for extension in sorted(extensions.glob("*.so")):
        if not _WITHOUT_EXTENSIONS.match(extension.name):
            shutil.copyfile(extension, dynload / extension.name)
    return PYTHON


def _names_without() -> Iterator[str]:
    return (name for name in _WITHOUT if "/" not in name)


def samples() -> list[Path]:
    """Files of each part of this Python that a distribution may have packaged by itself."""
    stdlib = Path(os.__file__).parent
    return [Path(getattr(sys, "_base_executable", sys.executable)).resolve(), stdlib / "os.py", stdlib / "csv.py"]


def put_libraries(root: Path) -> list[Path]:
    """Every library that something in the root is linked with; where they lie on the machine. ImageError when one is missing."""
    ours = [path for path in _elf_files(root) if not path.is_symlink()]
    found = _linked(ours, root)
    libc = next((path for name, path in found.items() if name.startswith("libc.so")), None)
    if libc is None:
        raise ImageError(
            "looking for the C library of this Python: it has none of glibc; take a base with glibc (Debian, UBI)"
        )
    for name in _LOADED_BY_THE_DRIVER:
        beside = libc.parent / name
        if beside.exists():
            found.setdefault(name, beside)
    for name, path in found.items():
        # The loader's own path is fixed; all others are put where it looks without a cache: beside the C library.
        place = root / str(path if name.startswith("ld-") else libc.parent / name).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.resolve(), place)
        place.chmod(0o755)
    return sorted(set(found.values()))


def _linked(files: Iterable[Path], root: Path) -> dict[str, Path]:
    """Name -> path on this machine, of all that is not in the root already."""
    listed = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    found: dict[str, Path] = {}
    for line in listed.splitlines():
        match = _LDD.match(line)
        if match is None:
            continue
        if match[4]:
            raise ImageError(
                f"looking for library {match[3]}: the loader does not find it; install it in the base image"
            )
        path = Path(match[2])
        if not path.is_relative_to(root):
            found.setdefault(match[1] or path.name, path)
    return dict(sorted((Path(name).name, path) for name, path in found.items()))


def _elf_files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(directory, name)
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path
