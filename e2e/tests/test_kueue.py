"""The real Kueue with the configuration and the queue of docs/kueue.md: what waits for quota, what runs, what it refuses."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e.choice import DEFAULT, chosen
from e2e.installation import DRIVER, ROOT, TEST_IMAGE, Installation, until
from e2e.kueue import Kueue
from e2e.objects import L40S, STAY, claim, job, request, template, wishes
from e2e.tests.space import Space

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        os.environ.get("DRA_E2E_OTHERS") != "1", reason="DRA_E2E_OTHERS=1 is not set: Kueue takes minutes to build"
    ),
    pytest.mark.skipif(chosen() != DEFAULT, reason="Kueue is a process of this machine on the node"),
]
QUEUE = "gpus"
CLASS, RESOURCE = "kueue.example.com", "example.com/kueue-gpu"
QUOTA = 2


def documented() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Kueue's configuration and the queue."""
    texts = [block.partition("```")[0] for block in (ROOT / "docs" / "kueue.md").read_text().split("```yaml\n")[1:]]
    configuration, queue = (list(yaml.safe_load_all(text)) for text in texts[:2])
    return configuration[0], queue


def documented_commands(space: Space) -> list[list[str]]:
    """Of kubectl, for this space's namespace."""
    text = (ROOT / "docs" / "kueue.md").read_text().partition("```sh\n")[2].partition("```")[0]
    commands = [
        shlex.split(line, comments=True)[1:] for line in text.replace("-n team-a", f"-n {space.name}").splitlines()
    ]
    assert len(commands) == 3
    return commands


@contextmanager
def queue(space: Space, resource: str) -> Iterator[None]:
    """That of the documentation, for this space and with less quota, until all Jobs in it are gone."""
    _, objects = documented()
    (quota,) = (item for item in objects if item["kind"] == "ClusterQueue")
    (group,) = quota["spec"]["resourceGroups"]
    *others, gpus = group["flavors"][0]["resources"]
    assert gpus == {"name": "whole-gpus", "nominalQuota": 8}
    group["coveredResources"][-1] = resource
    group["flavors"][0]["resources"] = [*others, {"name": resource, "nominalQuota": QUOTA}]
    (local,) = (item for item in objects if item["kind"] == "LocalQueue")
    local["metadata"]["namespace"] = space.name
    space.on.apply(*objects)
    try:
        yield
    finally:
        # Kueue has finalizers on what it makes, and takes them off while it runs.
        for kinds in ("jobs", "workloads,localqueues"):
            space.on.kubectl("delete", kinds, "--all", "-n", space.name, "--timeout=60s")
        space.on.kubectl("delete", "clusterqueues,resourceflavors", "--all", "--timeout=60s")


def queued(made: dict[str, Any]) -> dict[str, Any]:
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    return made


def legacy(name: str, pods: int, *fields: str) -> dict[str, Any]:
    """A Job whose pods ask for an extended resource, in these fields of `resources`."""
    made = job(name, "unused", pods, STAY)
    spec = made["spec"]["template"]["spec"]
    del spec["resourceClaims"]
    spec["containers"][0]["resources"] = {field: {RESOURCE: 1} for field in fields or ("limits",)}
    assert spec["containers"][0]["image"] == TEST_IMAGE
    return queued(made)


def conditions(space: Space, name: str) -> Mapping[str, Mapping[str, str]]:
    """Of the Workload that Kueue made for the Job."""
    listed = space.on.get(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space.name}/workloads") or {"items": []}
    for item in listed["items"]:
        if item["metadata"]["ownerReferences"][0]["name"] == name:
            return {one["type"]: one for one in item.get("status", {}).get("conditions", [])}
    return {}


def waits(space: Space, name: str, words: str) -> None:
    def ask() -> bool:
        reserved = conditions(space, name).get("QuotaReserved", {})
        return reserved.get("status") == "False" and words in reserved["message"]

    until(f"Job {name} to wait with {words!r}, but {conditions(space, name)}", ask, 30)
    assert running(space, name) == 0
    made = space.on.get(f"/apis/batch/v1/namespaces/{space.name}/jobs/{name}") or {}
    assert made["spec"]["suspend"] is True


def running(space: Space, name: str) -> int:
    return sum(item["status"].get("phase") == "Running" for item in space.pods(f"job-name={name}"))


def uses(space: Space, expected: Mapping[str, int]) -> None:
    """Waits until the queue counts this, by resource."""

    def counted() -> dict[str, int]:
        found = space.on.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team-a") or {}
        flavors = found.get("status", {}).get("flavorsReservation") or []
        return {
            one["name"]: int(one["total"])
            for flavor in flavors
            for one in flavor["resources"]
            if one.get("total", "0") != "0"
        }

    until(f"the queue to count {expected}", lambda: counted() == expected, 30)


