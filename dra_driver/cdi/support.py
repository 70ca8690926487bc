"""Whether a container runtime reads CDI specs at all: by its version and what its configuration files say. Values in, a sentence
out. Who does not read them starts pods without their devices and says nothing about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Sections of containerd's configuration, by its versions 1, 2 and 3.
_SECTIONS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_RUNTIME = re.compile(r"(?P<name>[a-z-]+)://v?(?P<major>\d+)\.(?P<minor>\d+)")
_GUIDE = "see `The container runtime` in docs/install.md"

Version = tuple[int, int]
_FIRST: Version = (1, 7)
_ALWAYS: Version = (2, 4)  # it has no switch any more


def objection(runtime: str, switches: Mapping[str, bool], looked_at: Sequence[str]) -> str:
    """`runtime` is a Node's status.nodeInfo.containerRuntimeVersion, `switches` what configuration files say, by their paths, of
    all paths that were looked at. Empty where specs are read, or where nobody can tell."""
    match = _RUNTIME.match(runtime)
    if match is None:
        return ""
    version = (int(match["major"]), int(match["minor"]))
    if match["name"] == "containerd":
        why = _containerd(version, switches, looked_at)
    elif match["name"] == "docker":
        why = f"cri-dockerd hands none of them on: use containerd or CRI-O; {_GUIDE}"
    else:
        why = ""
    return f"{runtime} reads no CDI specs, so pods with claims run without their GPUs: {why}" if why else ""


def has_switch(runtime: str) -> bool:
    """Whether it is for its configuration to say."""
    match = _RUNTIME.match(runtime)
    return (
        match is not None
        and match["name"] == "containerd"
        and _FIRST <= (int(match["major"]), int(match["minor"])) < _ALWAYS
    )


def _containerd(version: Version, switches: Mapping[str, bool], looked_at: Sequence[str]) -> str:
    if version < _FIRST:
        return f"use 1.7.2 or newer; {_GUIDE}"
    if version >= _ALWAYS or any(switches.values()):
        return ""
    if switches:
        return (
            f"enable_cdi is false in {' and '.join(sorted(switches))}: set it to true and restart containerd; {_GUIDE}"
        )
    if version >= (2, 0):
        return ""
    where = f"in none of {', '.join(looked_at)}" if len(looked_at) > 1 else f"not in {looked_at[0]}"
    return f"enable_cdi = true is {where}: add it and restart containerd; {_GUIDE}"


def switch(configuration: Mapping[str, Any]) -> bool | None:
    """What one configuration file of containerd says about CDI; None where it says nothing."""
    plugins = configuration.get("plugins")
    if not isinstance(plugins, Mapping):
        return None
    for name in _SECTIONS:
        section = plugins.get(name)
        if isinstance(section, Mapping) and isinstance(said := section.get("enable_cdi"), bool):
            return said
    return None
