"""`NvidiaDriverFiles`: what of NVIDIA's driver goes into a container. Implements `ports.DriverFiles`.

Finds and describes; it writes nothing and starts nothing. Two names of each file are kept apart: where this process sees
it, and where the container runtime does, which is what a CDI spec holds.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dra_driver.hardware import driver_tables as tables
from dra_driver.hardware import library_cache, sysfs
from dra_driver.hardware.driver_root import DriverRoot, below, find_dev_root, on_host
from dra_driver.hardware.driver_search import Installation, Item, find_installation
from dra_driver.hardware.library_cache import HostTools, find_host_tools
from dra_driver.hardware.roots import HostRoots
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import PciAddress

_log = logging.getLogger(__name__)

# A spec is read by the runtime a second or more after it was written, so a younger look would make it no truer; with it a
# burst of prepares (a job's pods) pays for thirty stats once.
LOOK_EVERY_S = 1.0

# Stops NVIDIA's runtime class from injecting GPUs of its own choice; harmless where that runtime is not used.
_NO_SECOND_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"


@dataclass(frozen=True, slots=True)
class _Found:
    edits: ContainerEdits
    tools: HostTools
    dev_root: str  # host path above the device nodes
    dev_seen: str  # that `dev` as this process sees it
    watched: tuple[str, ...]
    signature: tuple[object, ...]
    of_gpu: dict[tuple[PciAddress, int], ContainerEdits] = field(default_factory=dict)


class NvidiaDriverFiles:
    """`roots` as this process sees the host. `host_driver_root` is what the host calls `roots.driver`; `locate` finds both
    anew instead (`find_driver_root`), for a driver that comes after the agent. `host_root` is where this process sees the
    host's `/`, for what hooks run there. `host_dev_root` is the host path above the `dev` that `roots.dev` shows; None
    takes the driver root's own `dev` where it has one, else `/dev`. `cdi_hook` is a host path; empty: what is found."""

    def __init__(
        self,
        roots: HostRoots,
        *,
        host_driver_root: str = "/",
        host_dev_root: str | None = None,
        host_root: str = "/",
        cdi_hook: str = "",
        locate: Callable[[], DriverRoot] | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._roots = roots
        self._locate = locate or (lambda: DriverRoot(host=host_driver_root, seen=roots.driver))
        self._host_dev_root = host_dev_root
        self._host_root = host_root
        self._cdi_hook = cdi_hook
        self._lock = threading.Lock()
        self._found: _Found | None = None
        self._look_every_s = look_every_s
        self._look_again_at = 0.0

    def common_edits(self) -> ContainerEdits:
        return self._current().edits

    def gpu_edits(self, pci: PciAddress, minor: int) -> ContainerEdits:
        """The runtime stats the nodes itself: numbers written here would outlive a driver reload. TellUser when there is
        no driver. Where the nodes are is known from the last `common_edits`."""
        found = self._found or self._current()
        edits = found.of_gpu.get((pci, minor))
        if edits is None:
            found.of_gpu[pci, minor] = edits = self._gpu_edits(found, pci, minor)
        return edits

    def _gpu_edits(self, found: _Found, pci: PciAddress, minor: int) -> ContainerEdits:
        drm = sysfs.dri_nodes(self._roots, pci)
        drm = tuple(name for name in drm if os.path.exists(os.path.join(found.dev_seen, "dri", name)))
        names = (f"nvidia{minor}", *(f"dri/{name}" for name in drm))
        edits = ContainerEdits(device_nodes=_nodes(found.dev_root, names))
        if drm and "create-symlinks" in found.tools.commands:
            links = [
                word
                for name in drm
                for word in ("--link", f"../{name}::/dev/dri/by-path/pci-{pci}-{_by_path_suffix(name)}")
            ]
            edits += ContainerEdits(hooks=(library_cache.nvidia_hook(found.tools, "create-symlinks", *links),))
        return edits

    def _current(self) -> _Found:
        found, now = self._found, time.monotonic()
        if found is not None and now < self._look_again_at:
            return found
        if found is None or _signature(found.watched) != found.signature:
            with self._lock:
                found = self._found
                if found is None or _signature(found.watched) != found.signature:
                    self._found = None  # nothing stale after an error below
                    self._found = found = self._find()
        self._look_again_at = now + self._look_every_s
        return found

    def _find(self) -> _Found:
        root = self._locate()
        firmware = self._firmware_path(root)
        installation = find_installation(root.seen, firmware)
        tools = find_host_tools(self._host_root, self._cdi_hook)
        dev_root = find_dev_root(root) if self._host_dev_root is None else self._host_dev_root
        own_dev = self._host_dev_root is None and dev_root != "/"
        dev_seen = below(root.seen, "dev") if own_dev else self._roots.dev
        watched = (
            *(below(root.seen, path) for path in installation.watched),
            *(below(self._host_root, path) for path in (*library_cache.CANDIDATES, self._cdi_hook) if path),
            *(os.path.join(dev_seen, name) for name in (*tables.CONTROL_NODES, "dri")),
        )
        signature = _signature(watched)
        if find_installation(root.seen, firmware) != installation:
            raise RetryLater(f"reading NVIDIA's driver below {root.seen}", "it is being installed at this moment")
        nodes = [name for name in tables.CONTROL_NODES if os.path.exists(os.path.join(dev_seen, name))]
        edits = ContainerEdits(
            env=(_NO_SECOND_INJECTION,),
            device_nodes=_nodes(dev_root, nodes),
            mounts=_mounts(root.host, installation, _names(tools, installation)),
        )
        return _Found(edits + _loader_edits(tools, installation), tools, dev_root, dev_seen, watched, signature)

    def _firmware_path(self, root: DriverRoot) -> str:
        """The kernel's own extra directory, which the GPU operator sets; as a path inside the driver root."""
        try:
            with open(os.path.join(self._roots.sys, "module/firmware_class/parameters/path"), encoding="utf-8") as file:
                path = file.read().strip()
        except (OSError, ValueError):
            return ""
        prefix = root.host.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else ""


def _loader_edits(tools: HostTools, installation: Installation) -> ContainerEdits:
    if tools.hook:
        return library_cache.toolkit_edits(tools, installation)
    if tools.ldconfig and tools.shell:
        return library_cache.ldconfig_edits(tools, installation)
    _log.warning(
        "this host has neither nvidia-cdi-hook nor a shell with ldconfig: containers find the GPU libraries through "
        "LD_LIBRARY_PATH, so set-user-ID programs and programs with an environment of their own do not"
    )
    return library_cache.search_path_edits(installation)


def _names(tools: HostTools, installation: Installation) -> tuple[Item, ...]:
    """Further names of libraries that have to be mounts, because no hook makes links of them."""
    if tools.hook:
        return ()  # create-symlinks makes all, and fails where it finds one already
    if tools.ldconfig and tools.shell:
        return tuple(item for item in installation.extra_names if library_cache.is_plugin(installation, item))
    return (*installation.sonames, *installation.extra_names)


def _mounts(host_root: str, installation: Installation, names: Iterable[Item]) -> tuple[Mount, ...]:
    """Sorted by the place in the container."""
    items: dict[str, Mount] = {}
    for item in (*installation.libraries, *installation.files, *names):
        items.setdefault(item.target, _mount(host_root, item))
    for item in installation.sockets:
        items[item.target] = Mount(on_host(host_root, item.source), item.target, tables.SOCKET_OPTIONS)
    return tuple(items[target] for target in sorted(items))


def _mount(host_root: str, item: Item) -> Mount:
    return Mount(host_path=on_host(host_root, item.source), container_path=item.target)


def _nodes(dev_root: str, names: Iterable[str]) -> tuple[DeviceNode, ...]:
    return tuple(
        DeviceNode(path=f"/dev/{name}", host_path=None if dev_root == "/" else on_host(dev_root, f"dev/{name}"))
        for name in names
    )


def _by_path_suffix(name: str) -> str:
    return "card" if name.startswith("card") else "render"


def _signature(paths: Iterable[str]) -> tuple[object, ...]:
    """What changes when a directory gains or loses a name, or a file is replaced or comes and goes. Not the times of a
    device node, which every use may change."""
    found: list[object] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
            continue
        node = stat.S_ISCHR(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        found.append((status.st_ino, status.st_dev, 0 if node else status.st_mtime_ns))
    return tuple(found)
