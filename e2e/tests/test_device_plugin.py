"""A device plugin on the same node, real kubelet in between: no claim gets a GPU that a pod has through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.choice import DEFAULT, chosen
from e2e.cluster import Process
from e2e.installation import ROOT, TEST_IMAGE, until
from e2e.objects import A100, STAY, pod, request, template
from e2e.tests.space import Space

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(chosen() != DEFAULT, reason="the device plugin is a process of this machine on the node"),
]
NODE = "node-b"
RESOURCE = "nvidia.com/gpu"
TAINT = "gpu.nvidia.com/device-plugin"


@contextmanager
def device_plugin(space: Space, uuids: Sequence[str]) -> Iterator[Process]:
    """Offers these GPUs of the node, as long as the block lasts."""
    node = space.on.cluster.nodes[NODE]
    argv = [sys.executable, "-m", "e2e.device_plugin", RESOURCE, *uuids]
    process = node.start(argv, name="device-plugin", cwd=ROOT)
    try:
        until("the kubelet to offer what the plugin offers", lambda: offered(space) == len(uuids), 30)
        yield process
    finally:
        process.stop()
        until("the kubelet to miss the plugin", lambda: offered(space) == 0, 30)


def offered(space: Space, node: str = NODE) -> int:
    return int((space.on.get(f"/api/v1/nodes/{node}") or {})["status"]["allocatable"].get(RESOURCE, "0"))


def classic(name: str) -> dict[str, Any]:
    """A pod as it was before DRA."""
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        "command": ["sh", "-c", f"echo GPU $NVIDIA_VISIBLE_DEVICES; {STAY}"],
        "resources": {"limits": {RESOURCE: 1}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    spec["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def given_to(space: Space, name: str) -> str:
    """UUID of the GPU that the device plugin's pod got."""
    space.running(name)
    (line,) = space.on.gpus_seen(name, None, space.name)
    return line.removeprefix("GPU ")


def tainted(space: Space) -> set[str]:
    return {
        device["attributes"]["uuid"]["string"]
        for device in space.on.devices(NODE)
        if any(taint["key"] == TAINT for taint in device.get("taints") or [])
    }


@pytest.fixture
def uuids(space: Space) -> list[str]:
    return [device["attributes"]["uuid"]["string"] for device in space.on.devices(NODE)]


def test_claims_get_all_gpus_but_the_one_that_a_pod_has_through_the_plugin(space: Space, uuids: list[str]) -> None:
    said = space.listen(NODE)
    with device_plugin(space, uuids):
        space.apply(classic("classic"))
        taken = given_to(space, "classic")
        until("the taint of that GPU", lambda: tainted(space) == {taken}, 30)
        assert any("a device plugin offers GPUs of this node as nvidia.com/gpu" in line["msg"] for line in said())
        assert "DevicePluginBeside" in space.on.kubectl("describe", "node", NODE)

        space.run("others", node=NODE, count=len(uuids) - 1)
        assert space.gpus("others") == set(uuids) - {taken}
        space.apply(template("last", request("gpu")), pod("last", templates=["last"], node=NODE))
        space.pending("last", "cannot allocate all claims")
        space.delete("pod", "classic")
        space.running("last")
        assert space.gpus("last") == {taken}
    assert any("over: a device plugin offers" in line["msg"] for line in until("the end", lambda: over(said), 20))


def over(said: Any) -> list[dict[str, Any]]:
    return [line for line in said() if line["msg"].startswith("over: a device plugin")]


def test_a_claim_that_is_given_such_a_gpu_all_the_same_is_refused_with_the_name_of_the_pod(
    space: Space, uuids: list[str]
) -> None:
    """The scheduler may know less than the node: here because the claim tolerates the taint."""
    with device_plugin(space, uuids):
        space.apply(classic("classic"))
        taken = given_to(space, "classic")
        this = request("gpu", f'device.attributes["gpu.nvidia.com"].uuid == "{taken}"')
        this["exactly"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
        space.apply(template("same", this), pod("same", templates=["same"], node=NODE))
        words = f"was given to pod {space.name}/classic through {RESOURCE} by a device plugin"
        space.pending("same", words)
        assert space.records(NODE) == []
        space.delete("pod", "classic")
        space.running("same")
        assert space.gpus("same") == {taken}


def test_a_gpu_that_the_plugin_gives_to_a_pod_although_a_claim_has_it_is_told_on_the_claim(space: Space) -> None:
    space.run("first", A100, node=NODE)
    with device_plugin(space, sorted(space.gpus("first"))):
        space.apply(classic("second"))
        given_to(space, "second")
        (claim,) = space.on.claims_of(space.on.pod("first", space.name) or {})
        words = f"was given to pod {space.name}/second through {RESOURCE} by a device plugin, too: both use it"
        until("the Event", lambda: words in space.warnings(claim["metadata"]["name"]), 20)


def test_a_node_that_is_left_to_its_plugin_gets_its_claims_back_when_the_plugin_goes(
    space: Space, uuids: list[str]
) -> None:
    with space.agent_with(NODE, device_plugin="yield"):
        with device_plugin(space, uuids):
            until("all GPUs to be tainted", lambda: tainted(space) == set(uuids), 60)
            space.apply(template("gpu", request("gpu")), pod("pod", templates=["gpu"], node=NODE))
            space.pending("pod", "cannot allocate all claims")
        space.running("pod")
