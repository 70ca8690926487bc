"""Somebody has the token of one node's agent: what it is good for, tried against the real API server."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dra_driver.kube.client import KubeApi
from dra_driver.kube.errors import Forbidden
from e2e.installation import DRIVER, Installation, until
from e2e.objects import claim, pod
from e2e.tests.space import Space

pytestmark = pytest.mark.once

RESOURCE = "/apis/resource.k8s.io/v1"
SLICES = f"{RESOURCE}/resourceslices"
OWN_NODE, OTHER_NODE = "node-a", "node-b"
POLICY = "denied request: the agent of node node-a writes only ResourceSlices"


class Thief:
    """Asks the API server with nothing but the token."""

    def __init__(self, installation: Installation, node: str | None, directory: Path) -> None:
        cluster = installation.cluster
        token = cluster.service_account_token("dra-driver", installation.account, node)
        self._api = KubeApi(str(cluster.write_kubeconfig(directory / f"thief-{node}", token)))

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        return self._api.request(method, path, body=body, content_type=kind)

    def refused(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """The API server's words; the test fails if it was let in."""
        with pytest.raises(Forbidden) as caught:
            self.request(method, path, body)
        return str(caught.value)

    def close(self) -> None:
        self._api.close()


Steal = Callable[[str | None], Thief]


@pytest.fixture
def steal(installation: Installation, tmp_path: Path) -> Iterator[Steal]:
    """The token of this node's agent, or one that names no node."""
    thieves: list[Thief] = []

    def take(node: str | None) -> Thief:
        thieves.append(Thief(installation, node, tmp_path))
        return thieves[-1]

    yield take
    for one in thieves:
        one.close()


@pytest.fixture
def thief(steal: Steal) -> Thief:
    return steal(OWN_NODE)


@pytest.fixture
def victim(installation: Installation) -> dict[str, Any]:
    """A slice of another node, as it is now."""
    return installation.slices(OTHER_NODE)[0]


def a_slice(name: str, **spec: Any) -> dict[str, Any]:
    """One that the agent of node-a might write, unless `spec` says otherwise (None: without that field)."""
    pool = {"name": OWN_NODE, "generation": 1, "resourceSliceCount": 1}
    whole = {"driver": DRIVER, "nodeName": OWN_NODE, "pool": pool, "devices": [{"name": "gpu-0"}], **spec}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": OTHER_NODE},
        {"nodeName": OTHER_NODE, "pool": {"name": OTHER_NODE, "generation": 99, "resourceSliceCount": 1}},
        {"pool": {"name": OTHER_NODE, "generation": 99, "resourceSliceCount": 1}},
        {"pool": {"name": f"{OWN_NODE}/more", "generation": 1, "resourceSliceCount": 1}},
        {"nodeName": None, "allNodes": True},
        {
            "nodeName": None,
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [OWN_NODE]}]}
                ]
            },
        },
        {"driver": "gpu.example.com"},
    ],
    ids=["node", "node and pool", "pool", "pool below", "all nodes", "selector", "driver"],
)
def test_it_makes_no_slice_that_is_not_its_nodes(thief: Thief, spec: dict[str, Any]) -> None:
    assert POLICY in thief.refused("POST", SLICES, a_slice("stolen", **spec))


@pytest.mark.gate(DRAPartitionableDevices=True)
def test_it_makes_no_slice_whose_devices_choose_their_nodes(thief: Thief, space: Space) -> None:
    devices = [{"name": "gpu-0", "nodeName": OTHER_NODE}]
    item = a_slice("stolen", nodeName=None, perDeviceNodeSelection=True, devices=devices)
    assert POLICY in thief.refused("POST", SLICES, item)


