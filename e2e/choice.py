"""Which clusters there are to choose from, and how the driver gets on to each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from e2e.by_chart import ByChart
from e2e.by_process import ByProcess
from e2e.cluster import Cluster, Options, processes
from e2e.installation import Installation
from e2e.kind.cluster import KindCluster


@dataclass(frozen=True, slots=True)
class Choice:
    cluster: Callable[[Options], Cluster]
    installation: type[Installation]


CHOICES = {
    "processes": Choice(processes, ByProcess),
    "kind": Choice(KindCluster, ByChart),
}
DEFAULT = "processes"


def chosen() -> str:
    """By E2E_CLUSTER. ValueError when it is none of the clusters."""
    name = os.environ.get("E2E_CLUSTER") or DEFAULT
    if name not in CHOICES:
        raise ValueError(f"E2E_CLUSTER={name}: it is none of {', '.join(CHOICES)}")
    return name
