"""On request only (`DRA_E2E_LIVE=1`, root, 25 s): the chart asks real API servers what they serve and what is there already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.helm.schema import CHART
from e2e.cluster import Options, processes
from tests.deploy.conftest import manifests
from tests.deploy.installed import NAMESPACE, RELEASE, Installed

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),
]


@pytest.mark.parametrize(
    ("emulate", "served", "found"),
    [("1.34", ("v1beta1",), "v1beta1"), ("1.34", ("v1beta1", "v1beta2"), "v1beta2"), ("1.36", None, "v1")],
)
def test_classes_are_of_the_newest_version_that_is_served(
    helm: Path, emulate: str, served: tuple[str, ...] | None, found: str
) -> None:
    cluster = processes(Options(name="chart-old", nodes=(), emulate=emulate, served=served))
    cluster.down()
    cluster.up()
    try:
        installed = Installed(cluster, helm, "dra-driver-e2e:none")
        installed.helm("install", RELEASE, str(CHART), "--create-namespace")
        manifest = installed.helm("get", "manifest", RELEASE).stdout
        assert f"apiVersion: resource.k8s.io/{found}\nkind: DeviceClass" in manifest
        classes = installed.get(f"/apis/resource.k8s.io/{found}/deviceclasses")
        assert classes is not None
        names = {item["spec"].get("extendedResourceName", "") for item in classes["items"]}
        assert names == ({"", "nvidia.com/gpu"} if emulate == "1.36" else {""})
        installed.helm("uninstall", RELEASE, "--no-hooks")  # there is no node for the Job
        assert not (installed.get(f"/apis/resource.k8s.io/{found}/deviceclasses") or {"items": 1})["items"]
    finally:
        cluster.down()


def test_a_cluster_without_dynamic_resource_allocation_says_so(helm: Path) -> None:
    cluster = processes(Options(name="chart-old", nodes=(), emulate="1.34", served=()))
    cluster.down()
    cluster.up()
    try:
        installed = Installed(cluster, helm, "dra-driver-e2e:none")
        refused = installed.helm("install", RELEASE, str(CHART), "--create-namespace", check=False)
        assert (
            "this cluster serves no resource.k8s.io: Dynamic Resource Allocation is on from Kubernetes 1.34"
            in refused.stderr
        )
    finally:
        cluster.down()


def test_what_is_in_the_cluster_already_is_told_before_anything_is_installed(helm: Path) -> None:
    cluster = processes(Options(name="chart-old", nodes=()))
    cluster.down()
    cluster.up()
    try:
        installed = Installed(cluster, helm, "dra-driver-e2e:none")
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
        installed.apply(*manifests("deviceclasses"))
        refused = installed.helm("install", RELEASE, str(CHART), check=False).stderr
        label = f"kubectl label --overwrite namespace {NAMESPACE} pod-security.kubernetes.io/enforce=privileged"
        assert label in refused
        assert "DeviceClass gpu.nvidia.com exists and is not Helm's" in refused
        installed.kubectl(*label.removeprefix("kubectl ").split())
        installed.kubectl("delete", "deviceclass", "gpu.nvidia.com", "mig.nvidia.com")
        installed.helm("install", RELEASE, str(CHART))
    finally:
        cluster.down()
