"""On request only (`DRA_E2E_LIVE=1`, root, about 25 s): the monitors of the chart beside the resources of the real Prometheus
Operator, read as it reads them: what they select is there, once, and shows metrics. And its network policies, which nothing
enforces on this cluster (Calico does for test_network_policies), read as whoever enforces them would: they are about these pods,
and leave open what is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Options, processes
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import PROMETHEUS_OPERATOR
from e2e.cluster.published import published
from e2e.driver_image import driver_image
from tests.deploy.installed import AGENT, NAMESPACE, RELEASE, WEBHOOK, Installed

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster may have to be built
]
IMAGE = "dra-driver-e2e:monitors"
MONITORS = ("podmonitors", "servicemonitors")
LABELS = {"release": "prometheus"}
ON = {"enabled": True, "interval": "10s", "labels": LABELS}
ONE = {"webhook": {"replicas": 1}, "kubeletPlugin": {"networkPolicy": {"enabled": True}}}
# The metrics of each part by which it is known.
SHOWN = {AGENT: "dra_driver_devices_published", WEBHOOK: "dra_driver_webhook_certificate_expires_timestamp_seconds"}


@pytest.fixture(scope="module")
def installed(helm: Path) -> Iterator[Installed]:
    cluster = processes(Options(name="monitors", nodes=("node-a",)))
    cluster.down()
    cluster.up()
    try:
        cluster.load(driver_image(IMAGE))
        made = Installed(cluster, helm, IMAGE)
        crds = published(PROMETHEUS_OPERATOR, present_go() or install_go()) / "example" / "prometheus-operator-crd"
        for name in MONITORS:
            made.kubectl("create", "-f", str(crds / f"monitoring.coreos.com_{name}.yaml"))
        made.kubectl(
            "wait", "--for=condition=Established", "crd", *(f"{name}.monitoring.coreos.com" for name in MONITORS)
        )
        yield made
    finally:
        cluster.down()


def listed(installed: Installed, path: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    selector = "%2C".join(f"{key}%3D{value}" for key, value in labels.items())
    found: list[dict[str, Any]] = (installed.get(f"{path}?labelSelector={selector}") or {})["items"]
    return [item for item in found if "deletionTimestamp" not in item["metadata"]]


def monitors(installed: Installed, kind: str) -> list[dict[str, Any]]:
    """As a Prometheus looks for them: by their labels. They say nothing of namespaces, so each selects in its own."""
    found = listed(installed, f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/{kind}", LABELS)
    assert not [item for item in found if "namespaceSelector" in item["spec"]]
    return found


def is_shown(installed: Installed, pod: str, port: int, endpoint: Mapping[str, Any]) -> bool:
    """Whether the endpoint of a monitor shows the metrics of the part that the pod belongs to."""
    assert set(endpoint) == {"port", "interval"}, "path, scheme and access are what they are by default"
    text = installed.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{port}/proxy/metrics")
    wanted = SHOWN[part_of(pod)]
    return any(line.startswith(wanted) for line in text.splitlines())


def part_of(pod: str) -> str:
    (part,) = (part for part in SHOWN if pod.startswith(f"{part}-"))
    return part


def ports_of(pod: Mapping[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for one in pod["spec"]["containers"] for port in one["ports"]}


def all_pods(installed: Installed) -> set[str]:
    found = listed(installed, f"/api/v1/namespaces/{NAMESPACE}/pods", {"app.kubernetes.io/instance": RELEASE})
    assert len(found) == 2, "an agent and a webhook"
    return {item["metadata"]["name"] for item in found}


def is_right_to_the_letter(installed: Installed) -> None:
    """No field that the API servers would drop in silence."""
    manifest = installed.helm("get", "manifest", RELEASE).stdout
    installed.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=manifest,
    )


def test_pod_monitors(installed: Installed) -> None:
    installed.install(**ONE, podMonitor=ON)
    is_right_to_the_letter(installed)
    seen: list[str] = []
    for monitor in monitors(installed, "podmonitors"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        for pod in listed(
            installed, f"/api/v1/namespaces/{NAMESPACE}/pods", monitor["spec"]["selector"]["matchLabels"]
        ):
            port = ports_of(pod)[endpoint["port"]]
            assert is_shown(installed, pod["metadata"]["name"], port, endpoint)
            seen.append(pod["metadata"]["name"])
    assert sorted(seen) == sorted(all_pods(installed))


def test_service_monitors(installed: Installed) -> None:
    installed.upgrade(**ONE, serviceMonitor=ON)
    is_right_to_the_letter(installed)
    assert not monitors(installed, "podmonitors")
    seen: list[str] = []
    for monitor in monitors(installed, "servicemonitors"):
        (endpoint,) = monitor["spec"]["endpoints"]
        (service,) = listed(
            installed, f"/api/v1/namespaces/{NAMESPACE}/services", monitor["spec"]["selector"]["matchLabels"]
        )
        for found in listed(
            installed,
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
            {"kubernetes.io/service-name": service["metadata"]["name"]},
        ):
            (port,) = (port["port"] for port in found["ports"] if port["name"] == endpoint["port"])
            for address in found["endpoints"]:
                assert is_shown(installed, address["targetRef"]["name"], port, endpoint)
                seen.append(address["targetRef"]["name"])
    assert sorted(seen) == sorted(all_pods(installed))


def test_network_policies(installed: Installed) -> None:
    found = (installed.get(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies") or {})["items"]
    policies = {item["metadata"]["name"]: item["spec"] for item in found}
    assert policies.keys() == {AGENT, WEBHOOK}
    service = installed.get("/api/v1/namespaces/default/services/kubernetes") or {}
    behind = installed.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes") or {}
    # Whether a policy sees the Service or what is behind it is left to whoever enforces it.
    needed = {port["port"] for port in (*service["spec"]["ports"], *behind["ports"])}
    assert needed == {443, 6443}, "what policies leave open beside is for other distributions"
    open_ports = {}
    for name, spec in policies.items():
        (pod,) = listed(installed, f"/api/v1/namespaces/{NAMESPACE}/pods", spec["podSelector"]["matchLabels"])
        assert part_of(pod["metadata"]["name"]) == name
        assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
        (ingress,), (egress,) = spec["ingress"], spec["egress"]
        assert ingress.keys() == egress.keys() == {"ports"}, "for whomever, and wherever to"
        assert needed <= {port["port"] for port in egress["ports"]}
        open_ports[name] = {ports_of(pod)[port["port"]] for port in ingress["ports"]}
    assert open_ports == {AGENT: {8080}, WEBHOOK: {8080, 8443}}
