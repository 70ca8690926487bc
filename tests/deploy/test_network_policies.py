"""On request only (`make e2e-others`, root, about a minute beside two for building Calico): the chart's network policies where
Calico enforces them. What the driver needs is open, the rest is closed, and it is the policies that close it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from e2e import calico
from e2e.cluster import ClusterError, Options, processes
from e2e.driver_image import driver_image
from e2e.installation import TEST_IMAGE, until
from e2e.objects import claim, config, request
from tests.deploy.installed import AGENT, NAMESPACE, WEBHOOK, Installed, pod

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("DRA_E2E_OTHERS") != "1", reason="DRA_E2E_OTHERS=1 is not set: Calico takes minutes to build"
    ),
    pytest.mark.timeout(600, func_only=True),  # the cluster, and Calico, may have to be built
]
IMAGE = "dra-driver-e2e:policies"
PARTS = (AGENT, WEBHOOK)
PORT = 9999  # nobody's
PEER = "peer"  # a container beside the driver's, in its network: images of the driver have no shell
LISTEN = f"nc -ll -p {PORT} -e hostname"
STRANGER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "stranger", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": TEST_IMAGE, "command": ["sh", "-c", LISTEN]}],
    },
}
WRONG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategi": "MPS"}}
ONE = {"webhook": {"replicas": 1}}


@pytest.fixture(scope="module")
def installed(helm: Path) -> Iterator[Installed]:
    cluster = processes(Options(name="policies", nodes=("node-a",)))
    cluster.down()
    cluster.up()
    try:
        cluster.load(driver_image(IMAGE))
        made = Installed(cluster, helm, IMAGE)
        calico.install(made)
        made.apply(STRANGER)
        made.wait_for_pod("stranger")
        made.install(**ONE, kubeletPlugin={"networkPolicy": {"enabled": True}})
        for name in PARTS:
            made.kubectl("debug", *beside(made, name), f"--image={TEST_IMAGE}", "--", "sh", "-c", LISTEN)
            until(f"a listener beside {name}", partial(listens, made, name), 30)
        yield made
    finally:
        cluster.down()


def pod_of(installed: Installed, part: str) -> str:
    listed = installed.get(f"/api/v1/namespaces/{NAMESPACE}/pods") or {}
    (name,) = (item["metadata"]["name"] for item in listed["items"] if item["metadata"]["name"].startswith(f"{part}-"))
    return str(name)


def address(installed: Installed, name: str, namespace: str) -> str:
    return str((installed.pod(name, namespace) or {})["status"]["podIP"])


def beside(installed: Installed, part: str) -> tuple[str, ...]:
    """The peer of a part, as kubectl names it."""
    return (pod_of(installed, part), "-n", NAMESPACE, "-c", PEER)


def listens(installed: Installed, part: str) -> bool:
    try:
        return connects(installed, "127.0.0.1", PORT, *beside(installed, part))
    except ClusterError:
        return False  # it has not started


def connects(installed: Installed, to: str, port: int, *where: str) -> bool:
    """From a container, `where` as kubectl names it. Whoever is refused hears nothing, and gives up after two seconds."""
    tried = f"nc -w 2 {to} {port} </dev/null >/dev/null 2>&1 && echo open || echo closed"
    return installed.kubectl("exec", *where, "--", "sh", "-c", tried).strip() == "open"


def open_to_strangers(installed: Installed, part: str, port: int) -> bool:
    return connects(installed, address(installed, pod_of(installed, part), NAMESPACE), port, "stranger")


def reaches_strangers(installed: Installed, part: str) -> bool:
    stranger = address(installed, "stranger", "default")
    return connects(installed, stranger, PORT, *beside(installed, part))


def works(installed: Installed, name: str) -> None:
    """API server to webhook and agent to API server: a claim of a new pod, and one that is refused."""
    installed.apply(pod(name))
    installed.wait_for_pod(name)
    assert len(installed.gpus_seen(name)) == 1
    with pytest.raises(ClusterError, match=r"sharing\.strategi: unknown field"):
        installed.apply(claim("wrong", request(), configs=[config(WRONG)]))
    assert installed.refused_calls() == []


def test_what_is_needed_is_open(installed: Installed) -> None:
    assert len(installed.devices("node-a")) == 8
    works(installed, "with-policies")
    assert open_to_strangers(installed, AGENT, 8080), "metrics are for whoever collects them"
    assert open_to_strangers(installed, WEBHOOK, 8080)
    assert open_to_strangers(installed, WEBHOOK, 8443)


@pytest.mark.parametrize("part", PARTS)
def test_all_else_is_closed(installed: Installed, part: str) -> None:
    assert not open_to_strangers(installed, part, PORT)
    assert not reaches_strangers(installed, part)


def test_without_policies_all_is_open(installed: Installed) -> None:
    installed.upgrade(**ONE)
    for part in PARTS:
        until(f"{part} to be open", partial(open_to_strangers, installed, part, PORT), 20)
        assert reaches_strangers(installed, part)
    works(installed, "without-policies")
