"""Every right of the driver's ClusterRole: what does not happen without it, how the agent says so, and that it happens as soon
as the right is back. Nothing is granted that is not in the table below."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from e2e.installation import DRIVER, MANIFESTS, documents, until
from e2e.objects import A100, pod, request, template
from e2e.tests.by_hand import NO_SUCH_DEVICE, allocated, kubelet_of, refused
from e2e.tests.space import RUN_DIR, Space

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True)
class Right:
    """`needed` makes the agent use it, `works` says whether that had its effect. `again` is what has to be done when the right is
    back, where nobody tries again by himself."""

    verb: str
    resource: str
    needed: Callable[[Space], object]
    works: Callable[[Space], object]
    again: Callable[[Space], object] = lambda _: None

    def __str__(self) -> str:
        return f"{self.verb}-{self.resource}"


# What the agent does ------------------------------------------------------------------------------------------------------


def run_a_pod(space: Space) -> None:
    space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"]))
    space.pending("pod", "in the driver's ClusterRole")


def it_runs(space: Space) -> object:
    return (space.on.pod("pod", space.name) or {"status": {}})["status"].get("phase") == "Running"


def lose_a_record(space: Space) -> None:
    space.run("pod", A100)
    (name,) = space.records("node-b")
    space.on.cluster.nodes["node-b"].path(f"{RUN_DIR}/claims/{name}").unlink()


def delete_the_slice(space: Space) -> None:
    space.on.kubectl("delete", "resourceslices", "--field-selector", "spec.nodeName=node-b")


def edit_the_slice(space: Space) -> None:
    (listed,) = space.on.slices("node-b")
    wrong = {**listed["spec"], "devices": listed["spec"]["devices"][:2]}
    space.on.cluster.request("PUT", f"{SLICES}/{listed['metadata']['name']}", {**listed, "spec": wrong})


def leave_a_slice_behind(space: Space) -> None:
    """Of another pool of the same node: nobody but the node's agent would ever remove it."""
    pool = {"name": "left-behind", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "node-b", "pool": pool, "devices": []}
    api = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    space.on.cluster.request("POST", SLICES, {**api, "metadata": {"name": "left-behind"}, "spec": spec})


def nothing_is_left_behind(space: Space) -> object:
    return space.on.get(f"{SLICES}/left-behind") is None


def start_without_a_slice(space: Space) -> None:
    space.on.agents["node-b"].stop()
    delete_the_slice(space)
    space.on.start_agent("node-b", wait=False)


def lose_the_slice_after_a_start(space: Space) -> None:
    said = space.listen("node-b")
    space.on.agents["node-b"].stop()
    space.on.start_agent("node-b", wait=False)
    until("the agent to ask for a watch", lambda: any("cannot watch" in line["msg"] for line in said()), 20)
    delete_the_slice(space)


def all_is_published(space: Space) -> object:
    return len(space.on.devices("node-b")) == 6


def be_refused(space: Space, times: int = 1) -> None:
    """Something that a user must know."""
    ref = allocated(space, f"refused-{len(space.on.claims(space.name))}", NO_SUCH_DEVICE)
    with kubelet_of(space, "node-b") as kubelet:
        for _ in range(times):
            refused(kubelet, ref)


def be_refused_twice(space: Space) -> None:
    """Repeats are sent every 10 s, and when the agent ends."""
    if space.on.agents["node-b"].poll() is not None:
        space.on.start_agent("node-b")
    be_refused(space, times=2)
    space.on.agents["node-b"].stop()


def told(times: int) -> Callable[[Space], object]:
    def ask(space: Space) -> object:
        listed = space.on.get(f"/api/v1/namespaces/{space.name}/events") or {"items": []}
        return times in [item["count"] for item in listed["items"] if item["reason"] == "PrepareRefused"]

    return ask


def a_record(space: Space) -> object:
    return space.records("node-b")


# Whoever changes slices again and again is answered more and more slowly: those that do are apart by a new agent.
RIGHTS = (
    Right("get", "resourceclaims", run_a_pod, it_runs, lambda space: space.poke("pod")),
    Right("list", "resourceclaims", lose_a_record, a_record),
    Right("create", "resourceslices", delete_the_slice, all_is_published),
    Right("list", "resourceslices", start_without_a_slice, all_is_published),
    Right("update", "resourceslices", edit_the_slice, all_is_published),
    Right("watch", "resourceslices", lose_the_slice_after_a_start, all_is_published),
    Right("delete", "resourceslices", leave_a_slice_behind, nothing_is_left_behind),
    Right("create", "events", be_refused, told(1), be_refused),
    Right("patch", "events", be_refused_twice, told(2), be_refused_twice),
    Right("get", "nodes", delete_the_slice, all_is_published),
)


def may(space: Space, verb: str, resource: str) -> bool:
    group = "resource.k8s.io" if resource.startswith("resource") else ""
    wish = {"verb": verb, "group": group, "resource": resource, "namespace": space.name}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    user = f"system:serviceaccount:dra-driver:{space.on.account}"
    body = {**review, "spec": {"user": user, "resourceAttributes": wish}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(space.on.cluster.request("POST", path, body)["status"]["allowed"])


@contextmanager
def without(space: Space, verb: str, resource: str) -> Iterator[None]:
    """The driver's ClusterRole lacks a verb."""
    role = space.on.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{space.on.role}")
    assert role is not None
    less = [
        {**rule, "verbs": [other for other in rule["verbs"] if other != verb or resource not in rule["resources"]]}
        for rule in role["rules"]
    ]
    change = ("patch", "clusterrole", space.on.role, "--type=merge", "--patch")
    space.on.kubectl(*change, json.dumps({"rules": [rule for rule in less if rule["verbs"]]}))
    try:
        until("the API server to know", lambda: not may(space, verb, resource), 10)
        yield
    finally:
        space.on.kubectl(*change, json.dumps({"rules": role["rules"]}))
        until("the API server to know", lambda: may(space, verb, resource), 10)


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_without_a_right_the_agent_says_which_and_with_it_all_is_well_again(space: Space, right: Right) -> None:
    said = space.listen("node-b")
    group = ".resource.k8s.io" if right.resource.startswith("resource") else ""
    words = f"allow verb '{right.verb}' on {right.resource}{group} in the driver's ClusterRole"
    with without(space, right.verb, right.resource):
        right.needed(space)
        until(f"a line in the log with {words}", lambda: [line for line in said() if words in line["msg"]], 20)
        assert not right.works(space)
    right.again(space)
    until(f"what needs {right} to work", lambda: right.works(space), 40)


def test_nothing_is_granted_that_nothing_needs() -> None:
    roles = [item for item in documents((MANIFESTS / "rbac.yaml").read_text()) if item["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"]]
    granted = [(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]
    assert sorted(granted) == sorted((right.verb, right.resource) for right in RIGHTS)