@pytest.fixture(scope="module")
def kueue(installation: Installation) -> Iterator[Kueue]:
    made = Kueue(installation, "node-a")
    try:
        made.install(documented()[0])
        yield made
    finally:
        made.remove()


def test_jobs_wait_for_quota_and_run_when_there_is_some(space: Space, kueue: Kueue) -> None:
    with queue(space, "whole-gpus"):
        space.apply(template("gpu"), queued(job("first", "gpu", 2, STAY)))
        until("the pods of the first Job", lambda: running(space, "first") == 2, 60)
        uses(space, {"whole-gpus": 2})
        space.apply(queued(job("second", "gpu", 1, STAY)))
        # There are twelve GPUs more.
        waits(space, "second", "insufficient unused quota for whole-gpus in flavor default, 1 more needed")
        looked = "".join(space.on.kubectl(*command) for command in documented_commands(space))
        assert "insufficient unused quota for whole-gpus in flavor default, 1 more needed" in looked
        assert '"name":"whole-gpus","total":"2"' in looked
        space.delete("job", "first")
        until("the pod of the second Job", lambda: running(space, "second") == 1, 60)
        uses(space, {"whole-gpus": 1})


def test_claims_that_kueue_cannot_count_and_selectors_that_it_looks_into(space: Space, kueue: Kueue) -> None:
    refused = {
        "everything": "AllocationMode 'All' is not supported",
        "admin": "AdminAccess is not supported",
        "either": "FirstAvailable device selection is not supported",
        "too-picky": "insufficient matching devices for CEL selector",
        "unmapped": f"DeviceClass {CLASS} is not mapped",
    }
    other = {"name": "gpu", "exactly": {"deviceClassName": CLASS}}
    with queue(space, "whole-gpus"):
        space.apply(
            template("everything", request(everything=True)),
            template("admin", request(admin=True)),
            template("either", wishes("gpu", request("large", sub=True), request("small", sub=True))),
            template("too-picky", request("gpu", L40S.replace("L40S", "L4"))),
            template("unmapped", other),
            template("picky", request("gpu", L40S)),
            claim("by-hand"),
        )
        named = queued(job("named", "unused", 1, STAY))
        named["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "unused", "resourceClaimName": "by-hand"}]
        space.apply(named, *(queued(job(name, name, 1, STAY)) for name in (*refused, "picky")))
        until("the Job with a selector", lambda: running(space, "picky") == 1, 60)
        for name, words in refused.items():
            waits(space, name, words)
        waits(space, "named", "does not support use of resource claims")
        space.apply(legacy("legacy", 1, "limits", "requests"))
        waits(space, "legacy", f"resource {RESOURCE} unavailable in ClusterQueue")
        uses(space, {"whole-gpus": 1})


@pytest.fixture
def class_of_an_extended_resource(space: Space) -> Iterator[None]:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {"extendedResourceName": RESOURCE, "selectors": [selector]}
    space.on.apply(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}
    )
    yield
    space.on.delete("deviceclass", CLASS)


@pytest.mark.usefixtures("class_of_an_extended_resource")
@pytest.mark.parametrize("gate", [False, True])
def test_extended_resources(space: Space, kueue: Kueue, gate: bool) -> None:
    kueue.start({**documented()[0], "featureGates": {"KueueDRAIntegrationExtendedResource": gate}})
    with queue(space, RESOURCE):
        space.apply(legacy("first", 2))
        until("the pods of the first Job", lambda: running(space, "first") == 2, 60)
        uses(space, {RESOURCE: 2})
        space.apply(legacy("second", 1))
        waits(space, "second", "insufficient unused quota")
        space.delete("job", "first")
        until("the pod of the second Job", lambda: running(space, "second") == 1, 60)
        uses(space, {RESOURCE: 1})


@pytest.mark.usefixtures("class_of_an_extended_resource")
def test_one_quota_for_both_ways_to_ask(space: Space, kueue: Kueue) -> None:
    configuration = documented()[0]
    (mapping,) = configuration["resources"]["deviceClassMappings"]
    mapping["deviceClassNames"].append(CLASS)
    kueue.start({**configuration, "featureGates": {"KueueDRAIntegrationExtendedResource": True}})
    with queue(space, "whole-gpus"):
        space.apply(template("gpu"), queued(job("claims", "gpu", 1, STAY)))
        until("the Job with a claim", lambda: running(space, "claims") == 1, 60)
        # Kueue 0.18 looks for the class before it takes limits for requests.
        space.apply(legacy("limits-only", 1))
        waits(space, "limits-only", f"resource {RESOURCE} unavailable in ClusterQueue")
        space.apply(legacy("both", 1, "limits", "requests"))
        until("the Job with an extended resource", lambda: running(space, "both") == 1, 60)
        uses(space, {"whole-gpus": 2})
        space.apply(legacy("one-more", 1, "limits", "requests"))
        waits(space, "one-more", "insufficient unused quota for whole-gpus")
