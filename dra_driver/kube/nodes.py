"""The Node object of this machine, as far as it concerns us: its UID, which owns our slices, and its container runtime."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from dra_driver.model.errors import RetryLater
from dra_driver.ports import ResourceApi


class NodeLookup:
    def __init__(self, api: ResourceApi, node: str) -> None:
        self._api = api
        self._node = node

    def uid(self) -> str:
        """UID of the Node as it is now, read anew: a Node can be deleted and registered again under the same name.
        NotFound (GiveUp) while the kubelet has not registered it; RetryLater when the API server does not answer."""
        metadata = self._read().get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str) or not uid:
            raise RetryLater(f"reading Node {self._node}", "the answer holds no UID", "look at the API server's health")
        return uid

    def runtime(self) -> str:
        """As the kubelet has reported it, "containerd://2.4.2"; empty where it has not. Errors as above."""
        status = self._read().get("status")
        info = status.get("nodeInfo") if isinstance(status, dict) else None
        version = info.get("containerRuntimeVersion") if isinstance(info, dict) else None
        return version if isinstance(version, str) else ""

    def _read(self) -> dict[str, Any]:
        return self._api.request("GET", f"/api/v1/nodes/{quote(self._node, safe='')}")
