"""An API server that is far away, refuses, fails, or has forgotten: pods get their GPUs, and slices are published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.kube.client import KubeApi
from dra_driver.kube.errors import TooManyRequests
from dra_driver.model.claim import ClaimRef
from e2e.bench.agent import Kubelet
from e2e.cluster import ClusterError
from e2e.installation import stays, until
from e2e.objects import A100
from e2e.tests.by_hand import allocated, kubelet_of, refused, some_device
from e2e.tests.space import Space

pytestmark = pytest.mark.once
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def test_far_from_the_api_server_pods_get_gpus_and_a_new_agent_publishes(space: Space) -> None:
    """Each answer takes 0.6 s, each new connection three times as long."""
    node, said = space.on.cluster.nodes["node-b"], space.listen("node-b")
    node.delay(0.3)
    try:
        space.on.agents["node-b"].stop()
        space.on.kubectl("delete", "resourceslices", "--field-selector", "spec.nodeName=node-b")
        space.on.start_agent("node-b")
        until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 30)
        space.run("pod", A100)
    finally:
        node.delay(0)
    assert space.gpus("pod") == space.allocated_uuids("pod")
    assert [line for line in said() if line["msg"] == "prepared" and line["seconds"] > 0.5], "it was not slow"


@contextmanager
def applied(space: Space, *objects: Mapping[str, Any]) -> Iterator[None]:
    """Objects without a namespace, for as long as the block lasts."""
    space.on.apply(*objects)
    try:
        yield
    finally:
        for item in objects:
            space.on.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")


def failing_webhook() -> list[dict[str, Any]]:
    """A webhook that nobody answers: 500 for whoever writes slices."""
    hook = {
        "name": "nobody.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "apiVersions": ["*"],
                "operations": ["*"],
                "resources": ["resourceslices"],
            }
        ],
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "create", "expression": "request.operation == 'CREATE'"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return [{**kind, "metadata": {"name": "nobody"}, "webhooks": [hook]}]


def strict_policy() -> list[dict[str, Any]]:
    """A policy by which no new slice is valid: 422."""
    api, name = "admissionregistration.k8s.io/v1", {"name": "no-slices"}
    matching = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["resourceslices"],
    }
    never = {"expression": "false", "message": "no more slices today", "reason": "Invalid"}
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": name}
    binding = {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name}
    return [
        {**policy, "spec": {"matchConstraints": {"resourceRules": [matching]}, "validations": [never]}},
        {**binding, "spec": {"policyName": "no-slices", "validationActions": ["Deny"]}},
    ]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [(failing_webhook, "HTTP 500"), (strict_policy, "HTTP 422 Invalid")],
    ids=["500", "422"],
)
def test_slices_that_the_api_server_refuses_are_written_as_soon_as_it_takes_them(
    space: Space, trouble: Any, words: str
) -> None:
    said = space.listen("node-b")
    (mine,) = space.on.slices("node-b")
    another = {**mine, "metadata": {"name": "another"}}

    def enforced() -> bool:
        try:
            space.on.cluster.request("POST", f"{SLICES}?dryRun=All", another)
        except ClusterError:
            return True
        return False

    with applied(space, *trouble()):
        until("the API server to refuse slices", enforced, 20)
        space.on.kubectl("delete", "resourceslice", mine["metadata"]["name"])
        until(f"a line in the log with {words}", lambda: [line for line in said() if words in line["msg"]], 20)
        assert not space.on.devices("node-b")
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)


def test_a_prepare_that_begins_without_etcd_waits_for_it_and_what_is_prepared_can_be_given_back(space: Space) -> None:
    """The API server accepts requests all the time, and lets them wait."""
    device, other = (item["name"] for item in space.on.devices("node-b")[:2])
    before, new = allocated(space, "before", device), allocated(space, "new", other)
    with kubelet_of(space, "node-b") as kubelet, ThreadPoolExecutor(1) as pool:
        kubelet.prepare([before])
        space.on.cluster.stop("etcd")
        try:
            preparing = pool.submit(kubelet.prepare, [new])
            kubelet.unprepare([before])
            assert not space.leftovers()
            stays("the other call waits", lambda: not preparing.done(), 2)
        finally:
            space.on.cluster.start("etcd")
        preparing.result(30)
        assert space.records("node-b") == [f"{new.uid}.json"]
        kubelet.unprepare([new])


def test_a_watch_whose_place_the_api_server_has_forgotten_begins_anew(space: Space) -> None:
    """A restarted API server knows nothing of what was before: it answers 410 to who wants to go on from there."""
    node = space.on.cluster.nodes["node-b"]
    seen = space.on.cluster.request("GET", SLICES)["metadata"]["resourceVersion"]
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "something-happens"}})
    space.on.cluster.stop("apiserver")
    node.disconnect()
    try:
        space.on.cluster.start("apiserver")
        query = f"?watch=true&resourceVersion={seen}&timeoutSeconds=1"
        assert space.on.cluster.request("GET", SLICES + query)["object"]["code"] == 410
        space.on.kubectl("delete", "resourceslices", "--field-selector", "spec.nodeName=node-b")
    finally:
        node.connect()
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)


# Without them requests wait in queues, one at a time is let through whatever the limit, and nobody gets a 429.
ONE_AT_A_TIME = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=1",
    "--max-mutating-requests-inflight=1",
    "--request-timeout=10s",  # instead of 60: whoever has the only place, an informer's list perhaps, gives it back
)


@pytest.fixture
def one_request_at_a_time(space: Space) -> Iterator[None]:
    """429 for whoever comes meanwhile. Watches do not count, and requests of administrators are always taken."""
    space.on.cluster.restart("apiserver", *ONE_AT_A_TIME)
    yield
    space.on.cluster.restart("apiserver")


@pytest.fixture
def agents_api(space: Space, tmp_path: Path) -> Iterator[KubeApi]:
    """The API as the agent of node-b may use it."""
    cluster = space.on.cluster
    token = cluster.service_account_token("dra-driver", space.on.account, "node-b")
    api = KubeApi(str(cluster.write_kubeconfig(tmp_path / "kubeconfig", token)))
    yield api
    api.close()


@pytest.mark.usefixtures("one_request_at_a_time")
def test_what_the_api_server_has_no_time_for_is_refused_in_its_words_and_done_later(
    space: Space, agents_api: KubeApi
) -> None:
    ref = allocated(space, "claim", some_device(space))

    def read() -> object:
        return agents_api.request("GET", "/apis/resource.k8s.io/v1/resourceclaims?limit=1")

    def kept_waiting() -> bool:
        try:
            pool.submit(read).result(1)
        except TooManyRequests:  # another one is
            return False
        except TimeoutError:
            return True
        return False

    with kubelet_of(space, "node-b") as kubelet, ThreadPoolExecutor(1) as pool:
        space.on.cluster.stop("etcd")  # the API server takes requests, and keeps them waiting
        try:
            until("a request that takes the only place", kept_waiting, 60, every=0.005)
            assert "HTTP 429" in refused(kubelet, ref)
        finally:
            space.on.cluster.start("etcd")
        until("a claim that is prepared", lambda: _prepares(kubelet, ref), 60)
        kubelet.unprepare([ref])
    space.on.kubectl("delete", "resourceslices", "--field-selector", "spec.nodeName=node-b")
    until("the devices of node-b", lambda: len(space.on.devices("node-b")) == 6, 60)


def _prepares(kubelet: Kubelet, ref: ClaimRef) -> bool:
    try:
        kubelet.prepare([ref])
    except ClusterError:
        return False
    return True
