"""Where labels are put: a file for Node Feature Discovery, which needs no right, or the Node object itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from dra_driver import files
from dra_driver.model.errors import TellUser
from dra_driver.ports import ResourceApi

# NFD forgets the labels at this age, so that they go by themselves when nobody is left to remove them.
EXPIRES_AFTER = timedelta(hours=24)
RENEWED_AFTER = timedelta(hours=12)
# How often a Node that should be as it is is looked at again: somebody may have taken labels away.
LOOK_AGAIN_S = 600.0
_EXPIRY = "# +expiry-time="
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Place(Protocol):
    def put(self, labels: Mapping[str, str]) -> Collection[str]:
        """These, and no others of ours; writes nothing where they are there. Labels that somebody else keeps with other values
        are left as they are, and returned. Raises DriverError."""

    def remove(self) -> bool:
        """False when there were none of ours. Raises DriverError."""


class FeaturesFile:
    """A file in NFD's features.d directory. NFD looks there every minute by itself."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = str(path)
        self._now = now

    def put(self, labels: Mapping[str, str]) -> Collection[str]:
        doing = f"writing the labels of this node to {self._path}"
        if not labels:
            files.remove(self._path, doing)
            return ()
        lines = "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))
        before = (files.read(self._path, doing) or b"").decode(errors="replace")
        head, _, rest = before.partition("\n")
        if rest == lines and self._is_fresh(head):
            return ()
        expiry = (self._now() + EXPIRES_AFTER).strftime(_TIME)
        # Made by whoever runs NFD; a directory of our own would say nothing to anybody.
        if not Path(self._path).parent.is_dir():
            why = f"there is no directory {Path(self._path).parent}"
            raise TellUser(doing, why, "install Node Feature Discovery, or set node-labels: node")
        files.replace(self._path, f"{_EXPIRY}{expiry}\n{lines}".encode(), doing, mode=0o644)
        return ()

    def remove(self) -> bool:
        return files.remove(self._path, f"removing the labels of this node from {self._path}")

    def _is_fresh(self, head: str) -> bool:
        try:
            expiry = datetime.strptime(head.removeprefix(_EXPIRY), _TIME).replace(tzinfo=UTC)
        except ValueError:
            return False
        return expiry - self._now() > EXPIRES_AFTER - RENEWED_AFTER


class NodeObject:
    """The Node, by server-side apply: the API server keeps account of whose a label is, so that ours go and those of others stay.

    `manager` is our name in that account."""

    def __init__(self, api: ResourceApi, node: str, manager: str) -> None:
        self._api = api
        self._node = node
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self._manager = manager
        self._confirmed: Mapping[str, str] | None = None
        self._left: Collection[str] = ()
        self._look_at = 0.0

    def put(self, labels: Mapping[str, str]) -> Collection[str]:
        if labels == self._confirmed and time.monotonic() < self._look_at:
            return self._left
        metadata = self._api.request("GET", self._path).get("metadata") or {}
        current: Mapping[str, str] = metadata.get("labels") or {}
        owned = self._owned(metadata)
        left = sorted(name for name in labels if name in current.keys() - owned and current[name] != labels[name])
        wanted = {name: value for name, value in labels.items() if name not in left}
        if owned != wanted.keys() or any(current.get(name) != value for name, value in wanted.items()):
            self._apply(metadata, wanted)
        self._confirmed, self._left = dict(labels), left
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        return left

    def remove(self) -> bool:
        self._confirmed = None
        metadata = self._api.request("GET", self._path).get("metadata") or {}
        if not self._owned(metadata):
            return False
        self._apply(metadata, {})
        return True

    def _owned(self, metadata: Mapping[str, Any]) -> frozenset[str]:
        for entry in metadata.get("managedFields") or ():
            if entry.get("manager") == self._manager and entry.get("operation") == "Apply":
                fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
                return frozenset(name.removeprefix("f:") for name in fields if name.startswith("f:"))
        return frozenset()

    def _apply(self, metadata: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        # With its UID, because applying to a Node that has just gone would make a new one.
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._node, "uid": metadata.get("uid"), "labels": dict(labels)},
        }
        query = {"fieldManager": self._manager, "force": "false"}
        content_type = "application/apply-patch+yaml"  # JSON is YAML
        self._api.request("PATCH", self._path, query=query, body=body, content_type=content_type)


def places(features_dir: Path, api: ResourceApi, node: str, driver: str) -> Mapping[str, Place]:
    """By the word of the setting that chooses one."""
    return {"file": FeaturesFile(features_dir / driver), "node": NodeObject(api, node, f"{driver}-node-labels")}
