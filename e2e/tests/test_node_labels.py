"""Labels of the Node as gpu-feature-discovery makes them, by the right to patch nodes that a policy narrows to just them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.by_process import ByProcess
from e2e.cluster import Unsupported
from e2e.installation import until
from e2e.objects import pod, request, template
from e2e.tests.space import Space

pytestmark = pytest.mark.once
NODE = "node-b"


def labels(space: Space) -> dict[str, str]:
    found = (space.on.get(f"/api/v1/nodes/{NODE}") or {})["metadata"]["labels"]
    return {name: value for name, value in found.items() if name.startswith("nvidia.com/")}


@pytest.fixture
def right_to_patch_nodes(space: Space) -> Iterator[None]:
    """As the chart grants it with node-labels: node."""
    name = f"{space.name}-labels"
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}
    metadata = {"name": name}
    api = "rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": space.on.account, "namespace": "dra-driver"}
    space.on.apply(
        {"apiVersion": api, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    )
    yield
    space.on.kubectl("delete", "clusterrole,clusterrolebinding", name)


@pytest.mark.usefixtures("right_to_patch_nodes")
def test_nodes_are_labelled_and_chosen_by_labels_and_the_labels_go_with_the_setting(space: Space) -> None:
    with space.agent_with(NODE, node_labels="node"):
        until("the labels", lambda: labels(space), 30)
        found = labels(space)
        assert found["nvidia.com/gpu.product"] == "NVIDIA-L40S"
        assert (found["nvidia.com/gpu.count"], found["nvidia.com/gpu.memory"]) == ("4", "46068")
        assert (found["nvidia.com/gpu.family"], found["nvidia.com/mig.capable"]) == ("ada-lovelace", "true")
        until("the slices", lambda: len(space.on.devices(NODE)) == 6, 30)
        chosen = pod("pod", templates=["gpu"])
        chosen["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
        space.apply(template("gpu", request("gpu")), chosen)
        assert space.running("pod")["spec"]["nodeName"] == NODE
        version = (space.on.get(f"/api/v1/nodes/{NODE}") or {})["metadata"]["labels"]
        space.on.kubectl("label", "node", NODE, "nvidia.com/gpu.count=1", "example.com/mine=yes", "--overwrite")
    try:
        # The agent that comes next has no node-labels: what was put there goes, what a person put there stays.
        until("the labels to go", lambda: labels(space) == {"nvidia.com/gpu.count": "1"}, 30)
        assert version
    finally:
        space.on.kubectl("label", "node", NODE, "nvidia.com/gpu.count-", "example.com/mine-")


def test_without_the_right_the_log_says_which_one_it_takes(space: Space) -> None:
    if not isinstance(space.on, ByProcess):
        raise Unsupported("leaving the right away: the chart grants it with the setting")
    with space.agent_with(NODE, node_labels="node"):
        said = space.listen(NODE)
        words = "allow verb 'patch' on nodes in the driver's ClusterRole"
        until("a line in the log", lambda: any(words in line["msg"] for line in said()) or None, 30)
    assert labels(space) == {}


@pytest.mark.usefixtures("right_to_patch_nodes")
def test_the_right_is_of_no_use_for_anything_but_these_labels_of_this_node(space: Space) -> None:
    agent = f"--as=system:serviceaccount:dra-driver:{space.on.account}"
    on_node = f"--as-user-extra=authentication.kubernetes.io/node-name={NODE}"

    def patch(node: str, body: str, *more: str) -> str:
        return space.on.kubectl("patch", "node", node, agent, on_node, "--type=merge", f"--patch={body}", *more)

    mine = '{"metadata":{"labels":{"nvidia.com/e2e":"yes"}}}'
    assert "patched" in patch(NODE, mine)
    assert "patched" in patch(NODE, mine.replace('"yes"', "null"))
    refusal = f"the agent of node {NODE} changes nothing of Nodes but labels nvidia.com/... of that one"
    for node, body in (
        ("node-a", mine),
        (NODE, '{"metadata":{"labels":{"kubernetes.io/os":"windows"}}}'),
        (NODE, '{"metadata":{"labels":{"kubernetes.io/os":null}}}'),
        (NODE, '{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}'),
        (NODE, '{"metadata":{"annotations":{"nvidia.com/e2e":"yes"}}}'),
        (NODE, '{"spec":{"unschedulable":true}}'),
        (NODE, '{"spec":{"taints":[{"key":"nvidia.com/e2e","effect":"NoSchedule"}]}}'),
    ):
        with pytest.raises(Exception, match=refusal):
            patch(node, body)
    with pytest.raises(Exception, match="forbidden"):
        patch(NODE, '{"status":{"capacity":{"nvidia.com/gpu":"8"}}}', "--subresource=status")
