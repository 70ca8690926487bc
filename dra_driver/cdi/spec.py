"""CDI specs as text: container edits rendered in the least version that says them. Pure.

Source: the Go structs of tags.cncf.io/container-device-interface/specs-go v1.1.0 and its validation. Readers decode
strictly and skip a file with one mistake, so the mistake is reported here, where somebody can still act on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dra_driver.cdi.names import kind_problem, name_problem
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount

HOOK_NAMES = frozenset(
    ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
)

# What a device without edits of its own gets: readers reject a device with empty containerEdits, and with it the file.
EMPTY_DEVICE_VARIABLE = "CDI_DEVICE_WITHOUT_EDITS"

_dumps = json.JSONEncoder(separators=(",", ":")).encode


class InvalidSpecError(ValueError):
    """These edits or names cannot be said in CDI; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Part:
    """Container edits, checked and rendered. `edits` are those it was made from, `text` a JSON object of one element per
    line, empty edits as `{}`."""

    edits: ContainerEdits
    text: str
    has_host_path: bool


@dataclass(frozen=True, slots=True)
class _Features:
    """What decides the version."""

    class_name: str
    device_names: tuple[str, ...]
    has_host_path: bool


BASE_VERSION = "0.3.0"
VERSIONS: tuple[tuple[str, Callable[[_Features], bool]], ...] = (
    ("0.6.0", lambda f: "." in f.class_name),
    ("0.5.0", lambda f: f.has_host_path),
    ("0.5.0", lambda f: any(not name[:1].isalpha() for name in f.device_names)),
)
"""(version, what needs it), newest first. Old readers refuse files of a version they do not know: containerd 1.7.0 stops
at 0.5.0. A new CDI feature is one row here and its field in `_edits`."""


def part(edits: ContainerEdits) -> Part:
    """Checks and renders container edits. InvalidSpecError lists every mistake, not only the first."""
    problems = edit_problems(edits)
    if problems:
        raise InvalidSpecError("; ".join(problems))
    lists = (f'"{key}":[\n{_lines(items)}]' for key, items in _edits(edits).items())
    return Part(edits, "{" + ",\n".join(lists) + "}", any(_is_elsewhere(node) for node in edits.device_nodes))


def render(kind: str, devices: Sequence[tuple[str, ContainerEdits]], common: Part) -> str:
    """The text of a spec file: devices sorted by name, edits in the order of `_edits`; the same input gives the same text.

    `kind` is `vendor/class`, `devices` are unqualified names with their edits. A device named twice with equal edits is
    written once. InvalidSpecError when a reader would refuse the file.
    """
    problem = kind_problem(kind)
    if problem:
        raise InvalidSpecError(problem)
    by_name: dict[str, ContainerEdits] = {}
    for name, edits in devices:
        problem = name_problem(name)
        if problem:
            raise InvalidSpecError(problem)
        if by_name.setdefault(name, edits) != edits:
            raise InvalidSpecError(f"device {name} is named twice with different edits")
    if not by_name:
        raise InvalidSpecError("there is no device in it")

    rendered = [(name, _device_part(edits or _marker(name))) for name, edits in sorted(by_name.items())]
    version = _least_version(
        _Features(
            class_name=kind.partition("/")[2],
            device_names=tuple(by_name),
            has_host_path=common.has_host_path or any(one.has_host_path for _, one in rendered),
        )
    )
    lines = ",\n".join(f'{{"name":"{name}","containerEdits":{one.text}}}' for name, one in rendered)
    shared = f',\n"containerEdits":{common.text}' if common.edits else ""
    return f'{{"cdiVersion":"{version}",\n"kind":"{kind}",\n"devices":[\n{lines}]{shared}}}\n'


# A node has few devices, and each is described in the same words for every claim that gets it.
_device_part = lru_cache(maxsize=256)(part)


