"""What is said of clusters before, while and after they are moved over."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.migration.cluster import Cluster, cluster
from dra_driver.migration.plan import obstacles, state, steps

CLASS = "gpu.nvidia.com"
ITEM = dict[str, Any]


def node(name: str, labels: dict[str, str] | None = None, **offered: int) -> ITEM:
    """`gpu=8, gpu_shared=4` are nvidia.com/gpu and nvidia.com/gpu.shared."""
    allocatable = {f"nvidia.com/{key.replace('_', '.')}": str(amount) for key, amount in offered.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", **allocatable}},
    }


def pod(name: str, on: str = "", owner: str = "ReplicaSet/x", **limits: int) -> ITEM:
    resources = {f"nvidia.com/{key.replace('_', '.').replace('..', '-')}": str(n) for key, n in limits.items()}
    kind, _, owned_by = owner.partition("/")
    owners = [{"kind": kind, "name": owned_by, "controller": True}] if owner else []
    containers = [{"name": "side"}, {"name": "main", "resources": {"limits": {"cpu": "1", **resources}}}]
    return {
        "metadata": {"namespace": "ml", "name": name, "ownerReferences": owners},
        "spec": {"containers": containers, **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending"},
    }


def daemonset(name: str, image: str, **spec: Any) -> ITEM:
    return {
        "metadata": {"namespace": "gpu", "name": name},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}], **spec}}},
        "status": {"desiredNumberScheduled": 2},
    }


def slices(on: str, devices: int = 8, driver: str = CLASS) -> ITEM:
    return {"spec": {"driver": driver, "nodeName": on, "devices": [{"name": f"d{n}"} for n in range(devices)]}}


def device_class(extended: str = "", name: str = CLASS) -> ITEM:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": extended} if extended else {}}


PLUGIN = daemonset("nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0")


def found(
    *nodes: ITEM,
    pods: list[ITEM] | None = None,
    sets: list[ITEM] | None = None,
    published: list[ITEM] | None = None,
    classes: list[ITEM] | None = None,
    release: tuple[int, int] = (1, 37),
) -> Cluster:
    return cluster(
        release,
        nodes,
        pods or [],
        [PLUGIN] if sets is None else sets,
        [device_class("nvidia.com/gpu")] if classes is None else classes,
        [slices("a"), slices("b")] if published is None else published,
        CLASS,
    )


def commands(one: Cluster, *names: str) -> list[str]:
    nodes = [node for node in one.nodes if not names or node.name in names]
    return [command for step in steps(one, nodes, CLASS) for command in step.commands]


def said(one: Cluster) -> dict[str, bool]:
    """What stands in the way -> whether it breaks pods."""
    return {obstacle.what: obstacle.breaks for obstacle in obstacles(one, one.nodes, CLASS)}


def test_who_gives_the_gpus_of_a_node_away() -> None:
    one = found(node("a", gpu=8), node("b"), node("c", gpu=2), node("cpu"), node("done", gpu=0))
    assert {node.name: state(node) for node in one.nodes} == {"a": "both", "b": "claims", "c": "device plugin"}


def test_slices_of_other_drivers_are_not_ours() -> None:
    one = found(node("a", gpu=8), published=[slices("a", driver="other.example.com")])
    assert [node.published for node in one.nodes] == [0]
    assert said(one) == {"the driver publishes nothing on a": True}


def test_nothing_is_to_be_done_for_nodes_that_are_left_to_claims() -> None:
    one = found(node("a"), node("b", gpu=0))
    assert steps(one, one.nodes, CLASS) == []


def test_the_steps_for_a_whole_cluster_end_with_the_plugin_deleted() -> None:
    one = found(node("a", gpu=8), node("b", gpu=8), pods=[pod("train", on="a", gpu=2), pod("more", on="b", gpu=1)])
    assert said(one) == {}
    assert commands(one) == [
        "kubectl cordon a b",
        "kubectl delete pod -n ml train more",
        "kubectl delete daemonset nvidia-device-plugin-daemonset -n gpu",
        "kubectl wait node/a --timeout=120s --for=jsonpath='{.status.allocatable.nvidia\\.com/gpu}'=0",
        "kubectl wait node/b --timeout=120s --for=jsonpath='{.status.allocatable.nvidia\\.com/gpu}'=0",
        "kubectl uncordon a b",
    ]


def test_one_node_of_several_is_taken_from_the_plugin_by_a_label_beside_the_affinity_that_it_has() -> None:
    terms = [{"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]}, {}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    plugin = daemonset("plugin", "k8s-device-plugin", affinity={"nodeAffinity": required})
    one = found(node("a", gpu=8), node("b", gpu=8), sets=[plugin])
    _, label, patch, *_ = commands(one, "a")
    assert label == "kubectl label node a gpu.nvidia.com/claims=true --overwrite"
    new = '{"key":"gpu.nvidia.com/claims","operator":"DoesNotExist"}'
    assert patch.startswith("kubectl patch daemonset plugin -n gpu --type=merge -p '{")
    assert f'"values":["true"]}},{new}]}},{{"matchExpressions":[{new}]}}]' in patch


def test_gpu_operators_plugin_is_taken_off_by_its_own_label() -> None:
    selector = {"nvidia.com/gpu.deploy.device-plugin": "true"}
    one = found(node("a", gpu=8), sets=[daemonset("nvidia-device-plugin-daemonset", "x", nodeSelector=selector)])
    assert "kubectl label node a nvidia.com/gpu.deploy.device-plugin=false --overwrite" in commands(one)


def test_a_plugin_that_runs_by_other_means_is_said_to() -> None:
    one = found(node("a", gpu=8), sets=[])
    assert any("runs by other means" in step.what for step in steps(one, one.nodes, CLASS))


@pytest.mark.parametrize(
    ("resource", "way_out"),
    [
        ("gpu_shared", "name the same ResourceClaim"),
        ("mig__1g_10gb", "selects profile 1g.10gb"),
        ("big", "give a DeviceClass the extendedResourceName nvidia.com/big"),
    ],
)
def test_pods_that_ask_for_what_claims_do_not_have_break(resource: str, way_out: str) -> None:
    one = found(node("a", gpu=8), pods=[pod("p", on="a", **{resource: 1}), pod("fine", on="a", gpu=1)])
    [obstacle] = obstacles(one, one.nodes, CLASS)
    assert obstacle.breaks
    assert obstacle.what.endswith(": asked for by ml/p (ReplicaSet/x)")
    assert way_out in obstacle.way_out


def test_a_resource_that_some_class_offers_breaks_nobody() -> None:
    classes = [device_class("nvidia.com/gpu"), device_class("nvidia.com/mig-1g.10gb", "mig-1g")]
    one = found(node("a", gpu=8), pods=[pod("p", on="a", mig__1g_10gb=1)], classes=classes)
    assert said(one) == {}


def test_replicas_are_told_because_the_same_manifest_gets_a_whole_gpu() -> None:
    labels = {"nvidia.com/gpu.replicas": "4"}
    what = "time-slicing or MPS: nvidia.com/gpu is a share of a GPU on a"
    assert said(found(node("a", labels, gpu=32))) == {what: False}
    assert said(found(node("a", labels, gpu=32), pods=[pod("p", on="a", gpu=1)])) == {what: True}


def test_without_a_class_for_it_nvidia_com_gpu_is_given_one_first() -> None:
    one = found(node("a", gpu=8), pods=[pod("p", on="a", gpu=1)], classes=[device_class()])
    assert said(one) == {
        "no DeviceClass has extendedResourceName nvidia.com/gpu: ml/p (ReplicaSet/x) would stay pending": False
    }
    patch = """kubectl patch deviceclass gpu.nvidia.com --type=merge -p '{"spec":{"extendedResourceName":"nvidia.com/gpu"}}'"""
    assert commands(one)[0] == patch
    old = found(node("a", gpu=8), pods=[pod("p", on="a", gpu=1)], classes=[device_class()], release=(1, 33))
    assert list(said(old).values()) == [True]
    assert commands(old)[0] == "kubectl cordon a"


def test_pods_that_have_ended_or_got_claims_or_are_elsewhere_are_not_in_the_way() -> None:
    done, claims = pod("done", on="a", gpu_shared=1), pod("claims", on="a", gpu=1)
    done["status"]["phase"] = "Succeeded"
    claims["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "claims-extended-resources-x"}
    one = found(node("a", gpu=8), pods=[done, claims, pod("elsewhere", on="z", gpu_shared=1), pod("cpu", on="a")])
    assert said(one) == {}
    assert not any("delete pod" in command for command in commands(one))


def test_pods_that_wait_for_a_node_are_looked_at_and_bare_ones_are_named() -> None:
    one = found(node("a", gpu=8), pods=[pod("waits", gpu_shared=1), pod("bare", on="a", owner="", gpu=1)])
    assert said(one) == {
        "nvidia.com/gpu.shared: asked for by ml/waits (ReplicaSet/x)": True,
        "made by hand, so that nobody makes them again: ml/bare": False,
    }


def test_who_labels_nodes_is_told_from_who_plugs_devices_in_though_both_have_one_image() -> None:
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    one = found(
        node("a", gpu=8), sets=[daemonset("nvidia-device-plugin", image), daemonset("gpu-feature-discovery", image)]
    )
    assert [str(plugin) for plugin in one.plugins] == ["gpu/nvidia-device-plugin"]
    assert said(one) == {"DaemonSet gpu/gpu-feature-discovery labels nodes (nvidia.com/gpu.product, ...)": False}


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"spec": {"template": None}, "status": None}])
def test_odd_objects_do_not_stop_it(odd: ITEM) -> None:
    assert cluster((1, 37), [odd], [odd], [odd], [odd], [odd], CLASS).nodes == ()
