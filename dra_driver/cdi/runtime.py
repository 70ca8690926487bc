"""Notices that the container runtime of this node reads no CDI specs, and says so: nobody else does, because the pod runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from dra_driver.cdi.containerd import configurations
from dra_driver.cdi.support import has_switch, objection, switch
from dra_driver.model.errors import DriverError
from dra_driver.ports import Events

log = logging.getLogger(__name__)

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
        version = self._version()
        files, looked_at = configurations(self._root) if has_switch(version) else ({}, ())
        switches = {file: on for file, text in files.items() if (on := switch(text)) is not None}
        said = objection(version, switches, looked_at)
        if said:
            if said != self._told:
                log.warning("%s", said)
            self._events.warn_node("CDIOff", said)
        elif self._told:
            log.info("over: %s", self._told.partition(": ")[0])
        else:
            log.debug("looking at %s: nothing speaks against CDI", version)
        self._told = said
        return said
