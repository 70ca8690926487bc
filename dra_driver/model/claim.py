"""Claim: what the API server says was allocated to whom, cut down to what concerns this driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """How the kubelet names a claim. Only the UID identifies it: a name can be used again."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} (UID {self.uid})"

    @property
    def fields(self) -> dict[str, object]:
        """What a log line about this claim carries."""
        return {"claim": f"{self.namespace}/{self.name}", "claim_uid": self.uid}


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """One device given to one request. `request` may be `name/sub-request`."""

    request: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None

    @property
    def base_request(self) -> str:
        return self.request.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Configuration for our driver. `source` is FromClass or FromClaim; empty `requests` means all of them."""

    source: str
    requests: tuple[str, ...]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocated claim: only the results and configurations of our driver, in the order of the API object."""

    ref: ClaimRef
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()
