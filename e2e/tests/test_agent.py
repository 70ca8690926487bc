"""The agent seen by whoever runs it: probes, metrics, log, its end."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from e2e.installation import until
from e2e.objects import A100
from e2e.tests.space import Space

pytestmark = pytest.mark.once
PORT = 9480


def page(space: Space, path: str) -> tuple[int, str]:
    """Of the agent of node-b, asked from outside the node; (0, "") while nobody listens."""
    url = f"http://{space.on.cluster.nodes['node-b'].address}:{PORT}{path}"
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_probes_and_metrics_before_and_after_the_kubelet_has_registered_the_driver(space: Space) -> None:
    space.on.accepts(http_address=f":{PORT}")
    node = space.on.cluster.nodes["node-b"]
    node.stop_kubelet()
    with space.agent_with("node-b", http_address=f":{PORT}"):
        try:
            until("liveness", lambda: page(space, "/healthz")[0] == 200, 20)
            until("the agent to wait for the kubelet", lambda: "not called yet" in page(space, "/readyz")[1], 20)
            assert page(space, "/readyz")[0] == 503
            assert page(space, "/healthz")[0] == 200
        finally:
            node.start_kubelet()
        until("readiness", lambda: page(space, "/readyz")[0] == 200, 60)
        until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)
        space.run("pod", A100)
        status, metrics = page(space, "/metrics")
        assert status == 200
        assert "dra_driver_devices_published 6.0" in metrics
        assert 'dra_driver_prepare_seconds_count{result="ok"} 1.0' in metrics
        assert page(space, "/nonsense")[0] == 404


def test_every_line_of_the_log_is_json_and_names_the_claim(space: Space) -> None:
    said = space.listen("node-b")
    space.run("pod", A100)
    (used,) = space.on.claims_of(space.on.pod("pod", space.name) or {})
    lines = until("the line about the claim", lambda: [line for line in said() if line["msg"] == "prepared"], 10)
    assert [line["claim_uid"] for line in lines] == [used["metadata"]["uid"]]
    assert lines[0]["devices"] == space.allocated("pod")
    for node in space.on.machines:
        for line in space.on.agents[node].log.read_text().splitlines():
            assert {"time", "level", "msg", "logger"} <= json.loads(line).keys()


def test_an_agent_ends_at_once_and_leaves_no_socket(space: Space) -> None:
    node = space.on.cluster.nodes["node-b"]
    begin = space.on.agents["node-b"]
    before = [item["metadata"]["resourceVersion"] for item in space.on.slices("node-b")]
    try:
        assert begin.stop(timeout=5) == 0
        assert not [name for name in space.on.on_node("node-b", "/var/lib/kubelet/plugins_registry") if "gpu" in name]
        assert not list(node.path("/var/lib/kubelet/plugins/gpu.nvidia.com").glob("*.sock"))
        assert [item["metadata"]["resourceVersion"] for item in space.on.slices("node-b")] == before
    finally:
        space.on.start_agent("node-b")
