"""On request only (`DRA_E2E_LIVE=1`, root, about 90 s): what goes wrong on nodes with the chart installed, and rights itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.helm.schema import CHART
from dra_driver.hardware.sim.simulation import SimulatedMachine
from e2e.cluster import Cluster, Options, processes
from e2e.driver_image import driver_image
from e2e.installation import until
from e2e.registry import Registry
from e2e.tests import memory
from e2e.webhook import own_address
from tests.deploy.installed import NAMESPACE, RELEASE, Installed, pod

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster may have to be built
]
ARCHIVE, IMAGE = "dra-driver-e2e:chart", "registry.test/dra-driver:chart"
NODE = "node-a"
OFF = {"enabled": False}
STATES = ("state", "lastState")  # of a container
CLAIMS = "/run/gpu.nvidia.com/ledger/claims"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = processes(Options(name="faults", nodes=(NODE,)))
    made.down()
    made.up()
    try:
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def registry(cluster: Cluster) -> Iterator[Registry]:
    """Where the nodes find the driver's image; nobody loads it."""
    address = own_address(str(urlsplit(cluster.server).hostname))
    made = Registry(driver_image(ARCHIVE), cluster.directory / "registry", address)
    made.start()
    for node in cluster.nodes.values():
        made.tell(node, IMAGE.partition("/")[0])
    yield made
    made.stop()


@pytest.fixture
def bare(cluster: Cluster, registry: Registry, helm: Path) -> Installed:
    return Installed(cluster, helm, IMAGE)


@pytest.fixture
def installed(bare: Installed) -> Installed:
    if bare.helm("status", RELEASE, check=False).returncode:
        bare.install(webhook=OFF)
    return bare


def test_an_image_that_breaks_off_while_it_is_pulled_is_pulled_again(bare: Installed, registry: Registry) -> None:
    registry.tear()
    bare.helm("install", RELEASE, str(CHART), "--create-namespace", webhook=OFF)
    reasons = {"ErrImagePull", "ImagePullBackOff"}

    def why() -> str | None:
        waiting = _container(bare).get("state", {}).get("waiting", {})
        return waiting.get("message", "") if waiting.get("reason") in reasons else None

    message = until("the pull to fail", why, 60)
    assert "unexpected EOF" in message
    assert registry.asked[0].sent > 0
    assert {later.sent for later in registry.asked[1:]} == {0}
    registry.mend()
    until("the agent to be ready", lambda: _is_back(bare, 0), 60)
    until("all devices", lambda: len(bare.devices()) == 8, 30)
    bare.apply(pod("pod"))
    bare.wait_for_pod("pod")
    assert len(bare.gpus_seen("pod")) == 1
    bare.delete("pod", "pod")
    until("nothing to be left", lambda: not _left(bare), 60)


def _container(installed: Installed) -> dict[str, Any]:
    """The agent's, as the kubelet reports it."""
    found: dict[str, Any] = (installed.agent(NODE)["status"].get("containerStatuses") or [{}])[0]
    return found


def _is_back(installed: Installed, restarts: int) -> bool:
    status = _container(installed)
    return status.get("restartCount") == restarts and bool(status["ready"])


def test_the_kubelet_starts_an_agent_again_that_was_killed_for_want_of_memory(installed: Installed) -> None:
    installed.apply(pod("before"))
    installed.wait_for_pod("before")
    node = installed.cluster.nodes[NODE]
    machine = SimulatedMachine.open(node.path("/var/lib/gpu.nvidia.com/simulation"))
    before = _container(installed)
    group = memory.of_container(before["containerID"])
    assert group.limit == 256 << 20  # the chart's
    machine.delay_call("nvmlDeviceGetUUID", 2.0)
    filler = node.path("/run/filler")
    try:
        installed.apply(pod("during", gpus=2))
        until("the claim to be on record", lambda: len(installed.on_node(NODE, CLAIMS)) == 2, 30, every=0.02)
        group.fill(filler, group.processes[0])
    finally:
        machine.heal()
        filler.unlink(missing_ok=True)
    until("the agent to be back", lambda: _is_back(installed, before["restartCount"] + 1), 30)
    ended = _container(installed)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert "OOMKilled" in installed.kubectl(
        "-n", NAMESPACE, "describe", "pods", "-l", "app.kubernetes.io/component=agent"
    )
    installed.wait_for_pod("during")
    seen = {name: set(installed.gpus_seen(name)) for name in ("before", "during")}
    assert [len(gpus) for gpus in seen.values()] == [1, 2]
    now = {line.rpartition("UUID: ")[2] for line in installed.execute("before", "nvidia-smi", "-L").splitlines()}
    assert now == {line.rpartition("UUID: ")[2] for line in seen["before"]}
    assert now.isdisjoint(line.rpartition("UUID: ")[2] for line in seen["during"])
    assert len(installed.devices()) == 8
    for name in seen:
        installed.delete("pod", name)
    until("nothing to be left", lambda: not _left(installed), 60)


def test_an_agent_with_too_little_memory_to_start_does_not_take_the_place_of_one_that_serves(
    installed: Installed,
) -> None:
    """The update stops at the first node, where a look at the pods says why; with the old values all is as it was."""
    serving = installed.agent(NODE)
    small = {"limits": {"memory": "16Mi"}, "requests": {"memory": "16Mi"}}
    containers = {"gpus": {"resources": small}}
    installed.helm("upgrade", RELEASE, str(CHART), webhook=OFF, kubeletPlugin={"containers": containers})

    def newer() -> dict[str, Any]:
        pods = (installed.get(f"/api/v1/namespaces/{NAMESPACE}/pods") or {})["items"]
        (status,) = (
            status
            for item in pods
            if item["metadata"]["uid"] != serving["metadata"]["uid"]
            for status in item["status"].get("containerStatuses") or [{}]
        )
        return dict(status)

    def killed() -> bool:
        return any(newer().get(state, {}).get("terminated", {}).get("reason") == "OOMKilled" for state in STATES)

    until("the newer agent to be killed", killed, 30)
    assert not newer()["ready"]
    installed.apply(pod("meanwhile"))
    installed.wait_for_pod("meanwhile")
    assert len(installed.gpus_seen("meanwhile")) == 1
    assert len(installed.devices()) == 8
    installed.upgrade(webhook=OFF)
    installed.has_settled()
    assert _container(installed)["ready"]
    installed.delete("pod", "meanwhile")
    until("nothing to be left", lambda: not _left(installed), 60)


def _left(installed: Installed) -> list[str]:
    return [*installed.on_node(NODE, CLAIMS), *installed.on_node(NODE, "/run/cdi")]
