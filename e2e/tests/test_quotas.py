"""Quotas by DeviceClass and by extended resource, with the manifest of docs/quotas.md: what counts, when, and what a user sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from e2e.cluster import ClusterError
from e2e.installation import DRIVER, ROOT, TEST_IMAGE, until
from e2e.objects import STAY, claim, pod, request, template, wishes
from e2e.tests.space import Space

pytestmark = pytest.mark.once

CLASS, RESOURCE = "quota.example.com", "example.com/quota-gpu"
BY_CLASS, BY_RESOURCE = f"{CLASS}.deviceclass.resource.k8s.io/devices", f"requests.{RESOURCE}"
MOST = 32  # devices that a claim can hold


def quota(space: Space, **hard: str) -> None:
    """That of the documentation, for our class and resource, in which these limits are others."""
    text = (ROOT / "docs" / "quotas.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    made = yaml.safe_load(
        text.replace(f"{DRIVER}.deviceclass", f"{CLASS}.deviceclass").replace("nvidia.com/gpu", RESOURCE)
    )
    made["metadata"]["namespace"] = space.name
    by = {"by_class": BY_CLASS, "by_resource": BY_RESOURCE}
    made["spec"]["hard"] |= {by[name]: value for name, value in hard.items()}
    space.apply(made)
    until("the quota to be in force", lambda: status(space).get("hard") == made["spec"]["hard"], 30)


def status(space: Space) -> Mapping[str, Mapping[str, str]]:
    found = space.on.get(f"/api/v1/namespaces/{space.name}/resourcequotas/gpus") or {}
    return dict(found.get("status") or {})


def counted(space: Space, *expected: int) -> None:
    """Waits until the quota counts so many, by class and by resource."""
    keys = (BY_CLASS, BY_RESOURCE)[: len(expected)]

    def right() -> bool:
        used = status(space).get("used", {})
        return [int(used.get(key, -1)) for key in keys] == list(expected)

    until(f"the quota to count {expected}", right, 30)


def of_class(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same request, of the class with the quota."""
    body = {**asked["exactly"], "deviceClassName": CLASS} if "exactly" in asked else None
    if body is not None:
        return {**asked, "exactly": body}
    return {**asked, "firstAvailable": [{**wish, "deviceClassName": CLASS} for wish in asked["firstAvailable"]]}


@pytest.fixture(autouse=True)
def device_class(space: Space) -> Iterator[None]:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {"extendedResourceName": RESOURCE, "selectors": [selector]}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}
    space.on.apply(made)
    yield
    space.on.delete("deviceclass", CLASS)


def classic(name: str, gpus: int, command: str = STAY) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        "command": ["sh", "-c", f"nvidia-smi -L; {command}"],
        "resources": {"limits": {RESOURCE: gpus}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_pod_waits_for_the_quota_of_its_class_and_has_it_when_another_ends(space: Space) -> None:
    quota(space, by_class="1")
    gpu = template("gpu", of_class(request()))
    space.apply(gpu, pod("first", templates=["gpu"]))
    space.running("first")
    space.apply(pod("second", templates=["gpu"]))
    assert BY_CLASS in space.pending("second", "is forbidden: exceeded quota: gpus")
    assert not (space.on.pod("second", space.name) or {})["status"].get("resourceClaimStatuses")
    space.delete("pod", "first")
    space.running("second", 90)  # its claim is tried again with growing pauses: after as long as it has waited, at most
    counted(space, 1)


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        (request(count=2), 2),
        (request(everything=True), MOST),
        (wishes("gpu", request("many", count=3, sub=True), request("one", count=1, sub=True)), 3),
        (request(everything=True, admin=True), MOST),
        (request(admin=True), 1),
    ],
    ids=["count", "all", "first available", "all as admin", "admin"],
)
def test_a_claim_counts_by_what_it_asks_for_as_long_as_it_exists(
    space: Space, asked: Mapping[str, Any], counts: int
) -> None:
    quota(space, by_class=str(counts), by_resource=str(counts))
    space.apply(claim("asks", of_class(asked)))
    counted(space, counts, counts)
    with pytest.raises(ClusterError, match="exceeded quota: gpus"):
        space.apply(claim("more", of_class(request())))
    space.delete("resourceclaim", "asks")
    counted(space, 0, 0)
    quota(space, by_class=str(counts - 1))
    with pytest.raises(ClusterError, match=f"requested: {BY_CLASS}={counts}"):
        space.apply(claim("asks", of_class(asked)))


@pytest.mark.gate(DRAExtendedResource=True)
def test_a_pod_that_asks_for_an_extended_resource_counts_once_until_it_has_ended(space: Space) -> None:
    quota(space, by_class="2", by_resource="2")
    space.apply(classic("pair", 2, "sleep 1"))
    space.on.wait_for_pod("pair", space.name, ("Running", "Succeeded"))
    counted(space, 2, 2)
    space.finished("pair")
    counted(space, 0, 0)


@pytest.mark.gate(DRAExtendedResource=True)
def test_over_the_extended_resource_a_pod_is_refused_at_once_and_a_claim_too(space: Space) -> None:
    quota(space, by_resource="1")
    with pytest.raises(
        ClusterError, match=f'pods "pair" is forbidden: exceeded quota: gpus, requested: {BY_RESOURCE}=2'
    ):
        space.apply(classic("pair", 2))
    with pytest.raises(ClusterError, match=f"exceeded quota: gpus, requested: {BY_RESOURCE}=2"):
        space.apply(claim("pair", of_class(request(count=2))))


@pytest.mark.gate(DRAExtendedResource=True)
def test_over_the_class_a_pod_that_asks_for_the_extended_resource_is_made_and_waits(space: Space) -> None:
    quota(space, by_class="1")
    space.apply(classic("pair", 2))
    assert BY_CLASS in space.pending("pair", "create claim for extended resources")