def test_it_changes_and_deletes_no_slice_of_another_node(
    thief: Thief, installation: Installation, victim: dict[str, Any]
) -> None:
    path = f"{SLICES}/{victim['metadata']['name']}"
    changed = copy.deepcopy(victim)
    changed["metadata"].pop("managedFields", None)
    changed["spec"]["devices"] = []
    assert POLICY in thief.refused("PUT", path, changed)
    assert POLICY in thief.refused("DELETE", path)
    for query in ("", f"?fieldSelector=spec.nodeName%3D{OTHER_NODE}"):
        thief.refused("DELETE", f"{SLICES}{query}")
    assert [item["metadata"]["name"] for item in installation.slices(OTHER_NODE)] == [victim["metadata"]["name"]]
    assert installation.slices(OTHER_NODE)[0]["spec"] == victim["spec"]


def test_a_slice_of_somebody_else_is_not_taken_over(thief: Thief, installation: Installation) -> None:
    foreign = a_slice("foreign", driver="gpu.example.com", nodeName=OTHER_NODE)
    made = installation.cluster.request("POST", SLICES, foreign)
    try:
        made["spec"]["devices"] = []
        assert POLICY in thief.refused("PUT", f"{SLICES}/foreign", made)
        assert POLICY in thief.refused("DELETE", f"{SLICES}/foreign")
    finally:
        installation.cluster.request("DELETE", f"{SLICES}/foreign")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_token_that_names_no_node_writes_nothing(steal: Steal, victim: dict[str, Any], method: str) -> None:
    path = SLICES if method == "POST" else f"{SLICES}/{victim['metadata']['name']}"
    body = {"POST": a_slice("stolen"), "PUT": victim, "DELETE": None}[method]
    assert "does not say which node it is for" in steal(None).refused(method, path, body)


def test_its_own_slices_are_all_that_it_can_write(thief: Thief, installation: Installation) -> None:
    """The damage: this node's devices. The agent puts them right again."""
    (mine,) = installation.slices(OWN_NODE)
    thief.request("DELETE", f"{SLICES}/{mine['metadata']['name']}")

    def back() -> bool:
        found = installation.slices(OWN_NODE)
        return len(found) == 1 and found[0]["spec"]["devices"] == mine["spec"]["devices"]

    until("the agent to publish again", back, 60)


@pytest.fixture
def prey(space: Space) -> tuple[Space, dict[str, Any]]:
    """A pod with a GPU on the other node."""
    space.apply(claim("prize"), pod("prey", claims=["prize"], node=OTHER_NODE))
    space.running("prey")
    return space, space.claim("prize")


def test_it_touches_no_claim_and_no_status_of_one(thief: Thief, prey: tuple[Space, dict[str, Any]]) -> None:
    space, prize = prey
    claims = f"{RESOURCE}/namespaces/{space.name}/resourceclaims"
    thief.refused("POST", claims, claim("made"))
    thief.refused("PUT", f"{claims}/prize", prize)
    thief.refused("PATCH", f"{claims}/prize", {})
    thief.refused("DELETE", f"{claims}/prize")
    thief.refused("DELETE", claims)
    thief.refused("PUT", f"{claims}/prize/status", {**prize, "status": {}})
    thief.refused("PATCH", f"{claims}/prize/status", {})
    thief.refused("POST", f"{RESOURCE}/namespaces/{space.name}/resourceclaimtemplates", {})
    thief.refused("GET", f"{RESOURCE}/namespaces/{space.name}/resourceclaimtemplates")
    thief.refused("POST", f"{RESOURCE}/deviceclasses", {})
    thief.refused("DELETE", f"{RESOURCE}/deviceclasses/{DRIVER}")
    assert space.claim("prize")["status"] == prize["status"]


def test_it_reads_claims_everywhere_which_nothing_in_kubernetes_can_narrow(
    thief: Thief, prey: tuple[Space, dict[str, Any]]
) -> None:
    """RBAC knows no "claims of pods on my node", the Node authorizer serves kubelets only, and admission sees no reads. What
    is seen: names, wishes, allocations and opaque configuration. There are no secrets in a claim."""
    space, prize = prey
    found = thief.request("GET", f"{RESOURCE}/namespaces/{space.name}/resourceclaims/prize")
    assert found["metadata"]["uid"] == prize["metadata"]["uid"]
    assert thief.request("GET", f"{RESOURCE}/resourceclaims")["items"]


