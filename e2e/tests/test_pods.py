"""Every way in which pods come and go: init containers, DaemonSets, Deployments, crash loops, force deletion."""

from __future__ import annotations

import pytest

from e2e.installation import until
from e2e.objects import A100, L40S, claim, daemonset, deployment, pod, request, template
from e2e.tests.space import Space


def test_an_init_container_uses_the_gpu_before_the_main_container_does(space: Space) -> None:
    space.apply(
        template("gpu"),
        claim("big", request("gpus", L40S, count=2)),
        pod(
            "pod",
            templates=["gpu"],
            claims=["big"],
            first={"check": [{"name": "gpu"}], "warm-up": [{"name": "gpu"}, {"name": "big"}]},
            containers={"main": [{"name": "gpu"}]},
            node="node-b",
        ),
    )
    space.running("pod")
    assert len(space.gpus("pod", "warm-up")) == 3
    assert space.gpus("pod", "check") == space.gpus("pod", "main")
    assert space.gpus("pod", "main") < space.gpus("pod", "warm-up") == space.allocated_uuids("pod")


def test_a_pod_uses_a_claim_that_is_allocated_already_and_a_new_one(space: Space) -> None:
    space.apply(claim("old", request("gpu", L40S)), pod("first", claims=["old"]))
    space.running("first")
    space.apply(template("new", request("gpu", A100)), pod("second", claims=["old"], templates=["new"]))
    space.running("second")
    assert space.gpus("first") < space.gpus("second") == space.allocated_uuids("second")


def test_a_claim_that_no_container_uses_is_prepared_all_the_same(space: Space) -> None:
    """So that a container may be added to the pod later (an ephemeral one), and upstream requires it."""
    space.apply(template("gpu", request("gpu", A100)))
    space.apply(
        pod("pod", templates=["gpu"], containers={"main": []}, command="ls /dev; trap exit TERM; sleep 99 & wait")
    )
    space.running("pod")
    assert len(space.records("node-b")) == 1
    assert "nvidia" not in space.on.logs("pod", namespace=space.name)


def test_a_claim_outlives_its_pods_and_its_gpu_is_given_back_in_between(space: Space) -> None:
    space.apply(claim("kept", request("gpu", A100)), pod("first", claims=["kept"]))
    space.running("first")
    space.delete("pod", "first")
    until("the claim to be free", lambda: "allocation" not in space.claim("kept").get("status", {}), 30)
    assert not space.records("node-b")
    space.apply(pod("second", claims=["kept"]))
    space.running("second")
    assert space.gpus("second") == space.allocated_uuids("second")


def test_a_claim_replaced_under_the_same_name_gets_its_own_gpu(space: Space) -> None:
    space.apply(claim("again", request("gpu", A100)), pod("first", claims=["again"]))
    space.running("first")
    space.delete("pod", "first")
    space.delete("resourceclaim", "again")
    space.apply(claim("again", request("gpu", L40S)), pod("second", claims=["again"]))
    space.running("second")
    assert space.gpus("second") == space.allocated_uuids("second")


def test_a_daemonset_with_admin_access_sees_all_gpus_of_every_node(space: Space) -> None:
    watch = template("watch", request("every", everything=True, admin=True))
    space.apply(watch, daemonset("monitor", "watch"))
    space.on.kubectl("rollout", "status", "daemonset/monitor", "-n", space.name, "--timeout=60s")
    seen = {pod["spec"]["nodeName"]: len(space.gpus(pod["metadata"]["name"])) for pod in space.pods("app=monitor")}
    assert seen == {"node-a": 8, "node-b": 6}


@pytest.mark.once
def test_a_deployment_rolls_over_while_every_gpu_is_taken(space: Space) -> None:
    space.apply(template("gpu", request("gpu", A100)), deployment("server", "gpu", 2))
    rolled = ("rollout", "status", "deployment/server", "-n", space.name, "--timeout=90s")
    space.on.kubectl(*rolled)
    before = {item["metadata"]["uid"] for item in space.pods("app=server")}
    space.on.kubectl("rollout", "restart", "deployment/server", "-n", space.name)
    space.on.kubectl(*rolled)
    until("the old pods to go", lambda: len(space.pods("app=server")) == 2, 30)
    after = space.pods("app=server")
    assert before.isdisjoint(item["metadata"]["uid"] for item in after)
    assert len(set.union(*(space.gpus(item["metadata"]["name"]) for item in after))) == 2


@pytest.mark.once
def test_a_force_deleted_pod_gives_its_gpu_back(space: Space) -> None:
    space.run("first", L40S, count=4)
    space.delete("pod", "first", "--force", "--grace-period=0")
    space.run("second", L40S, count=4)
    assert len(space.gpus("second")) == 4


@pytest.mark.once
def test_a_crash_looping_container_gets_its_gpu_at_every_start(space: Space) -> None:
    looping = pod("loop", templates=["gpu"], restart="Always", command="nvidia-smi -L && sleep 1 && exit 1")
    space.apply(template("gpu"), looping)
    space.restarted("loop")
    assert space.gpus("loop") == space.allocated_uuids("loop")


@pytest.mark.once
def test_a_pod_that_has_finished_holds_no_gpu(space: Space) -> None:
    space.apply(
        template("gpus", request("gpus", A100, count=2)), pod("done", templates=["gpus"], command="nvidia-smi -L")
    )
    space.finished("done")
    until("the record to go", lambda: not space.records("node-b"), 30)
    space.run("next", A100, count=2)
    assert len(space.gpus("next")) == 2
