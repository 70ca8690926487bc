"""Choosing GPUs: by attribute, by number, together, or the best of a list of wishes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from e2e.objects import A100, H100, L40S, claim, job, matching, pod, request, template, wishes
from e2e.tests.space import Space

GPU = 'device.attributes["gpu.nvidia.com"]'


def test_a_pod_gets_one_whole_gpu_and_sees_nothing_else(space: Space) -> None:
    space.apply(template("gpu"), pod("one", templates=["gpu"]))
    space.running("one")
    assert len(space.gpus("one")) == 1
    assert space.gpus("one") == space.allocated_uuids("one")


@pytest.mark.parametrize(
    ("selectors", "node"),
    [
        ([H100], "node-a"),
        ([f'{GPU}.architecture == "Ada Lovelace"'], "node-b"),
        ([f'{GPU}.cudaComputeCapability.compareTo(semver("9.0.0")) >= 0'], "node-a"),
        ([f'{GPU}.driverVersion.compareTo(semver("550.0.0")) > 0', L40S], "node-b"),
        (
            ['device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("70Gi")) > 0', f"{GPU}.migCapable", A100],
            "node-b",
        ),
        (['device.attributes["resource.kubernetes.io"].numaNode == 1', H100], "node-a"),
        ([f'{GPU}.migProfiles.contains("7g.80gb")', H100], "node-a"),
    ],
    ids=["product", "architecture", "compute-capability", "driver-version", "memory", "numa-node", "mig-profiles"],
)
def test_a_gpu_is_chosen_by_what_it_is(space: Space, selectors: Sequence[str], node: str) -> None:
    space.apply(template("gpu", request("gpu", *selectors)), pod("chosen", templates=["gpu"]))
    assert space.running("chosen")["spec"]["nodeName"] == node
    assert space.gpus("chosen") == space.allocated_uuids("chosen")


def test_eight_gpus_by_count(space: Space) -> None:
    space.apply(template("gpus", request("gpus", H100, count=8)), pod("eight", templates=["gpus"]))
    space.running("eight")
    assert len(space.gpus("eight")) == 8
    assert space.gpus("eight") == space.allocated_uuids("eight")


def test_all_gpus_of_a_node(space: Space) -> None:
    space.apply(template("gpus", request("gpus", everything=True)), pod("all", templates=["gpus"], node="node-b"))
    space.running("all")
    assert len(space.gpus("all")) == 6


@pytest.mark.parametrize(
    "attribute",
    ["resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot", "gpu.nvidia.com/productName"],
)
def test_gpus_that_agree_in_an_attribute(space: Space, attribute: str) -> None:
    template_of_pair = template("pair", request("gpus", count=2), constraints=[matching(attribute)])
    space.apply(template_of_pair, pod("pair", templates=["pair"], node="node-b"))
    space.running("pair")
    domain, _, name = attribute.partition("/")
    key = attribute if domain != "gpu.nvidia.com" else name
    published = {device["name"]: device["attributes"] for device in space.on.devices("node-b")}
    values = [str(published[device][key]) for device in space.allocated("pair")]
    assert len(values) == 2
    assert len(set(values)) == 1


def test_gpus_under_one_pcie_root_stay_pending_where_every_gpu_has_its_own(space: Space) -> None:
    """On this DGX each GPU hangs on a root of its own: the scheduler must say no instead of giving any two."""
    constraint = matching("resource.kubernetes.io/pcieRoot")
    space.apply(
        template("pair", request("gpus", H100, count=2), constraints=[constraint]), pod("pair", templates=["pair"])
    )
    space.pending("pair", "cannot allocate all claims")


def test_the_second_wish_is_taken_when_the_first_cannot_be_had(space: Space) -> None:
    """Eight H100 are taken, so H100 -> L40S falls back; the sub-request's name is not shown to the container."""
    space.apply(template("all-h100", request("gpus", H100, count=8)), pod("greedy", templates=["all-h100"]))
    space.running("greedy")
    wish = wishes("gpu", request("h100", H100, sub=True), request("l40s", L40S, sub=True))
    space.apply(template("wish", wish), pod("modest", templates=["wish"]))
    assert space.running("modest")["spec"]["nodeName"] == "node-b"
    (used,) = space.on.claims_of(space.on.pod("modest", space.name) or {})
    assert used["status"]["allocation"]["devices"]["results"][0]["request"] == "gpu/l40s"
    assert space.gpus("modest") == space.allocated_uuids("modest")


def test_a_claim_that_nobody_can_satisfy_waits_until_a_gpu_is_free(space: Space) -> None:
    space.apply(template("all-h100", request("gpus", H100, count=8)), pod("first", templates=["all-h100"]))
    space.running("first")
    space.apply(template("one-h100", request("gpu", H100)), pod("second", templates=["one-h100"]))
    space.pending("second", "cannot allocate all claims")
    space.delete("pod", "first")
    space.running("second")
    assert len(space.gpus("second")) == 1


@pytest.mark.once
def test_a_job_with_more_pods_than_gpus_runs_them_all_one_gpu_each(space: Space) -> None:
    space.apply(template("gpu"), job("sweep", "gpu", 20, "nvidia-smi -L"))
    space.on.kubectl("wait", "job/sweep", "-n", space.name, "--for=condition=Complete", "--timeout=150s")
    outputs = space.on.kubectl("logs", "-l", "job-name=sweep", "-n", space.name, "--tail=-1", "--max-log-requests=20")
    assert len([line for line in outputs.splitlines() if line.startswith("GPU 0: ")]) == 20
    assert "GPU 1: " not in outputs


def test_two_claims_and_two_requests_in_one_pod_reach_the_right_containers(space: Space) -> None:
    space.apply(
        template("two", request("big", A100), request("small", L40S)),
        claim("third", request("gpu", L40S)),
        pod(
            "pod",
            templates=["two"],
            claims=["third"],
            containers={
                "big": [{"name": "two", "request": "big"}],
                "small": [{"name": "two", "request": "small"}],
                "rest": [{"name": "third"}, {"name": "two", "request": "small"}],
            },
        ),
    )
    space.running("pod")
    big, small, rest = (space.gpus("pod", container) for container in ("big", "small", "rest"))
    assert (len(big), len(small), len(rest)) == (1, 1, 2)
    assert small < rest
    assert not big & rest
    assert big | rest == space.allocated_uuids("pod")
