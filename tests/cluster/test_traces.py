"""On request only (`DRA_E2E_LIVE=1`, root, 40 s): a cluster, also one whose maker was killed, leaves no trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, Options, processes

pytestmark = pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set")

NAME = "traces"
HOST_PATHS = ("/etc/cdi", "/etc/cni", "/run/containerd", "/run/netns", "/var/lib/kubelet", "/var/lib/containerd")
TUNABLES = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def machine() -> dict[str, object]:
    """What a cluster could leave behind on this machine, apart from other clusters'."""
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    rules = subprocess.run(["iptables-save", "-t", "nat"], capture_output=True, text=True, check=True).stdout
    return {
        "links": sorted(link["ifname"] for link in links if link["ifname"].startswith((f"dra-{NAME}", "cni0", "br0"))),
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if f"/{NAME}/" in line],
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob(f"*/dra-e2e.{NAME}*")),
        "processes": [command for command in commands if f"/{NAME}/".encode() in command],
        "rules": [line for line in rules.splitlines() if "KUBE" in line],
        "paths": [path for path in HOST_PATHS if Path(path).exists()],
        "tunables": [Path("/proc/sys", tunable).read_text() for tunable in TUNABLES],
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    before = machine()
    cluster = processes(Options(name=NAME, home=tmp_path / "home"))
    yield cluster
    cluster.down()
    assert machine() == before
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_was_used(cluster: Cluster) -> None:
    cluster.up()
    for node in cluster.nodes.values():
        container = {"name": "c", "image": "e2e/busybox:1", "command": ["sleep", "3600"]}
        pod = {"metadata": {"name": f"on-{node.name}"}, "spec": {"nodeName": node.name, "containers": [container]}}
        cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
        node.start(["sleep", "3600"], name="agent")
    deadline = time.monotonic() + 30
    while True:
        pods = cluster.request("GET", "/api/v1/namespaces/default/pods")["items"]
        if [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]:
            return
        assert time.monotonic() < deadline, pods
        time.sleep(0.2)


@pytest.mark.parametrize("after", [0.2, 0.5, 1.5, 4.0])
def test_a_run_that_was_killed_half_way(cluster: Cluster, after: float) -> None:
    command = [sys.executable, "-m", "e2e.cluster", "up", "--name", NAME]
    environment = {**os.environ, "DRA_E2E_HOME": str(cluster.directory.parent), "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
