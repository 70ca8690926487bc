"""ResourceClaims: read one by name, check that it is the one that was meant, cut it down to what concerns this driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from dra_driver.kube import errors
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, OpaqueConfig
from dra_driver.model.errors import DriverError, GiveUp, RetryLater
from dra_driver.ports import ResourceApi

PAGE = "500"


_NEW_POD = "if its pod is still there, delete the pod: a new one gets a claim of its own"
_API_HEALTH = (
    "no API server lets that through: look at `kubectl get resourceclaim -o yaml` and at what stands before the server"
)


class Versions(Protocol):
    def version(self) -> str: ...


class ApiClaims:
    """`ports.Claims`. The status of a claim has one shape in v1, v1beta2 and v1beta1."""

    def __init__(self, api: ResourceApi, versions: Versions, driver: str) -> None:
        self._api = api
        self._versions = versions
        self._driver = driver

    def ask(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], Claim]]:
        """GiveUp when a claim is gone, replaced or not allocated; RetryLater and TellUser as the API server says."""
        try:
            paths = [self._path(ref) for ref in refs]
        except DriverError:  # raised again, by each for itself, when the answers are wanted
            return [partial(self._read, ref, partial(self._find, ref)) for ref in refs]
        return [partial(self._read, ref, answer) for ref, answer in zip(refs, self._api.ask(paths), strict=True)]

    def _read(self, ref: ClaimRef, answer: Callable[[], dict[str, Any]]) -> Claim:
        try:
            try:
                found = answer()
            except errors.NotServed:
                found = self._find(ref)
        except errors.NotFound as error:
            raise GiveUp(f"reading {ref}", "it does not exist any more", _NEW_POD) from error
        uid = _text(_mapping(found.get("metadata")), "uid")
        if uid != ref.uid:
            raise GiveUp(
                f"reading {ref}", f"it was replaced: the claim of this name now has UID {uid or 'none'}", _NEW_POD
            )
        return decode(ref, found, self._driver)

    def exists(self, ref: ClaimRef) -> bool:
        """False only on the API server's word about this very name and UID."""
        try:
            found = self._find(ref)
        except errors.NotFound:
            return False
        except RetryLater:
            raise
        except DriverError as error:
            raise RetryLater(f"asking whether {ref} still exists", str(error)) from error
        uid = _text(_mapping(found.get("metadata")), "uid")
        if not uid:
            raise RetryLater(f"asking whether {ref} still exists", "the answer holds no UID", _API_HEALTH)
        return uid == ref.uid

    def find(self, uid: str) -> ClaimRef | None:
        """Pages through all claims of the cluster until the UID turns up; for damaged records only."""
        query = {"limit": PAGE}
        while True:
            page = self._api.request(
                "GET", f"/apis/resource.k8s.io/{self._versions.version()}/resourceclaims", query=query
            )
            for item in _items(page.get("items")):
                metadata = _mapping(item.get("metadata"))
                if metadata.get("uid") == uid:
                    return ClaimRef(uid, _text(metadata, "namespace"), _text(metadata, "name"))
            token = _text(_mapping(page.get("metadata")), "continue")
            if not token:
                return None
            query["continue"] = token

    def _find(self, ref: ClaimRef) -> dict[str, Any]:
        try:
            return self._api.request("GET", self._path(ref))
        except errors.NotServed:
            # The API server was upgraded past this version: now it is asked what it serves.
            return self._api.request("GET", self._path(ref))

    def _path(self, ref: ClaimRef) -> str:
        if not ref.namespace or not ref.name:
            raise GiveUp(
                f"reading {ref}",
                "a claim needs a namespace and a name",
                "look at who calls this driver: the kubelet sends both",
            )
        return (
            f"/apis/resource.k8s.io/{self._versions.version()}"
            f"/namespaces/{quote(ref.namespace, safe='')}/resourceclaims/{quote(ref.name, safe='')}"
        )


def decode(ref: ClaimRef, claim: dict[str, Any], driver: str) -> Claim:
    """Pure: the results and configurations of `driver`, in the order of the object. GiveUp when the claim is not
    allocated, or is not shaped as an API server would ever let it be."""
    allocation = _mapping(_mapping(claim.get("status")).get("allocation"))
    if not allocation:
        raise GiveUp(
            f"reading {ref}", "it is not allocated", "the kubelet asks again when the scheduler has allocated it"
        )
    devices = _mapping(allocation.get("devices"))
    results = tuple(_result(ref, item) for item in _items(devices.get("results")) if item.get("driver") == driver)
    configs = []
    for item in _items(devices.get("config")):
        opaque = _mapping(item.get("opaque"))
        if opaque.get("driver") != driver:
            continue
        parameters = opaque.get("parameters")
        if not isinstance(parameters, dict):
            raise GiveUp(
                f"reading {ref}", f"the parameters of a configuration for {driver} are no JSON object", _API_HEALTH
            )
        requests = tuple(request for request in _list(item.get("requests")) if isinstance(request, str))
        configs.append(OpaqueConfig(_text(item, "source"), requests, parameters))
    return Claim(ref, results, tuple(configs))


def _result(ref: ClaimRef, item: dict[str, Any]) -> AllocationResult:
    request, pool, device = (_text(item, key) for key in ("request", "pool", "device"))
    if not request or not pool or not device:
        raise GiveUp(f"reading {ref}", "an allocation result lacks request, pool or device", _API_HEALTH)
    return AllocationResult(request, pool, device, item.get("adminAccess") is True, _text(item, "shareID") or None)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _text(mapping: dict[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""
