"""Kubernetes Events on claims and on this Node, sent by one background thread that starts with the first Event.

The classic core/v1 form with `count` and whole seconds, as the kubelet writes it. `eventTime` is left out on purpose: with it
the API server demands `action` and timestamps of exactly six fractional digits, and kubectl shows nothing more.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dra_driver.kube import errors
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import GiveUp, TellUser
from dra_driver.ports import ResourceApi

log = logging.getLogger(__name__)

MESSAGE_LIMIT = 1024  # bytes and limit of the API server's validation for both forms
REASON_LIMIT = 128
KEPT = 256  # different Events remembered; beyond that the oldest that was sent makes room
FAILURE_PAUSE_S = 1.0
REPEAT_S = 10.0  # the same Event is counted, and its count sent, at most this often

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _About:
    """What an Event is about. Those about objects without a namespace are in `default`."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def events_in(self) -> str:
        return self.namespace or "default"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(slots=True)
class _Entry:
    about: _About
    name: str = ""  # of the Event object, once it is there
    first: str = ""
    sent: int = 0
    waiting: int = 0
    due: float = 0.0


class ApiEvents:
    """`ports.Events`. What cannot be kept or sent is counted in `dropped` and not tried again: the next repeat is."""

    def __init__(
        self, api: ResourceApi, driver: str, node: str, api_version: str = "v1", *, repeat_s: float = REPEAT_S
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._api_version = api_version
        self._repeat_s = repeat_s
        self._changed = threading.Condition()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.dropped = 0

    def warn(self, ref: ClaimRef, reason: str, message: str) -> None:
        """Counts one Warning; returns at once."""
        claims = f"resource.k8s.io/{self._api_version}"
        self._count(_About(claims, "ResourceClaim", ref.namespace, ref.name, ref.uid), reason, message)

    def warn_node(self, reason: str, message: str) -> None:
        # As the kubelet has it: the UID is the Node's name, and `kubectl describe node` looks for that.
        self._count(_About("v1", "Node", "", self._node, self._node), reason, message)

    def _count(self, about: _About, reason: str, message: str) -> None:
        key = (about.uid, reason[:REASON_LIMIT], _shortened(message))
        with self._changed:
            if self._stopping:
                return
            entry = self._entries.get(key)
            if entry is None:
                if len(self._entries) >= KEPT and not self._make_room():
                    self.dropped += 1
                    return
                entry = self._entries[key] = _Entry(about)
            entry.waiting += 1
            self._entries.move_to_end(key)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Sends what waits, for as long as `timeout_s`; later warnings are ignored."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _make_room(self) -> bool:
        for key, entry in self._entries.items():
            if not entry.waiting:
                del self._entries[key]
                return True
        return False

    def _run(self) -> None:
        failing = False
        while True:
            with self._changed:
                if failing and not self._stopping:
                    self._changed.wait_for(lambda: self._stopping, FAILURE_PAUSE_S)
                found = None if failing and self._stopping else self._next()
                while found is None:
                    if self._stopping:
                        return
                    due = min((entry.due for entry in self._entries.values() if entry.waiting), default=None)
                    self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
                    found = self._next()
                key, entry = found
                count, entry.waiting = entry.waiting, 0
            try:
                self._send(key, entry, count)
                failing = False
            except Exception as error:  # noqa: BLE001 - an Event is never worth more than a line in the log
                self.dropped += count
                level = logging.DEBUG if failing else logging.WARNING  # an outage is said once, not for each Event
                log.log(level, "%s: Event %s was not recorded: %s", entry.about, key[1], error)
                # What concerns this Event alone (a namespace that is going away) must not hold up the others.
                failing = not isinstance(error, (GiveUp, TellUser))
            entry.due = time.monotonic() + self._repeat_s

    def _next(self) -> tuple[_Key, _Entry] | None:
        now = time.monotonic()
        for key, entry in self._entries.items():
            if entry.waiting and (entry.due <= now or self._stopping):
                return key, entry
        return None

    def _send(self, key: _Key, entry: _Entry, count: int) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"/api/v1/namespaces/{quote(entry.about.events_in, safe='')}/events"
        if entry.name:
            try:
                self._api.request(
                    "PATCH",
                    f"{path}/{entry.name}",
                    body={"count": entry.sent + count, "lastTimestamp": now},
                    content_type="application/merge-patch+json",
                )
            except errors.NotFound:
                entry.name, entry.sent = "", 0  # Events live for an hour
            else:
                entry.sent += count
                return
        entry.first = now
        event = self._event(key, entry, count, now)
        self._api.request("POST", path, body=event)
        entry.name, entry.sent = event["metadata"]["name"], count

    def _event(self, key: _Key, entry: _Entry, count: int, now: str) -> dict[str, Any]:
        about = entry.about
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name[:230]}.{secrets.token_hex(8)}", "namespace": about.events_in},
            "involvedObject": involved,
            "type": "Warning",
            "reason": key[1],
            "message": key[2],
            "count": count,
            "firstTimestamp": entry.first,
            "lastTimestamp": now,
            "source": {"component": self._driver, "host": self._node},
            "reportingComponent": self._driver,
            "reportingInstance": self._node[:REASON_LIMIT],
        }


def _shortened(message: str) -> str:
    data = message.encode()
    if len(data) <= MESSAGE_LIMIT:
        return message
    return data[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."
