"""List, then watch, for as long as anybody wants to know: our own, because the kubernetes package's informer sends
hundreds of requests a second when the server refuses, closes or cannot be reached (python-stack.md section 3.5).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from dra_driver import deep_json
from dra_driver.kube import errors
from dra_driver.model.errors import DriverError

log = logging.getLogger(__name__)

PAGE = "500"
WATCH_S = (240, 480)  # how long the server is asked to keep one watch; spread so that nodes do not come back together
READ_TIMEOUT_S = (75.0, 90.0)  # a bookmark comes about every minute: longer silence is a half-open connection
BACKOFF_S = (0.8, 30.0)
HEALTHY_AFTER_S = 10.0  # a watch that lived this long was no failure, however it ended


class Source(Protocol):
    """What a list-watch needs of the client."""

    watch_events_skipped: int

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> dict[str, Any]: ...

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> BaseHTTPResponse: ...


class ListWatch:
    """One list-watch; `run` in one thread, `interrupt` from any."""

    def __init__(
        self,
        source: Source,
        path: str,
        query: Mapping[str, str],
        on_event: Callable[[str, dict[str, Any]], None],
        on_sync: Callable[[Sequence[dict[str, Any]]], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._source = source
        self._path = path
        self._query = dict(query)
        self._on_event = on_event
        self._on_sync = on_sync
        self._stopped = stopped
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._response: BaseHTTPResponse | None = None
        self._version: str | None = None  # resourceVersion to watch from; None: list first

    def run(self) -> None:
        """Until stopped; never raises."""
        failures = 0
        while True:
            # Cleared before `stopped` is read, so that an interrupt in between is not lost.
            self._wake.clear()
            if self._stopped():
                return
            began = time.monotonic()
            error: Exception | None = None
            try:
                if self._version is None:
                    self._list()
                self._watch()
            except errors.Gone as gone:
                self._version = None
                error = gone
            except DriverError as refused:
                error = refused
            except (HTTPError, OSError, ValueError, AttributeError) as broken:
                # urllib3 and ssl raise any of these when the connection breaks or is shut down in the middle of a read.
                error = broken
            if self._wake.is_set():
                continue
            failures = 0 if time.monotonic() - began >= HEALTHY_AFTER_S else failures + 1
            if isinstance(error, errors.Gone) and failures <= 1:
                continue
            if failures or error is not None:
                self._pause(failures, error)

    def interrupt(self) -> None:
        """Wakes `run` wherever it waits, so that it looks at `stopped`."""
        self._wake.set()
        with self._lock:
            if self._response is not None:
                try:
                    self._response.shutdown()
                except (OSError, ValueError, RuntimeError) as error:
                    log.debug("watch %s: it had just ended: %s", self._path, error)

    def _list(self) -> None:
        items: list[dict[str, Any]] = []
        query = {**self._query, "limit": PAGE}
        while True:
            page = self._source.request("GET", self._path, query=query)
            found = page.get("items")
            items += [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
            metadata = page.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        self._deliver(self._on_sync, items)
        self._version = str(metadata.get("resourceVersion") or "") or None

    def _watch(self) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_S)),
        }
        if self._version:
            query["resourceVersion"] = self._version
        response = self._source.stream(self._path, query, random.uniform(*READ_TIMEOUT_S))
        with self._lock:
            self._response = response
        try:
            if self._wake.is_set():
                return
            for line in response:
                if self._stopped():
                    return
                self._take(line)
        finally:
            with self._lock:
                self._response = None
            # Not given back to the pool: an unread rest, or a socket that was shut down, must not be used again.
            response.close()

    def _take(self, line: bytes) -> None:
        """One line of the stream. What cannot be read is counted and skipped; only the server's ERROR is an error."""
        try:
            event = deep_json.loads(line)
            kind, item = str(event["type"]), event["object"]
            if kind != "ERROR":
                version = str(item["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError) as error:
            if line.strip():
                self._source.watch_events_skipped += 1
                log.warning(
                    "watch %s: skipping an event that cannot be read: %s: %s", self._path, type(error).__name__, error
                )
            return
        if kind == "ERROR":
            item = item if isinstance(item, dict) else {}
            code = item.get("code")
            # Whatever went wrong inside the watch, the place where it stopped is no longer known to be good.
            self._version = None
            raise errors.from_status("GET", f"{self._path}?watch=true", code if isinstance(code, int) else 500, item)
        if kind != "BOOKMARK":
            self._deliver(self._on_event, kind, item)
        self._version = version

    def _deliver(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            self._source.watch_events_skipped += 1
            log.exception("watch %s: the receiver failed; going on with the next event", self._path)

    def _pause(self, failures: int, error: Exception | None) -> None:
        low, high = BACKOFF_S
        # An API server that restarts breaks the watches of all nodes in one moment: they come back spread, the first time too.
        delay = random.uniform(low if failures else 0.0, min(high, low * 2 ** min(failures, 10)))
        if isinstance(error, errors.ApiError) and error.retry_after:
            delay = max(delay, min(error.retry_after, 10 * high))
        level = logging.WARNING if error is not None and failures > 1 else logging.DEBUG
        log.log(level, "watch %s: %s; next try in %.1f s", self._path, error or "closed by the server at once", delay)
        self._wake.wait(delay)
