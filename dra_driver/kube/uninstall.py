"""The cluster's side of going away for good: which claims are in use, the agents' DaemonSet, the slices. Used by the chart's
hook before an uninstallation, and by an agent whose DaemonSet is deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dra_driver.kube import errors
from dra_driver.model.errors import RetryLater, TellUser
from dra_driver.ports import ResourceApi

PAGE = "500"
LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class InUse:
    """A claim to which devices of the driver are allocated."""

    name: str  # namespace/name
    consumers: tuple[str, ...]  # what it is reserved for: "pods one-gpu"

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.consumers) or 'reserved for nobody'})"


def claims_in_use(api: ResourceApi, version: str, driver: str) -> Sequence[InUse]:
    """Sorted by name."""
    found = []
    for claim in _pages(api, f"/apis/resource.k8s.io/{version}/resourceclaims", {}):
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        if any(result.get("driver") == driver for result in results):
            metadata = claim.get("metadata") or {}
            consumers = tuple(f"{item.get('resource')} {item.get('name')}" for item in status.get("reservedFor") or [])
            found.append(InUse(f"{metadata.get('namespace')}/{metadata.get('name')}", consumers))
    return sorted(found, key=lambda claim: claim.name)


def withdraw_slices(api: ResourceApi, version: str, driver: str, node: str = "") -> int:
    """Deletes the slices of the driver, of one node or of all, and says how many there were."""
    selector = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
    path = f"/apis/resource.k8s.io/{version}/resourceslices"
    names = [str(item["metadata"]["name"]) for item in _pages(api, path, {"fieldSelector": selector})]
    for name in names:
        with suppress(errors.NotFound):  # the kubelet deletes the slices of a driver that is gone as well
            api.request("DELETE", f"{path}/{quote(name, safe='')}")
    return len(names)


class DaemonSet:
    """`name` is NAMESPACE/NAME."""

    def __init__(self, api: ResourceApi, name: str) -> None:
        namespace, _, own = name.partition("/")
        if not namespace or not own:
            raise TellUser(f"looking for DaemonSet {name!r}", "that is no name", "write it as NAMESPACE/NAME")
        self._api = api
        self._name = name
        self._path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/daemonsets/{quote(own, safe='')}"

    def is_deleted(self) -> bool:
        """Gone, or on its way: no agent will come after those that run now."""
        found = self._find()
        return found is None or "deletionTimestamp" in (found.get("metadata") or {})

    def remove(self, timeout_s: float) -> None:
        """Deletes it and waits until its pods are gone. RetryLater when they are not after `timeout_s`."""
        try:
            self._api.request("DELETE", self._path, body={"propagationPolicy": "Foreground"})
        except errors.NotFound:
            return
        deadline = time.monotonic() + timeout_s
        while (found := self._find()) is not None:
            if time.monotonic() > deadline:
                left = (found.get("status") or {}).get("currentNumberScheduled")
                raise RetryLater(
                    f"deleting DaemonSet {self._name}",
                    f"pods of {left} nodes are still there after {timeout_s:g} s",
                    "see which nodes are not Ready (their agents cannot end), and uninstall again",
                )
            time.sleep(LOOK_EVERY_S)

    def _find(self) -> Mapping[str, Any] | None:
        try:
            return self._api.request("GET", self._path)
        except errors.NotFound:
            return None


def _pages(api: ResourceApi, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    token = ""
    while True:
        page = api.request("GET", path, query={**query, "limit": PAGE, **({"continue": token} if token else {})})
        yield from page.get("items") or ()
        token = str((page.get("metadata") or {}).get("continue") or "")
        if not token:
            return
