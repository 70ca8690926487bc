"""A short directory for sockets (their paths have at most 107 bytes), and a node service that does as it is told."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from dra_driver.kubelet.servers import KubeletServers
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import PreparedDevice

DRIVER = "gpu.nvidia.com"


@dataclass
class Service:
    """`acts` maps claim names to what happens; every other claim gets one device."""

    acts: dict[str, Callable[[ClaimRef], Sequence[PreparedDevice]]] = field(default_factory=dict)
    calls: list[tuple[str, ClaimRef, str]] = field(default_factory=list)

    def prepare_each(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], Sequence[PreparedDevice]]]:
        return [partial(self._prepare, ref) for ref in refs]

    def _prepare(self, ref: ClaimRef) -> Sequence[PreparedDevice]:
        self.calls.append(("prepare", ref, threading.current_thread().name))
        act = self.acts.get(ref.name)
        return act(ref) if act else [device_of(ref)]

    def unprepare(self, ref: ClaimRef) -> None:
        self.calls.append(("unprepare", ref, threading.current_thread().name))
        if act := self.acts.get(ref.name):
            act(ref)


def device_of(ref: ClaimRef, request: str = "gpu", share_id: str | None = None) -> PreparedDevice:
    return PreparedDevice(
        request=request,
        pool="node-1",
        device="gpu-0000-1b-00-0",
        kind="gpu",
        uuid="GPU-1",
        cdi_ids=(f"k8s.gpu.nvidia.com/claim={ref.uid}-gpu-0000-1b-00-0",),
        share_id=share_id,
    )


@dataclass
class Node:
    root: Path

    @property
    def plugins(self) -> Path:
        return self.root / "plugins"

    @property
    def registry(self) -> Path:
        return self.root / "plugins_registry"


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="k-", dir="/tmp"))
    node = Node(root)
    node.plugins.mkdir()
    node.registry.mkdir()
    yield node
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def serve(node: Node, service: Service) -> Iterator[Callable[..., KubeletServers]]:
    """Starts servers on the node; stops them in the end."""
    started: list[KubeletServers] = []

    def start(instance: str | None = None, **options: object) -> KubeletServers:
        options = {"drain_s": 2.0, "check_every_s": 0.05, **options}
        servers = KubeletServers(
            DRIVER, node.plugins, node.registry, options.pop("service", service), instance, **options
        )
        servers.start()
        started.append(servers)
        return servers

    yield start
    for servers in started:
        servers.stop()
