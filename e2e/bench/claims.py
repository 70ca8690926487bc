"""Allocated claims by the hundred, without a scheduler: the bench writes the allocation itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dra_driver.model.claim import ClaimRef
from e2e.cluster import Cluster
from e2e.installation import DRIVER
from e2e.objects import claim, request

NAMESPACE = "bench"


def namespace(cluster: Cluster) -> None:
    labels = {"resource.kubernetes.io/admin-access": "true"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    cluster.request("POST", "/api/v1/namespaces", body)


def allocate(cluster: Cluster, name: str, pool: str, device: str, *, admin: bool = False) -> ClaimRef:
    """One claim allocated to one device; with `admin` any number of claims may have the same one."""
    base = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
    made = cluster.request("POST", base, claim(name, request("gpu", admin=admin)))
    result: dict[str, Any] = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
    if admin:
        result["adminAccess"] = True
    made["status"] = {"allocation": {"devices": {"results": [result]}}}
    cluster.request("PUT", f"{base}/{name}/status", made)
    return ClaimRef(made["metadata"]["uid"], NAMESPACE, name)


def allocate_many(cluster: Cluster, prefix: str, count: int, pool: str, devices: Sequence[str]) -> list[ClaimRef]:
    """Claims with admin access, spread over the devices."""
    with ThreadPoolExecutor(8) as pool_of_threads:
        return list(
            pool_of_threads.map(
                lambda n: allocate(cluster, f"{prefix}-{n}", pool, devices[n % len(devices)], admin=True), range(count)
            )
        )
