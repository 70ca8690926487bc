"""The test in the part of scheduler and kubelet: claims allocated as it says, and calls to the agent's socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from e2e.bench.agent import Kubelet
from e2e.cluster import ClusterError
from e2e.installation import DRIVER
from e2e.objects import claim, request
from e2e.tests.space import Space

NO_SUCH_DEVICE = "gpu-0000-ff-00-0"


@contextmanager
def kubelet_of(space: Space, node: str) -> Iterator[Kubelet]:
    (socket,) = space.on.cluster.nodes[node].path(f"/var/lib/kubelet/plugins/{DRIVER}").glob("dra*.sock")
    caller = Kubelet(socket)
    try:
        yield caller
    finally:
        caller.close()


def waiting(space: Space, name: str) -> tuple[ClaimRef, Mapping[str, Any]]:
    """A claim that is not allocated, and its object."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims"
    made = space.on.cluster.request("POST", path, claim(name, request("gpu")))
    return ClaimRef(made["metadata"]["uid"], space.name, name), made


def allocated(space: Space, name: str, device: str, pool: str = "node-b") -> ClaimRef:
    """A claim that has this device, if there is such a one and whoever else has it."""
    ref, made = waiting(space, name)
    result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
    path = f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims/{name}/status"
    space.on.cluster.request("PUT", path, {**made, "status": {"allocation": {"devices": {"results": [result]}}}})
    return ref


def some_device(space: Space) -> str:
    return str(space.on.devices("node-b")[0]["name"])


def refused(kubelet: Kubelet, ref: ClaimRef) -> str:
    """What the agent says."""
    with pytest.raises(ClusterError) as refusal:
        kubelet.prepare([ref])
    return str(refusal.value)
