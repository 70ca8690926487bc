"""Finds what an installed driver consists of, by the patterns of `driver_tables`. Reads a driver root, decides nothing.

Paths are those inside the root (`/usr/lib64/libcuda.so.580.65.06`), links followed: that is also where they go in a
container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dra_driver.hardware import driver_tables as tables
from dra_driver.hardware.driver_root import below, is_file, library_directories, resolve
from dra_driver.model.errors import TellUser

_VERSIONED = re.compile(r"^lib(?:cuda|nvidia-ml)\.so\.([0-9]+\.[0-9]+(?:\.[0-9]+)?)$")


@dataclass(frozen=True, slots=True)
class Item:
    """A file of the driver and where it goes in a container."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Installation:
    """`libraries`, `files` and `sockets` are sorted by target. `sonames` and `extra_names` are further names of
    libraries, next to them. `watched` are the paths whose change means that all this is to be found anew."""

    version: str
    libraries: tuple[Item, ...]
    sonames: tuple[Item, ...]
    extra_names: tuple[Item, ...]
    files: tuple[Item, ...]
    sockets: tuple[Item, ...]
    watched: tuple[str, ...]

    @property
    def loader_directories(self) -> tuple[str, ...]:
        """Directories in which the dynamic loader must look, sorted. Plug-ins (vdpau) are opened by path."""
        directories = {os.path.dirname(item.target) for item in self.libraries}
        return tuple(sorted(path for path in directories if os.path.basename(path) != tables.VDPAU))

    @property
    def cuda_directory(self) -> str:
        """Where libcuda is, else the first loader directory."""
        for item in self.libraries:
            if os.path.basename(item.target).startswith("libcuda.so."):
                return os.path.dirname(item.target)
        return next(iter(self.loader_directories), "/")


def find_installation(root: str, firmware_path: str = "") -> Installation:
    """`firmware_path` is the kernel's extra firmware directory, as a path inside the root. TellUser when there is no
    driver: neither a libcuda nor a libnvidia-ml with a version in its name."""
    directories = library_directories(root)
    version = _version(root, directories)
    libraries, used = _libraries(root, directories, version)
    names = {os.path.basename(item.target): item for item in libraries}
    files = {
        item.target: item
        for item in (*_binaries(root), *_firmware(root, version, firmware_path), *_configs(root), *_xorg(root, version))
    }
    sockets = tuple(_first_of_each(root, tables.SOCKET_DIRECTORIES, tables.SOCKETS))
    parents = {os.path.dirname(item.source) for item in files.values()}
    candidates = (os.path.join("/", d, s) for d in tables.SOCKET_DIRECTORIES for s in tables.SOCKETS)
    return Installation(
        version=version,
        libraries=libraries,
        sonames=tuple(_sonames(root, used, libraries, names, version)),
        extra_names=tuple(_named(tables.EXTRA_NAMES, names, version)),
        files=tuple(sorted(files.values(), key=lambda item: item.target)),
        sockets=tuple(sorted(sockets, key=lambda item: item.target)),
        watched=(*used, *sorted(parents), *candidates),
    )


def _version(root: str, directories: Iterable[str]) -> str:
    for stem in ("libcuda.so.", "libnvidia-ml.so."):
        for directory in directories:
            # The file that the link names, else any file with a version: installers leave old ones behind.
            linked = resolve(root, os.path.join(directory, stem + "1")) or ""
            names = [name for name in _names(root, directory) if name.startswith(stem)]
            for name in (os.path.basename(linked), *sorted(names, reverse=True)):
                if name.startswith(stem) and (match := _VERSIONED.match(name)):
                    return match[1]
    raise TellUser(
        f"looking for NVIDIA's driver below {root}",
        f"no libcuda.so.<version> and no libnvidia-ml.so.<version> in {', '.join(directories) or 'any library directory'}",
        "install the driver, or set the driver root to where it is",
    )


def _libraries(root: str, directories: Iterable[str], version: str) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    found: dict[str, Item] = {}
    used = []
    for directory in directories:
        names = _names(root, directory)
        if not any(name.startswith("lib") and name.endswith(f".so.{version}") for name in names):
            continue
        used.append(directory)
        patterns = [pattern.format(version=version) for pattern in tables.LIBRARIES]
        plugins = [os.path.join(tables.VDPAU, name) for name in _names(root, os.path.join(directory, tables.VDPAU))]
        plugins = [name for name in plugins if name.endswith(f".so.{version}")]
        for name in (*(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)), *plugins):
            path = resolve(root, os.path.join(directory, name))
            if path is not None and is_file(root, path):
                found[path] = Item(path, path)
    return tuple(found[path] for path in sorted(found)), tuple(used)


def _sonames(
    root: str, directories: Iterable[str], libraries: Iterable[Item], names: dict[str, Item], version: str
) -> Iterator[Item]:
    """The links of the installation that lead to its libraries, and what the table adds."""
    paths = {item.source for item in libraries}
    seen = set()
    for directory in directories:
        for name in _names(root, directory):
            target = os.path.join(directory, name)
            if ".so." in name and target not in paths and (source := resolve(root, target)) in paths:
                seen.add(target)
                yield Item(source, target)
    yield from (item for item in _named(tables.SONAMES, names, version) if item.target not in seen)


def _named(rows: Iterable[tuple[str, str]], names: dict[str, Item], version: str) -> Iterator[Item]:
    for library, name in rows:
        item = names.get(library.format(version=version))
        if item is not None:
            yield Item(item.source, os.path.join(os.path.dirname(item.target), name))


def _binaries(root: str) -> Iterator[Item]:
    return _first_of_each(root, tables.BINARY_DIRECTORIES, tables.BINARIES)


def _configs(root: str) -> Iterator[Item]:
    """Their place in the container is fixed, wherever the host keeps them."""
    wanted = [(name, "/usr/share") for name in tables.CONFIGS_IN_SHARE]
    wanted += [(name.format(arch=os.uname().machine), "/etc") for name in tables.CONFIGS_IN_ETC]
    for name, place in wanted:
        for item in _first_of_each(root, tables.CONFIG_DIRECTORIES, (name,)):
            yield Item(item.source, os.path.join(place, name))


def _xorg(root: str, version: str) -> Iterator[Item]:
    return _first_of_each(root, tables.XORG_DIRECTORIES, [name.format(version=version) for name in tables.XORG_MODULES])


def _firmware(root: str, version: str, extra: str) -> Iterator[Item]:
    directory, _, pattern = tables.FIRMWARE.format(version=version).rpartition("/")
    for place in (extra, *tables.FIRMWARE_DIRECTORIES):
        here = resolve(root, os.path.join(place, directory)) if place else None
        if here is None:
            continue
        for name in _names(root, here):
            path = resolve(root, os.path.join(here, name))
            if fnmatchcase(name, pattern) and path is not None and is_file(root, path):
                yield Item(path, path)
        return


def _first_of_each(root: str, directories: Iterable[str], names: Iterable[str]) -> Iterator[Item]:
    for name in names:
        for directory in directories:
            path = resolve(root, os.path.join(directory, name))
            if path is not None and not os.path.isdir(below(root, path)):
                yield Item(path, path)
                break


def _names(root: str, directory: str) -> list[str]:
    try:
        return sorted(os.listdir(below(root, directory)))
    except OSError:
        return []
