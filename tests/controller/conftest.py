from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.controller.publisher import SlicePublisher
from dra_driver.controller.semantics import Dropped
from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.kube.nodes import NodeLookup
from dra_driver.model.device import Device, Taint, Version
from dra_driver.model.gpu import PciAddress
from tests.kube.stub_api import StubApi

SLICES = "resource.k8s.io/resourceslices"
DRIVER, NODE = "gpu.nvidia.com", "node-1"


def device(name: str, *, taints: tuple[Taint, ...] = (), **attributes: Any) -> Device:
    return Device(
        name=name,
        kind="gpu",
        gpu=PciAddress.parse("0000:1b:00.0"),
        attributes={
            "type": "gpu",
            "uuid": f"GPU-{name}",
            "driverVersion": Version("580.65.6"),
            "ecc": True,
            **attributes,
        },
        capacity={"memory": 85520809984},
        taints=taints,
    )


def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Counts:
    """Telemetry that remembers."""

    def __init__(self) -> None:
        self.slices: list[tuple[str, str]] = []

    def claim_done(self, operation: str, result: str, seconds: float) -> None: ...
    def devices_seen(self, published: int, problems: int) -> None: ...
    def claims_prepared(self, count: int) -> None: ...
    def records_damaged(self, count: int) -> None: ...
    def device_plugin(self, offered: int, held: int, doubly: int) -> None: ...

    def slice_written(self, verb: str, result: str) -> None:
        self.slices.append((verb, result))


class Bench:
    """A publisher against the stub."""

    def __init__(self, stub: StubApi, api: KubeApi) -> None:
        self.stub = stub
        self.api = api
        self.counts = Counts()
        self.devices: list[Device] = [device("gpu-0"), device("gpu-1")]
        self.dropped: list[Dropped] = []
        self.looks = 0
        self.publisher = self.new()

    def new(self) -> SlicePublisher:
        return SlicePublisher(
            self.api,
            DRIVER,
            NODE,
            self._desired,
            NodeLookup(self.api, NODE).uid,
            Discovery(self.api).version,
            self.counts,
            on_dropped=self.dropped.append,
            interrupt=self.api.interrupt,
        )

    def _desired(self) -> list[Device]:
        self.looks += 1
        return list(self.devices)

    def publish(self, devices: list[Device] | None = None) -> None:
        """Wakes it and waits until it has looked and the API server has what is wanted."""
        if devices is not None:
            self.devices = devices
        looks = self.looks
        self.publisher.wake()
        until(lambda: self.looks > looks and self.settled())

    def settled(self) -> bool:
        return sorted(d.name for d in self.devices) == self.published()

    def published(self) -> list[str]:
        return sorted(d["name"] for s in self.slices() for d in s["spec"].get("devices", []))

    def slices(self) -> list[dict[str, Any]]:
        return self.stub.list(SLICES)

    def watching(self) -> None:
        until(lambda: self.stub.open_watches > 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with StubApi() as stub:
        stub.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        api = KubeApi(stub.kubeconfig(tmp_path))
        bench = Bench(stub, api)
        yield bench
        bench.publisher.stop()
        api.close()
