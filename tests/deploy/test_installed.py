"""On request only (`DRA_E2E_LIVE=1`, root, about 90 s): the chart's life on a cluster, in the order in which a person does it.

On kind, where there is Docker, with the image of the Dockerfile; on the cluster of processes with one made without Docker, of
the parts that the Dockerfile takes (e2e/driver_image.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.helm.schema import CHART
from e2e.choice import CHOICES
from e2e.cluster import Options
from e2e.driver_image import driver_image
from e2e.image import build_image
from e2e.installation import until
from e2e.kind import docker
from e2e.kind.cluster import KindCluster
from tests.deploy.installed import AGENT, NAMESPACE, RELEASE, WEBHOOK, Installed, Traffic, pod

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster may have to be built
]
IMAGE = "dra-driver-e2e:chart"
ON_NODES = (
    "/run/gpu.nvidia.com",
    "/var/run/cdi",
    "/var/lib/gpu.nvidia.com",
    "/var/lib/kubelet/plugins",
    "/var/lib/kubelet/plugins_registry",
)


@pytest.fixture(scope="module", params=CHOICES)
def installed(request: pytest.FixtureRequest, helm: Path) -> Iterator[Installed]:
    chosen = os.environ.get("E2E_CLUSTER", request.param)
    if chosen != request.param:
        pytest.skip(f"E2E_CLUSTER={chosen} is set")
    if request.param == "kind" and not (docker.machines_own() or docker.wanted_private()):
        pytest.skip(str(docker.none_here()))
    cluster = CHOICES[request.param].cluster(Options(name="chart", nodes=("node-a", "node-b")))
    cluster.down()
    cluster.up()
    try:
        if isinstance(cluster, KindCluster):
            archive = cluster.directory / "images" / "driver.tar"
            image = build_image(cluster.docker, archive)
        else:
            archive, image = driver_image(IMAGE), IMAGE
        cluster.load(archive)
        yield Installed(cluster, helm, image)
    finally:
        cluster.down()


def test_install_is_enough_to_get_gpus(installed: Installed) -> None:
    notes = installed.install()
    assert f"kubectl -n {NAMESPACE} rollout status daemonset/{AGENT}" in notes
    assert {node: len(installed.devices(node)) for node in installed.cluster.nodes} == {"node-a": 8, "node-b": 8}
    installed.apply(pod("unchanged", gpus=2))
    installed.wait_for_pod("unchanged")
    assert len(installed.gpus_seen("unchanged")) == 2
    installed.apply_example("one-gpu")
    installed.wait_for_pod("one-gpu")
    assert len(installed.gpus_seen("one-gpu")) == 1


def test_agents_have_one_capability_and_cannot_change_their_image(installed: Installed) -> None:
    name = installed.agent("node-a")["metadata"]["name"]
    status = _python(installed, name, "print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 1 << 27  # CAP_MKNOD
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    for path in ("/x", "/usr/x", "/host/x", "/tmp/x", "/var/lib/kubelet/x", "/etc/dra-driver/x"):
        assert "OSError 30" in _python(
            installed, name, f"f = '{path}'\ntry: open(f, 'w')\nexcept OSError as e: print('OSError', e.errno)"
        )


def _python(installed: Installed, name: str, program: str) -> str:
    return installed.execute(name, "/usr/bin/python3.11", "-BISc", program, namespace=NAMESPACE)


def test_a_token_of_an_agent_is_of_no_use_against_another_node(installed: Installed) -> None:
    token = installed.cluster.service_account_token(NAMESPACE, AGENT, "node-a")
    # With `--token` alone kubectl would still show the certificate that an administrator of kind has, which goes first.
    stolen = str(installed.cluster.write_kubeconfig(installed.cluster.directory / "stolen", token))
    theirs, own = (installed.slices(node)[0]["metadata"]["name"] for node in ("node-b", "node-a"))
    with pytest.raises(Exception, match=r"the agent of node node-a writes only ResourceSlices"):
        installed.kubectl("delete", "resourceslice", theirs, "--kubeconfig", stolen)
    installed.kubectl("delete", "resourceslice", own, "--wait=false", "--kubeconfig", stolen)
    until("the agent to publish again", lambda: len(installed.devices("node-a")) == 8, 30)
    for forbidden in (("get", "secrets", "-A"), ("delete", "pods", "--all"), ("get", "daemonsets", "-A")):
        with pytest.raises(Exception, match="Forbidden"):
            installed.kubectl(*forbidden, "--kubeconfig", stolen)


def test_wrong_configuration_is_refused_by_the_webhook(installed: Installed) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategi": "MPS"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "wrong", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}],
            }
        },
    }
    with pytest.raises(Exception, match=r"sharing\.strategi: unknown field"):
        installed.apply(claim)


def test_a_second_release_is_refused_unless_it_is_another_driver(installed: Installed) -> None:
    refused = installed.helm("install", "second", str(CHART), check=False)
    assert refused.returncode != 0
    assert f"DeviceClass gpu.nvidia.com belongs to Helm release {NAMESPACE}/{RELEASE}" in refused.stderr
    second = {"driverName": "gpu.example.com", "webhook": {"enabled": False}}
    same = {**second, "extendedResource": {"enabled": "true"}}
    refused = installed.helm("install", "second", str(CHART), check=False, **same)
    assert "DeviceClass gpu.nvidia.com offers nvidia.com/gpu already" in refused.stderr
    installed.install("second", **second)
    drivers = {
        item["spec"]["driver"] for item in (installed.get("/apis/resource.k8s.io/v1/resourceslices") or {})["items"]
    }
    assert drivers == {"gpu.nvidia.com", "gpu.example.com"}
    installed.helm("uninstall", "second", "--wait")
    installed.has_settled()


def test_nobody_notices_an_upgrade_and_a_rollback(installed: Installed) -> None:
    traffic = Traffic(installed)
    before = installed.agent("node-a")["metadata"]["uid"]
    with traffic.flowing():
        installed.upgrade(settings={"rescan-s": 7})
        upgraded = installed.agent("node-a")["metadata"]["uid"]
        installed.rollback(1)
        until("pods to have come and gone", lambda: traffic.started >= 4 or traffic.trouble)
    assert len({before, upgraded, installed.agent("node-a")["metadata"]["uid"]}) == 3
    assert traffic.fewest_devices == installed.all_gpus
    assert installed.refused_calls() == []
    # Pods from before the upgrade are given back by an agent that did not prepare them.
    for name in ("unchanged", "one-gpu"):
        assert "GPU 0: NVIDIA H100" in installed.execute(name, "nvidia-smi", "-L")


def test_uninstall_is_refused_while_gpus_are_in_use(installed: Installed) -> None:
    refused = installed.helm("uninstall", RELEASE, "--wait", check=False)
    assert refused.returncode != 0
    said = installed.kubectl("-n", NAMESPACE, "logs", f"job/{RELEASE}-uninstall")
    assert "GPUs of gpu.nvidia.com are in use by 2 claims:" in said
    assert "(pods unchanged)" in said
    assert "GPU 0: NVIDIA H100" in installed.execute("unchanged", "nvidia-smi", "-L")
    assert len(installed.devices()) == installed.all_gpus


def test_uninstall_leaves_nothing(installed: Installed) -> None:
    for name in ("unchanged", "one-gpu"):
        installed.delete("pod", name, "default", "--grace-period=1")
    until("claims to be gone", lambda: not installed.claims(), 30)
    installed.helm("uninstall", RELEASE, "--wait")
    assert installed.get("/apis/resource.k8s.io/v1/resourceslices")["items"] == []  # type: ignore[index]
    for node in installed.cluster.nodes:
        assert {path: installed.on_node(node, path) for path in ON_NODES} == {path: [] for path in ON_NODES}
    kinds = (
        "deviceclasses,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    left = installed.kubectl("get", f"{kinds},validatingwebhookconfigurations", "-o", "name")
    assert [line for line in left.splitlines() if "dra" in line or "nvidia" in line] == []
    until("the webhook's pods to be gone", lambda: WEBHOOK not in installed.kubectl("-n", NAMESPACE, "get", "pods"), 30)
    here = installed.kubectl(
        "-n", NAMESPACE, "get", "all,configmaps,secrets,serviceaccounts,roles,rolebindings", "-o", "name"
    )
    assert sorted(here.split()) == ["configmap/kube-root-ca.crt", "serviceaccount/default"]
