"""One claim, many users: containers, pods, and administrators who look on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from e2e.cluster import ClusterError
from e2e.installation import until
from e2e.objects import A100, claim, config, pod, request, template
from e2e.tests.space import Space


def test_two_containers_of_a_pod_share_a_gpu(space: Space) -> None:
    uses = {"train": [{"name": "gpu"}], "watch": [{"name": "gpu"}], "bystander": []}
    space.apply(template("gpu"), pod("pod", templates=["gpu"], containers=uses))
    space.running("pod")
    assert space.gpus("pod", "train") == space.gpus("pod", "watch") == space.allocated_uuids("pod")
    assert (
        space.on.execute(
            "pod", "sh", "-c", "ls /dev | grep -c nvidia || true", namespace=space.name, container="bystander"
        ).strip()
        == "0"
    )


def test_two_pods_share_a_gpu_and_the_first_to_go_takes_nothing_away(space: Space) -> None:
    space.apply(claim("shared"), pod("a", claims=["shared"]), pod("b", claims=["shared"]))
    space.running("a")
    space.running("b")
    assert space.gpus("a") == space.gpus("b")
    space.delete("pod", "a")
    assert "GPU 0: " in space.on.execute("b", "nvidia-smi", "-L", namespace=space.name)
    space.apply(pod("c", claims=["shared"]))
    space.running("c")
    assert space.gpus("c") == space.gpus("b")


def test_admin_access_sees_every_gpu_beside_a_running_workload_and_disturbs_nobody(space: Space) -> None:
    space.apply(template("gpu", request("gpu", A100)), pod("worker", templates=["gpu"]))
    space.running("worker")
    watch = template("watch", request("every", everything=True, admin=True))
    space.apply(watch, pod("monitor", templates=["watch"], node="node-b"))
    space.running("monitor")
    assert len(space.gpus("monitor")) == 6
    assert space.gpus("worker") < space.gpus("monitor")
    space.apply(template("rest", request("gpus", count=5)), pod("others", templates=["rest"], node="node-b"))
    space.running("others")
    space.delete("pod", "monitor")
    assert "GPU 0: " in space.on.execute("worker", "nvidia-smi", "-L", namespace=space.name)


def test_sharing_that_is_not_offered_yet_is_refused_with_a_reason_and_nothing_is_lost(space: Space) -> None:
    mps = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
    space.apply(template("mps", request("gpu"), configs=[config(mps)]), pod("pod", templates=["mps"]))
    reason = space.pending("pod", "asks for sharing strategy MPS")
    assert "remove `sharing` from the configuration" in reason
    said = until("an Event on the claim", lambda: space.warnings("pod-mps") or None)
    assert "PrepareRefused" in said


@pytest.mark.once
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Short"}}},
            "sharing.timeSlicingConfig.intervall: unknown field",
        ),
        ({"sharing": {"strategy": 1}}, "sharing.strategy: "),
        ({"apiVersion": "resource.nvidia.com/v9"}, "use resource.nvidia.com/v1beta1"),
    ],
    ids=["unknown-field", "wrong-type", "unknown-version"],
)
def test_a_mistake_in_the_configuration_is_told_with_its_path(
    space: Space, parameters: dict[str, Any], words: str
) -> None:
    wrong = config({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **parameters})
    objects = (template("wrong", request("gpu"), configs=[wrong]), pod("pod", templates=["wrong"]))
    if space.on.has_webhook:
        with pytest.raises(ClusterError, match=re.escape(words)):
            space.apply(*objects)
        return
    space.apply(*objects)
    space.pending("pod", words)
    said = until("an Event on the claim", lambda: space.warnings("pod-wrong"), 20)
    assert "PrepareRefused" in said
    assert words in said


@pytest.mark.once
def test_46_kib_of_configuration_are_read_and_the_last_that_fits_applies(space: Space) -> None:
    """The API allows 10 KiB an entry and 32 entries."""
    base = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    limits = {f"GPU-{number:036d}": "1Gi" for number in range(190)}
    mps = {**base, "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": limits}}}
    configs = [*(config(mps) for _ in range(5)), config(base)]
    assert len(json.dumps(configs)) > 46 * 1024
    space.apply(template("large", request("gpu", A100), configs=configs), pod("pod", templates=["large"]))
    space.running("pod")
    assert space.gpus("pod") == space.allocated_uuids("pod")


def test_a_configuration_of_another_driver_is_left_alone(space: Space) -> None:
    other = {"opaque": {"driver": "net.example.com", "parameters": {"anything": "goes"}}}
    space.apply(template("gpu", request("gpu"), configs=[other]), pod("pod", templates=["gpu"]))
    space.running("pod")
    assert len(space.gpus("pod")) == 1
