"""On request only (`DRA_E2E_LIVE=1`, root, about 40 s): the chart on nodes with containerd 1.7, which has a switch for CDI."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import Options, processes
from e2e.driver_image import driver_image
from e2e.installation import until
from e2e.objects import pod, request, template
from tests.deploy.installed import AGENT, NAMESPACE, Installed

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster, and this containerd, may have to be built
]
IMAGE = "dra-driver-e2e:chart"
WITHOUT, WITH = "node-a", "node-b"
CONFIGURATION = "/etc/containerd/config.toml"
SECTION = '[plugins."io.containerd.grpc.v1.cri"]\n'


@pytest.fixture(scope="module")
def installed(helm: Any) -> Iterator[Installed]:
    cluster = processes(Options(name="cdi", nodes=(WITHOUT, WITH), containerd17={WITHOUT: False, WITH: True}))
    cluster.down()
    cluster.up()
    try:
        cluster.load(driver_image(IMAGE))
        made = Installed(cluster, helm, IMAGE)
        made.install(webhook={"enabled": False}, settings={"log-level": "debug"})
        made.apply(template("gpus", request(count=2)))
        yield made
    finally:
        cluster.down()


def test_where_cdi_is_off_pods_run_without_gpus_and_the_agent_says_why(installed: Installed) -> None:
    runtime = _runtime(installed, WITHOUT)
    assert runtime.startswith("containerd://1.7.")
    line = until("a line in the log", lambda: _said(installed, WITHOUT), 20)[0]
    assert line["level"] == "warning"
    assert line["msg"].startswith(f"{runtime} reads no CDI specs, so pods with claims run without their GPUs: ")
    # That is where the containerd that runs was looked at, through the pod's mount of the host.
    assert f"enable_cdi = true is not in {CONFIGURATION}: add it and restart containerd" in line["msg"]
    (event,) = until("an Event", lambda: _events(installed, WITHOUT), 20)
    assert (event["type"], event["message"]) == ("Warning", line["msg"])
    assert line["msg"] in installed.kubectl("describe", "node", WITHOUT)
    # As docs/troubleshooting.md has it: nobody but the agent notices.
    assert _run(installed, "without", WITHOUT) == "sh: nvidia-smi: not found"
    assert installed.refused_calls() == []


def test_where_cdi_is_on_pods_have_exactly_their_gpus_and_nothing_is_said(installed: Installed) -> None:
    until("a look at the runtime", lambda: "nothing speaks against CDI" in _log(installed, WITH), 20)
    assert not _said(installed, WITH)
    assert not _events(installed, WITH)
    _has_its_gpus(installed, "with", WITH)


def test_what_is_said_is_what_helps(installed: Installed) -> None:
    node = installed.cluster.nodes[WITHOUT]
    file = node.path(CONFIGURATION)
    before = file.read_text()
    assert SECTION in before
    file.write_text(before.replace(SECTION, f"{SECTION}enable_cdi = true\n"))
    node.restart_containerd()
    _has_its_gpus(installed, "afterwards", WITHOUT)
    # A container that started without its GPUs never gets them.
    installed.delete("pod", "without")
    _has_its_gpus(installed, "without", WITHOUT)
    installed.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{AGENT}")
    installed.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/{AGENT}", "--timeout=60s")
    installed.has_settled()
    until("a look at the runtime", lambda: "nothing speaks against CDI" in _log(installed, WITHOUT), 20)
    assert not _said(installed, WITHOUT)


def _has_its_gpus(installed: Installed, name: str, node: str) -> None:
    _run(installed, name, node)
    running = installed.wait_for_pod(name)
    seen = {line.partition("UUID: ")[2].rstrip(")") for line in installed.gpus_seen(name)}
    assert len(seen) == 2
    assert seen == set(installed.uuids(node, installed.allocated(running)))


def _run(installed: Installed, name: str, node: str) -> str:
    """The first line that its container writes."""
    installed.apply(pod(name, templates=["gpus"], node=node))
    installed.wait_for_pod(name)
    return until(f"a line of pod {name}", lambda: installed.logs(name).splitlines(), 30)[0]


def _log(installed: Installed, node: str) -> str:
    return installed.logs(installed.agent(node)["metadata"]["name"], namespace=NAMESPACE)


def _said(installed: Installed, node: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in _log(installed, node).splitlines()]
    return [line for line in lines if "reads no CDI specs" in line["msg"]]


def _events(installed: Installed, node: str) -> list[dict[str, Any]]:
    selector = f"involvedObject.kind=Node,involvedObject.name={node},reason=CDIOff"
    listed = installed.get(f"/api/v1/events?fieldSelector={selector}") or {"items": []}
    items: list[dict[str, Any]] = listed["items"]
    return items


def _runtime(installed: Installed, node: str) -> str:
    status = installed.cluster.request("GET", f"/api/v1/nodes/{node}")["status"]
    return str(status["nodeInfo"]["containerRuntimeVersion"])
