"""A device plugin that comes, gives GPUs to pods and goes, seen through the kubelet's own API over a real socket."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest

from dra_driver.device_plugin.watch import DevicePluginWatch
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import Inventory
from dra_driver.telemetry.metrics import Metrics
from tests.device_plugin.fake_kubelet import FakePodResources
from tests.device_plugin.test_identifiers import GPUS, ONE, TWO

INVENTORY = Inventory(GPUS)
REF = ClaimRef("u1", "ml", "train")
GPU = "nvidia.com/gpu"


class Said:
    """Implements `ports.Events`: what users were told."""

    def __init__(self) -> None:
        self.claims: list[tuple[ClaimRef, str, str]] = []
        self.node: list[tuple[str, str]] = []

    def warn(self, ref: ClaimRef, reason: str, message: str) -> None:
        self.claims.append((ref, reason, message))

    def warn_node(self, reason: str, message: str) -> None:
        self.node.append((reason, message))


class Bench:
    def __init__(self, directory: Path, *, yields: bool = False) -> None:
        self.said = Said()
        self.metrics = Metrics("1", "d")
        self.claims: dict[str, ClaimRef] = {}
        self.watch = DevicePluginWatch(directory, self.said, self.metrics, lambda: self.claims, yields=yields)

    def look(self) -> Mapping[str, str]:
        return self.watch.look(INVENTORY)

    def holders(self) -> Mapping[str, str]:
        return self.watch.holders(INVENTORY)

    def count(self, state: str) -> float:
        line = f'dra_driver_device_plugin_gpus{{state="{state}"}} '
        return float(self.metrics.render().decode().partition(line)[2].partition("\n")[0])


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="plug-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def kubelet(directory: Path) -> Iterator[FakePodResources]:
    with FakePodResources(directory) as fake:
        yield fake


@pytest.fixture
def bench(directory: Path, kubelet: FakePodResources) -> Bench:
    return Bench(directory)


def test_without_any_plugin_the_kubelet_is_never_asked(kubelet: FakePodResources, bench: Bench) -> None:
    (kubelet.plugins / "DEPRECATION").touch()
    kubelet.settle()
    for _ in range(3):
        assert (bench.look(), bench.holders()) == ({}, {})
    assert (kubelet.calls, bench.said.node) == ([], [])


def test_without_the_kubelets_directories_nothing_is_asked_and_nothing_wrong(directory: Path) -> None:
    bench = Bench(directory / "elsewhere")
    assert (bench.look(), bench.holders()) == ({}, {})


def test_a_plugin_of_other_devices_is_asked_about_once_until_something_changes(
    kubelet: FakePodResources, bench: Bench
) -> None:
    kubelet.offer("rdma/hca", "mlx5_0")
    for _ in range(5):
        assert (bench.look(), bench.holders()) == ({}, {})
    assert kubelet.calls == ["List", "GetAllocatableResources"]
    kubelet.give("ml/mpi", "rdma/hca", "mlx5_0")
    assert bench.holders() == {}
    assert len(kubelet.calls) == 4
    assert bench.said.node == []


def test_a_plugin_is_reported_once_and_its_end_too(
    kubelet: FakePodResources, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kubelet.offer(GPU, ONE, TWO)
    assert bench.look() == {}, "what is only offered is not given away"
    bench.look()
    [(reason, message)] = bench.said.node
    assert reason == "DevicePluginBeside"
    assert message.startswith("a device plugin offers GPUs of this node as nvidia.com/gpu: it knows nothing of claims")
    assert "dra-driver migrate" in message
    assert [record.getMessage() for record in caplog.records] == [message]
    assert (bench.count("offered"), bench.count("held")) == (2, 0)
    kubelet.offer(GPU)
    bench.look()
    assert caplog.records[-1].getMessage() == "over: a device plugin offers GPUs of this node as nvidia.com/gpu"
    assert bench.count("offered") == 0


def test_a_gpu_that_a_pod_has_is_held_until_the_pod_ends_also_when_the_plugin_is_gone(
    kubelet: FakePodResources, bench: Bench
) -> None:
    kubelet.offer(GPU, ONE, TWO)
    bench.look()
    kubelet.give("ml/train", GPU, TWO)
    words = "was given to pod ml/train through nvidia.com/gpu by a device plugin"
    assert bench.holders() == {TWO: words}, "known at once, not at the next look"
    assert bench.look() == {TWO: words}
    assert bench.count("held") == 1
    kubelet.offer(GPU)
    assert bench.look() == {TWO: words}
    kubelet.end("ml/train")
    assert (bench.holders(), bench.look()) == ({}, {})


def test_a_plugin_that_comes_between_two_looks_is_seen_before_the_next_prepare(
    kubelet: FakePodResources, bench: Bench
) -> None:
    assert bench.look() == {}
    kubelet.offer(GPU, ONE)
    kubelet.give("ml/train", GPU, ONE)
    assert set(bench.holders()) == {ONE}


def test_a_directory_that_has_just_changed_is_not_trusted_to_stay_so(kubelet: FakePodResources, bench: Bench) -> None:
    """The clock of a file system ticks every few milliseconds: a second change may look like none."""
    kubelet.offer("rdma/hca", "mlx5_0")
    now = time.time()
    os.utime(kubelet.plugins, (now, now))
    assert bench.holders() == {}
    kubelet.offer(GPU, ONE)
    kubelet.give("ml/train", GPU, ONE)
    os.utime(kubelet.plugins, (now, now))
    assert set(bench.holders()) == {ONE}


def test_replicas_of_one_gpu_are_one_gpu_and_all_pods_are_named(kubelet: FakePodResources, bench: Bench) -> None:
    kubelet.offer("nvidia.com/gpu.shared", *(f"{ONE}::{n}" for n in range(4)))
    kubelet.give("ml/a", "nvidia.com/gpu.shared", f"{ONE}::0")
    kubelet.give("ml/b", "nvidia.com/gpu.shared", f"{ONE}::3")
    resource = "through nvidia.com/gpu.shared"
    assert bench.look() == {ONE: f"was given to pod ml/a {resource} and pod ml/b {resource} by a device plugin"}
    assert (bench.count("offered"), bench.count("held")) == (1, 1)


def test_a_gpu_that_a_claim_has_as_well_is_told_on_the_claim(kubelet: FakePodResources, bench: Bench) -> None:
    kubelet.offer(GPU, ONE, TWO)
    kubelet.give("ml/other", GPU, ONE)
    bench.claims = {ONE: REF, TWO: ClaimRef("u2", "ml", "fine")}
    bench.look()
    bench.look()
    [(ref, reason, message)] = bench.said.claims
    assert (ref, reason) == (REF, "GPUGivenTwice")
    assert message.startswith(f"{ONE} is prepared for {REF} and was given to pod ml/other through nvidia.com/gpu")
    assert bench.count("given_twice") == 1
    kubelet.end("ml/other")
    bench.look()
    assert bench.count("given_twice") == 0


def test_a_node_that_is_left_to_the_plugin_offers_claims_nothing_of_it(
    directory: Path, kubelet: FakePodResources
) -> None:
    bench = Bench(directory, yields=True)
    kubelet.offer(GPU, ONE)
    words = "is offered as nvidia.com/gpu by a device plugin, to which this node is left"
    assert bench.look() == bench.holders() == {ONE: words}
    assert "claims get none of these" in bench.said.node[0][1]
    kubelet.give("ml/train", GPU, ONE)
    assert "pod ml/train" in bench.holders()[ONE]
    kubelet.end("ml/train")
    kubelet.offer(GPU)
    assert bench.look() == {}


@pytest.mark.parametrize("failure", [grpc.StatusCode.RESOURCE_EXHAUSTED, None])
def test_while_the_kubelet_does_not_answer_nothing_is_prepared_and_what_was_known_stays(
    kubelet: FakePodResources, bench: Bench, caplog: pytest.LogCaptureFixture, failure: grpc.StatusCode | None
) -> None:
    kubelet.offer(GPU, ONE)
    kubelet.give("ml/train", GPU, ONE)
    before = bench.look()
    if failure is None:
        kubelet.stop()
    kubelet.failure = failure
    with pytest.raises(RetryLater, match="RESOURCE_EXHAUSTED: injected" if failure else "there is no socket") as caught:
        bench.holders()
    assert "pod-resources directory is mounted" in caught.value.next_step
    assert bench.look() == before
    assert "until it answers no claim is prepared on this node" in caplog.records[-1].getMessage()
    assert len(bench.said.node) == 1, "a kubelet that restarts is no news for everybody"
    kubelet.failure = None
    if failure is None:
        kubelet.start()
    assert bench.holders() == before


def test_a_socket_that_nobody_serves_is_waited_for_no_longer_than_said(kubelet: FakePodResources, bench: Bench) -> None:
    import socket

    kubelet.offer(GPU, ONE)
    kubelet.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(kubelet.socket))
    with pytest.raises(RetryLater, match="UNAVAILABLE"):
        bench.holders()