def test_it_reads_no_secret_and_touches_no_pod(thief: Thief, prey: tuple[Space, dict[str, Any]]) -> None:
    space, _ = prey
    core = "/api/v1"
    for place in ("", "/namespaces/dra-driver", f"/namespaces/{space.name}", "/namespaces/kube-system"):
        for resource in ("secrets", "configmaps", "serviceaccounts", "pods"):
            thief.refused("GET", f"{core}{place}/{resource}")
    thief.refused("GET", f"{core}/namespaces/dra-driver/secrets/dra-driver-webhook-tls")
    own = f"{core}/namespaces/{space.name}/pods"
    thief.refused("GET", f"{own}/prey")
    thief.refused("POST", own, pod("made"))
    thief.refused("PUT", f"{own}/prey", pod("prey"))
    thief.refused("PATCH", f"{own}/prey", {})
    thief.refused("DELETE", f"{own}/prey")
    thief.refused("POST", f"{own}/prey/exec?command=id&stdout=true", {})
    thief.refused("GET", f"{own}/prey/log")
    thief.refused("POST", f"{own}/prey/eviction", {})
    thief.refused("PUT", f"{own}/prey/status", {})


def test_it_gets_no_more_rights(thief: Thief) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for resource in ("clusterroles", "clusterrolebindings"):
        thief.refused("GET", f"{rbac}/{resource}")
        thief.refused("POST", f"{rbac}/{resource}", {})
        thief.refused("PUT", f"{rbac}/{resource}/dra-driver", {})
    for account in ("dra-driver", "dra-driver-webhook"):
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        thief.refused("POST", f"/api/v1/namespaces/dra-driver/serviceaccounts/{account}/token", request)
    admission = "/apis/admissionregistration.k8s.io/v1"
    for resource in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        thief.refused("DELETE", f"{admission}/{resource}/dra-driver-own-slices")
    thief.refused("GET", f"{admission}/validatingwebhookconfigurations")
    for method in ("PUT", "PATCH", "DELETE"):
        thief.refused(method, f"/api/v1/nodes/{OWN_NODE}", {})
        thief.refused(method, f"/api/v1/nodes/{OTHER_NODE}", {})
    thief.refused("GET", "/api/v1/nodes")


def an_event(space: Space, **more: Any) -> dict[str, Any]:
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": space.name, "name": "c"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "stolen-", "namespace": space.name},
        "involvedObject": about,
        "reason": "Stolen",
        "message": "words",
        "type": "Warning",
        "source": {"component": DRIVER, "host": OWN_NODE},
        **more,
    }


def test_its_events_are_about_claims_and_say_where_they_come_from(thief: Thief, steal: Steal, space: Space) -> None:
    events = f"/api/v1/namespaces/{space.name}/events"
    made = thief.request("POST", events, an_event(space))
    about_pod = {"apiVersion": "v1", "kind": "Pod", "namespace": space.name, "name": "prey"}
    wrongs: tuple[dict[str, Any], ...] = (
        {"involvedObject": about_pod},
        {"source": {"component": DRIVER, "host": OTHER_NODE}},
        {"source": {"component": "kubelet", "host": OWN_NODE}},
        {"source": {}},
    )
    for wrong in wrongs:
        assert "writes only Events about ResourceClaims" in thief.refused("POST", events, an_event(space, **wrong))
    path = f"{events}/{made['metadata']['name']}"
    assert "node node-b writes only Events" in steal(OTHER_NODE).refused("PATCH", path, {"count": 99})
    thief.request("PATCH", path, {"count": 2})
    thief.refused("GET", events)
    thief.refused("DELETE", path)
