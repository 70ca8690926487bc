"""Which configuration files the containerd of this host reads: those of the ones that run, or else the usual places.

Reads the host's root only. Paths are as the host has them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

DEFAULT = "/etc/containerd/config.toml"
# Where containerd, and the distributions that bring their own, keep its configuration.
USUAL = (
    DEFAULT,
    "/etc/containerd/conf.d/*.toml",
    "/etc/containerd/config.d/*.toml",
    "/etc/k0s/containerd.toml",
    "/etc/k0s/containerd.d/*.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
_FLAG = re.compile(r"--?(?:c|config)(?:=(?P<file>.*))?")

Configurations = Mapping[str, Mapping[str, Any]]


def configurations(root: Path) -> tuple[Configurations, Sequence[str]]:
    """What the files say, by path, and the paths or patterns that were looked at."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in _of_those_that_run(root / "proc"):
        _add(root, file, found)
    if found:
        return found, sorted(found)
    for pattern in USUAL:
        _add(root, pattern, found)
    return found, USUAL


def _of_those_that_run(proc: Path) -> Iterator[str]:
    """One of a container on this host is among them; its file is seldom at the same place here."""
    for name in proc.glob("[0-9]*/comm"):
        try:
            if name.read_text() == "containerd\n":
                yield _configured_by(name.with_name("cmdline").read_bytes().decode(errors="replace").split("\0"))
        except OSError:  # it has ended
            continue


def _configured_by(argv: Sequence[str]) -> str:
    for number, argument in enumerate(argv):
        match = _FLAG.fullmatch(argument)
        if match is not None:
            return match["file"] if match["file"] is not None else "".join(argv[number + 1 : number + 2])
    return DEFAULT


def _add(root: Path, pattern: str, found: dict[str, Mapping[str, Any]]) -> None:
    """The files, and those that they import."""
    import tomllib  # most nodes have no such file

    below = os.path.normpath(pattern).lstrip("/")
    for file in sorted(root.glob(below)) if pattern.startswith("/") and below else ():
        name = f"/{file.relative_to(root)}"
        if name in found:
            continue
        try:
            found[name] = tomllib.loads(file.read_text())
        except (OSError, ValueError) as error:  # not ours, and perhaps not even read by the runtime
            log.debug("reading %s: %s", file, error)
            continue
        imports = found[name].get("imports")
        for wanted in imports if isinstance(imports, list) else ():
            _add(root, str(Path(name).parent / str(wanted)), found)
