"""Container runtimes that read no CDI specs, or other ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.by_process import ByProcess
from e2e.cluster import Unsupported
from e2e.installation import until
from e2e.objects import A100, pod, request, template
from e2e.tests.space import Space

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]
OLD = "containerd://1.7.29"


def test_a_runtime_with_cdi_switched_off_is_told_in_the_log_and_where_the_node_is_described(space: Space) -> None:
    """The containerd of this cluster has no switch any more: an older one is only what the node says of itself, which a kubelet
    would put right."""
    if not isinstance(space.on, ByProcess):
        raise Unsupported("having a node say that it has another container runtime: its agent needs the kubelet")
    node = space.on.cluster.nodes["node-b"]
    configuration = node.path("/etc/containerd/config.toml")
    configuration.parent.mkdir(exist_ok=True)
    said = space.listen("node-b")
    node.stop_kubelet()
    try:
        configuration.write_text('[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n')
        info = {"status": {"nodeInfo": {"containerRuntimeVersion": OLD}}}
        space.on.kubectl("patch", "node", "node-b", "--subresource=status", "--patch", json.dumps(info))
        space.on.agents["node-b"].stop()
        space.on.start_agent("node-b", wait=False)
        words = f"{OLD} reads no CDI specs, so pods with claims run without their GPUs"
        (line,) = until("a line in the log", lambda: [line for line in said() if words in line["msg"]], 20)
        assert line["level"] == "warning"
        assert (
            "enable_cdi is false in /etc/containerd/config.toml: set it to true and restart containerd" in line["msg"]
        )
        until("an Event", lambda: line["msg"] in space.on.kubectl("describe", "node", "node-b"), 20)
    finally:
        configuration.unlink(missing_ok=True)
        node.start_kubelet()
    until("the kubelet's word", lambda: _runtime(space) != OLD, 60)
    space.on.agents["node-b"].stop()
    said = space.listen("node-b")
    space.on.start_agent("node-b")
    space.run("pod", A100)
    assert space.gpus("pod") == space.allocated_uuids("pod")
    assert not [line for line in said() if "CDI specs" in line["msg"]]


def test_a_pod_waits_for_a_runtime_that_reads_specs_elsewhere(space: Space) -> None:
    if not isinstance(space.on, ByProcess):
        raise Unsupported("giving a container runtime another configuration: the node's image brings it")
    node = space.on.cluster.nodes["node-b"]
    configuration = node.path("/etc/e2e/containerd.toml")
    before = configuration.read_text()
    section = '[plugins."io.containerd.cri.v1.runtime"]\n'
    assert section in before
    configuration.write_text(before.replace(section, f'{section}  cdi_spec_dirs = ["/etc/cdi"]\n'))
    node.restart_containerd()
    try:
        space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"], restart="Always"))
        words = "unresolvable CDI devices"
        until("the container to be refused", lambda: words in space.on.why("pod", space.name), 40)
    finally:
        configuration.write_text(before)
        node.restart_containerd()
    space.running("pod", seconds=60)
    assert space.gpus("pod") == space.allocated_uuids("pod")


def _runtime(space: Space) -> Any:
    return space.on.cluster.request("GET", "/api/v1/nodes/node-b")["status"]["nodeInfo"]["containerRuntimeVersion"]
