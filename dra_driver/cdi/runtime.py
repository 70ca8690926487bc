"""Notices that the container runtime of this node reads no CDI specs, and says so: nobody else does, because the pod runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dra_driver.cdi.support import objection, switch
from dra_driver.model.errors import DriverError
from dra_driver.ports import Events

log = logging.getLogger(__name__)

# Where containerd, and the distributions that bring their own, keep its configuration.
FILES = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/etc/containerd/config.d/*.toml",
    "/etc/k0s/containerd.toml",
    "/etc/k0s/containerd.d/*.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
AGAIN_S = 1800.0  # Events live for an hour
UNANSWERED_S = 30.0


class RuntimeWatch:
    """`version` asks for the runtime of this Node, `host_root` is the host's root as this process sees it."""

    def __init__(self, version: Callable[[], str], host_root: str, events: Events, again_s: float = AGAIN_S) -> None:
        self._version = version
        self._root = Path(host_root)
        self._events = events
        self._again_s = again_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="runtime", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Does not wait: it holds nothing."""
        self._stopping.set()

    def _run(self) -> None:
        """Ends once the runtime is known to be good: one that is replaced takes the node, and this agent, with it."""
        while not self._stopping.is_set():
            try:
                said = self.look()
            except DriverError as error:
                log.debug("asking which container runtime this node has: %s", error)
                self._stopping.wait(UNANSWERED_S)
                continue
            if not said:
                return
            self._stopping.wait(self._again_s)

    def look(self) -> str:
        """What is wrong, which has been said then; empty if nothing is. DriverError when the version cannot be had."""
        said = objection(self._version(), self._switches(), FILES)
        if said:
            if said != self._told:
                log.warning("%s", said)
            self._events.warn_node("CDIOff", said)
        elif self._told:
            log.info("over: %s", self._told.partition(": ")[0])
        self._told = said
        return said

    def _switches(self) -> Mapping[str, bool]:
        found = {}
        for pattern in FILES:
            for file in self._root.glob(pattern.lstrip("/")):
                said = _said(file)
                if said is not None:
                    found[f"/{file.relative_to(self._root)}"] = said
        return found


def _said(file: Path) -> bool | None:
    import tomllib  # most nodes have no such file

    try:
        return switch(tomllib.loads(file.read_text()))
    except (OSError, ValueError) as error:  # not ours, and perhaps not even read by the runtime
        log.debug("reading %s: %s", file, error)
        return None
