"""The real Node Feature Discovery puts the labels that the agent leaves in features.d on the Node, and takes them away again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.choice import DEFAULT, chosen
from e2e.installation import DRIVER, Installation, until
from e2e.nfd import NodeFeatureDiscovery
from e2e.objects import pod, request, template
from e2e.tests.space import Space
from e2e.tests.test_node_labels import labels

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(chosen() != DEFAULT, reason="NFD consists of processes of this machine on the node"),
]
NODE = "node-b"
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


@pytest.fixture(scope="module")
def nfd(installation: Installation) -> Iterator[NodeFeatureDiscovery]:
    made = NodeFeatureDiscovery(installation, NODE)
    installation.cluster.nodes[NODE].path(FEATURES).mkdir(parents=True)
    try:
        made.install()
        yield made
    finally:
        made.remove()


@pytest.fixture
def right_to_see_the_daemonset(space: Space) -> Iterator[None]:
    """As the chart grants it: an agent that ends asks whether it is being uninstalled."""
    name, namespace = f"{space.name}-uninstalled", "dra-driver"
    api = "rbac.authorization.k8s.io/v1"
    metadata = {"name": name, "namespace": namespace}
    rule = {"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["uninstalled"], "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": space.on.account, "namespace": namespace}
    space.on.apply(
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    )
    yield
    space.on.kubectl("delete", "role,rolebinding", name, "-n", namespace)


def file_of(space: Space) -> Path:
    return space.on.cluster.nodes[NODE].path(FEATURES) / DRIVER


def test_labels_come_and_go_with_the_setting(space: Space, nfd: NodeFeatureDiscovery) -> None:
    with space.agent_with(NODE, node_labels="file"):
        until("the labels", lambda: labels(space), 30)
        found = labels(space)
        written = dict(line.split("=", 1) for line in file_of(space).read_text().splitlines()[1:])
        assert found == written
        assert (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.count"]) == ("NVIDIA-L40S", "4")
        until("the slices", lambda: len(space.on.devices(NODE)) == 6, 30)
        picky = pod("pod", templates=["gpu"])
        picky["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
        space.apply(template("gpu", request("gpu")), picky)
        assert space.running("pod")["spec"]["nodeName"] == NODE
    # The agent that comes next has no node-labels.
    until("the labels to go", lambda: labels(space) == {}, 30)


@pytest.mark.usefixtures("right_to_see_the_daemonset")
def test_labels_go_when_the_driver_is_uninstalled(space: Space, nfd: NodeFeatureDiscovery) -> None:
    with space.agent_with(NODE, node_labels="file", daemonset="dra-driver/uninstalled"):
        until("the labels", lambda: labels(space), 30)
        space.on.agents[NODE].stop()
        assert not file_of(space).exists()
        until("the labels to go", lambda: labels(space) == {}, 30)


def test_labels_expire_when_nobody_is_left_to_remove_them(space: Space, nfd: NodeFeatureDiscovery) -> None:
    with space.agent_with(NODE, node_labels="file"):
        until("the labels", lambda: labels(space), 30)
        space.on.agents[NODE].kill()
        file = file_of(space)
        soon = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
        # A day has nearly gone by.
        file.write_text(re.sub("(?<=expiry-time=).*", soon, file.read_text(), count=1))
        until("the labels to go", lambda: labels(space) == {}, 30)
