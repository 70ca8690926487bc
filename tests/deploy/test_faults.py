"""On request only (`DRA_E2E_LIVE=1`, root, about 90 s): what goes wrong on nodes with the chart installed, and rights itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.helm.schema import CHART
from dra_driver.hardware.sim.simulation import SimulatedMachine
from e2e.cluster import Options, processes
from e2e.driver_image import driver_image
from e2e.installation import until
from e2e.tests import memory
from tests.deploy.installed import NAMESPACE, RELEASE, Installed, pod

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster may have to be built
]
IMAGE = "dra-driver-e2e:chart"
NODE = "node-a"
STATES = ("state", "lastState")  # of a container
CLAIMS = "/run/gpu.nvidia.com/ledger/claims"


@pytest.fixture(scope="module")
def installed(helm: Path) -> Iterator[Installed]:
    cluster = processes(Options(name="faults", nodes=(NODE,)))
    cluster.down()
    cluster.up()
    try:
        cluster.load(driver_image(IMAGE))
        made = Installed(cluster, helm, IMAGE)
        made.install(webhook={"enabled": False})
        yield made
    finally:
        cluster.down()


def _container(installed: Installed) -> dict[str, Any]:
    """The agent's, as the kubelet reports it."""
    (status,) = installed.agent(NODE)["status"]["containerStatuses"]
    found: dict[str, Any] = status
    return found


def _is_back(installed: Installed, restarts: int) -> bool:
    status = _container(installed)
    return status["restartCount"] == restarts and bool(status["ready"])


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
    off = {"enabled": False}
    installed.helm("upgrade", RELEASE, str(CHART), webhook=off, kubeletPlugin={"containers": containers})

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
    installed.upgrade(webhook=off)
    installed.has_settled()
    assert _container(installed)["ready"]
    installed.delete("pod", "meanwhile")
    until("nothing to be left", lambda: not _left(installed), 60)


def _left(installed: Installed) -> list[str]:
    return [*installed.on_node(NODE, CLAIMS), *installed.on_node(NODE, "/run/cdi")]
