"""Which container uses which GPU, found out as dcgm-exporter finds it out, from what the kubelet and the API server say.

Its way (internal/pkg/transformation: dra.go, kubernetes.go): List of the kubelet's pod-resources API names driver, pool and device for
each container; ResourceSlices of driver gpu.nvidia.com give type and uuid of a device, for type mig parentUUID and profile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from api.proto.pb.podresources_v1_pb2 import ListPodResourcesRequest
from api.proto.pb.podresources_v1_pb2_grpc import PodResourcesListerStub
from e2e.installation import DRIVER, TEST_IMAGE
from e2e.objects import API, STAY, claim, pod, request, template
from e2e.tests.space import Space

pytestmark = pytest.mark.once
Container = tuple[str, str]
POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"


def pod_resources(space: Space, node: str) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        short = Path(directory) / "s"  # the paths of sockets have at most 107 bytes
        short.symlink_to(space.on.cluster.nodes[node].path(POD_RESOURCES))
        with grpc.insecure_channel(f"unix:{short}") as channel:
            return PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=10)


def uuids(space: Space, version: str) -> dict[tuple[str, str], str]:
    """(pool, device) -> the UUID that metrics carry: for a MIG device that of its GPU."""
    found = {}
    for item in space.on.slices(version=version):
        for device in item["spec"].get("devices") or []:
            attributes: Mapping[str, Any] = (device.get("basic") or device)["attributes"]
            kind = attributes["type"]["string"]
            name = {"gpu": "uuid", "mig": "parentUUID"}[kind]
            found[item["spec"]["pool"]["name"], device["name"]] = attributes[name]["string"]
    return found


def mapped(space: Space, node: str, known: Mapping[tuple[str, str], str]) -> dict[Container, set[str]]:
    """(pod, container) -> UUIDs."""
    found: dict[Container, set[str]] = {}
    for one in pod_resources(space, node).pod_resources:
        if one.namespace == space.name:
            for container in one.containers:
                found[one.name, container.name] = set(_of_container(container, known))
    return found


def _of_container(container: Any, known: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for dynamic in container.dynamic_resources:
        for resource in dynamic.claim_resources:
            if resource.driver_name == DRIVER:
                assert resource.cdi_devices, "what the container got is named"
                yield known[resource.pool_name, resource.device_name]


def served(space: Space) -> list[str]:
    group = space.on.get("/apis/resource.k8s.io") or {"versions": []}
    return [entry["version"] for entry in group["versions"] if "alpha" not in entry["version"]]


def test_every_container_is_mapped_to_the_gpus_that_it_sees(space: Space) -> None:
    space.apply(
        template("two", request("gpu", count=2)),
        template("one"),
        claim("shared"),
        pod("a", templates=["two", "one"], containers={"x": [{"name": "two"}], "y": [{"name": "one"}]}, node="node-a"),
        pod("b", claims=["shared"], node="node-a"),
        pod("c", claims=["shared"], node="node-a"),
    )
    for name in ("a", "b", "c"):
        space.running(name)
    seen = {
        ("a", "x"): space.gpus("a", "x"),
        ("a", "y"): space.gpus("a", "y"),
        ("b", "main"): space.gpus("b"),
        ("c", "main"): space.gpus("c"),
    }
    assert [len(gpus) for gpus in seen.values()] == [2, 1, 1, 1]
    versions = served(space)
    assert versions
    for version in versions:
        assert mapped(space, "node-a", uuids(space, version)) == seen, version


@pytest.mark.gate(DRAExtendedResource=True)
def test_a_container_that_asks_for_an_extended_resource_is_mapped_as_well(space: Space) -> None:
    resource = f"{space.name}.example.com/gpu"
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    device_class = {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": space.name},
        "spec": {"extendedResourceName": resource, "selectors": [selector]},
    }
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        "command": ["sh", "-c", f"nvidia-smi -L; {STAY}"],
        "resources": {"limits": {resource: 2}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    space.on.apply(device_class)
    try:
        space.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "classic"}, "spec": spec})
        node = space.running("classic")["spec"]["nodeName"]
        seen = space.gpus("classic")
        assert len(seen) == 2
        assert mapped(space, node, uuids(space, "v1")) == {("classic", "main"): seen}
    finally:
        space.delete("pod", "classic")
        space.on.kubectl("delete", "deviceclass", space.name)
