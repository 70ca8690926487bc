"""What the API server serves: which version of resource.k8s.io, and which Kubernetes it is."""

from __future__ import annotations

import re
import threading
from typing import Any, Protocol

from dra_driver.kube import errors
from dra_driver.model.errors import TellUser

GROUP = "resource.k8s.io"
# Newest first. 1.32 has v1beta1, 1.33 v1beta2, 1.34 v1; v1beta1 goes in 1.38, v1beta2 in 1.39.
UNDERSTOOD = ("v1", "v1beta2", "v1beta1")


class Source(Protocol):
    paths_not_served: int

    def request(self, method: str, path: str) -> dict[str, Any]: ...


class Discovery:
    """Answers are kept until the API server says of some path that it is not served (an upgrade took it away)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._version: tuple[str, int] | None = None
        self._release: tuple[int, int] | None = None

    def version(self) -> str:
        """`v1`, `v1beta2` or `v1beta1`, the newest that is served. TellUser when there is none."""
        known = self._version
        if known is not None and known[1] == self._source.paths_not_served:
            return known[0]
        with self._lock:
            known = self._version
            if known is not None and known[1] == self._source.paths_not_served:
                return known[0]
            found = self._ask()
            self._version = (found, self._source.paths_not_served)
            return found

    def release(self) -> tuple[int, int]:
        """Kubernetes release of the API server as (major, minor); asked once."""
        known = self._release
        if known is None:
            answer = self._source.request("GET", "/version")
            parts = [re.match(r"\d+", str(answer.get(part) or "")) for part in ("major", "minor")]
            known = self._release = (int(parts[0][0]) if parts[0] else 0, int(parts[1][0]) if parts[1] else 0)
        return known

    def _ask(self) -> str:
        doing = f"finding a version of {GROUP} that the API server serves"
        enable = (
            "enable Dynamic Resource Allocation: Kubernetes 1.34 or newer has it on; on 1.32 and 1.33 set feature gate "
            "DynamicResourceAllocation on all components and --runtime-config=resource.k8s.io/v1beta1=true on the API server"
        )
        try:
            answer = self._source.request("GET", f"/apis/{GROUP}")
        except (errors.NotFound, errors.NotServed) as error:
            raise TellUser(doing, "the API group is not there", enable) from error
        versions = answer.get("versions")
        served = (
            [entry.get("version") for entry in versions if isinstance(entry, dict)]
            if isinstance(versions, list)
            else []
        )
        for version in UNDERSTOOD:
            if version in served:
                return version
        raise TellUser(doing, f"it serves only {', '.join(map(str, served)) or 'none'}", enable)