def edit_problems(edits: ContainerEdits) -> list[str]:
    """Why readers would refuse these edits, one text per mistake; empty when they are right."""
    problems = [f"env {entry!r} is not NAME=value" for entry in edits.env if entry.find("=") < 1]
    for node in edits.device_nodes:
        problems += _path_problem("device node path", node.path)
        if node.host_path is not None:
            problems += _path_problem("device node host path", node.host_path)
        if (node.major is None) != (node.minor is None):
            problems.append(f"device node {node.path} has only one of major and minor")
        if node.permissions is not None and (not node.permissions or not set(node.permissions) <= set("rwm")):
            problems.append(f"device node {node.path} has permissions {node.permissions!r}, not of r, w and m")
    for mount in edits.mounts:
        problems += _path_problem("mount host path", mount.host_path)
        problems += _path_problem("mount container path", mount.container_path)
    for hook in edits.hooks:
        problems += _path_problem("hook path", hook.path)
        if hook.name not in HOOK_NAMES:
            problems.append(f"hook {hook.name!r} is none of {', '.join(sorted(HOOK_NAMES))}")
        problems += [
            f"env {entry!r} of hook {hook.path} is not NAME=value" for entry in hook.env if entry.find("=") < 1
        ]
    return problems + [f"{text!r} is not text that JSON and C can hold" for text in _texts(edits) if not _sayable(text)]


def _path_problem(what: str, path: str) -> list[str]:
    return [] if path.startswith("/") else [f"{what} {path!r} is not absolute"]


def _texts(edits: ContainerEdits) -> list[str]:
    found = list(edits.env)
    for node in edits.device_nodes:
        found += [node.path, node.host_path or ""]
    for mount in edits.mounts:
        found += [mount.host_path, mount.container_path, *mount.options]
    for hook in edits.hooks:
        found += [hook.path, *hook.args, *hook.env]
    return found


def _sayable(text: str) -> bool:
    # A file name that is not UTF-8 reaches Python as lone surrogates; a Go reader would turn them into U+FFFD.
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def _marker(name: str) -> ContainerEdits:
    return ContainerEdits(env=(f"{EMPTY_DEVICE_VARIABLE}={name}",))


def _least_version(features: _Features) -> str:
    return next((version for version, needed in VERSIONS if needed(features)), BASE_VERSION)


def _lines(items: list[Any]) -> str:
    return ",\n".join(_dumps(item) for item in items)


def _edits(edits: ContainerEdits) -> dict[str, list[Any]]:
    """Sorted by variable, path or container path. The sort is stable: of two entries for one place the later one wins in
    the container, so they must not change places. Hooks keep their order, because they run in it."""
    lists: dict[str, list[Any]] = {
        "env": sorted(edits.env, key=lambda entry: entry.partition("=")[0]),
        "deviceNodes": [_device_node(node) for node in sorted(edits.device_nodes, key=lambda node: node.path)],
        "hooks": [_hook(hook) for hook in edits.hooks],
        "mounts": [_mount(mount) for mount in sorted(edits.mounts, key=lambda mount: mount.container_path)],
    }
    return {key: items for key, items in lists.items() if items}


def _device_node(node: DeviceNode) -> dict[str, Any]:
    said: dict[str, Any] = {"path": node.path}
    if _is_elsewhere(node):
        said["hostPath"] = node.host_path
    if node.major is not None:
        # With type and major the runtime makes the node itself. All NVIDIA nodes are character devices.
        said |= {"type": "c", "major": node.major, "minor": node.minor}
    if node.file_mode is not None:
        said["fileMode"] = node.file_mode
    if node.permissions is not None:
        said["permissions"] = node.permissions
    return said


def _is_elsewhere(node: DeviceNode) -> bool:
    return node.host_path is not None and node.host_path != node.path


def _hook(hook: Hook) -> dict[str, Any]:
    said: dict[str, Any] = {"hookName": hook.name, "path": hook.path}
    if hook.args:
        said["args"] = list(hook.args)
    if hook.env:
        said["env"] = list(hook.env)
    return said


def _mount(mount: Mount) -> dict[str, Any]:
    said: dict[str, Any] = {"hostPath": mount.host_path, "containerPath": mount.container_path}
    if mount.options:
        said["options"] = list(mount.options)
    return said
