"""Writes files and links of a host root, each only if it is not so already."""

from __future__ import annotations

import os
from pathlib import Path


def put_file(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    temporary.chmod(mode)
    temporary.replace(path)


def put_link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    drop(path)
    path.symlink_to(target)


def drop(path: Path) -> None:
    """Removes a file, a link or a whole directory; what is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # not for the agent: it loads three compression libraries

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def keep_only(directory: Path, names: set[str]) -> None:
    if directory.is_dir():
        for entry in directory.iterdir():
            if entry.name not in names:
                drop(entry)
