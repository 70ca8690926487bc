"""The Node object of this machine, as far as it concerns us: its UID, which owns our slices."""

from __future__ import annotations

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
        node = self._api.request("GET", f"/api/v1/nodes/{quote(self._node, safe='')}")
        metadata = node.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str) or not uid:
            raise RetryLater(f"reading Node {self._node}", "the answer holds no UID", "look at the API server's health")
        return uid
