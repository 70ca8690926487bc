"""What the chart installs: rights, mounts, privileges, and that each is said in one place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm.schema import CHART
from tests.deploy.conftest import Objects, agent, agent_pod, manifests, settings_file

Render = Callable[..., Objects]
MONITORED = ("--api-versions", "monitoring.coreos.com/v1")
SIMULATED = {"simulation": {"machine": "dgx-h100"}}
NAME = "gpu-dra-driver-agent"


@pytest.mark.timeout(900)  # the first that uses helm may have to build it
def test_helm_finds_nothing_to_complain_about(helm: Path) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", "-n", "dra-driver", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_rights_classes_and_policies_are_those_of_the_plain_manifests(render: Render) -> None:
    objects = render({"extendedResource": {"enabled": False}})
    (role,) = [item for item in manifests("rbac") if item["kind"] == "ClusterRole"]
    assert objects["ClusterRole", NAME]["rules"] == role["rules"]
    assert objects["ClusterRoleBinding", NAME]["subjects"] == [
        {"kind": "ServiceAccount", "name": NAME, "namespace": "dra-driver"}
    ]
    for manifest in manifests("deviceclasses"):
        assert objects["DeviceClass", manifest["metadata"]["name"]]["spec"] == manifest["spec"]
    kinds = {kind for kind, _ in objects}
    assert {item["kind"] for item in (*manifests("policy"), *manifests("webhook"))} <= kinds


def test_the_policies_speak_of_the_account_that_the_agents_have(render: Render) -> None:
    """The other driver's policy names another account than its pods have, and so never held anybody back."""
    for values, account in (({}, NAME), ({"serviceAccount": {"name": "mine"}}, "mine")):
        objects = render(values)
        assert agent_pod(objects)["serviceAccountName"] == account
        assert ("ServiceAccount", account) in objects
        policies = [item for (kind, _), item in objects.items() if kind == "ValidatingAdmissionPolicy"]
        assert len(policies) == 3
        for policy in policies:
            expected = f'request.userInfo.username == "system:serviceaccount:dra-driver:{account}"'
            assert policy["spec"]["matchConditions"][0]["expression"] == expected
        bindings = [item for (kind, _), item in objects.items() if kind == "ValidatingAdmissionPolicyBinding"]
        assert {item["spec"]["policyName"] for item in bindings} == {item["metadata"]["name"] for item in policies}


def test_simulated_gpus_need_no_privileges_but_making_device_nodes(render: Render) -> None:
    objects = render(SIMULATED)
    assert agent(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["MKNOD"]},
        "readOnlyRootFilesystem": True,
    }
    assert agent_pod(objects)["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}


def test_real_gpus_need_a_privileged_agent_or_a_runtime_that_injects_them(render: Render) -> None:
    assert agent(render())["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    objects = render({"kubeletPlugin": {"runtimeClassName": "nvidia"}})
    assert agent_pod(objects)["runtimeClassName"] == "nvidia"
    assert agent(objects)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in agent(objects)["env"]


@pytest.mark.parametrize(
    ("values", "writable"),
    [
        (SIMULATED, {"/var/lib/gpu.nvidia.com"}),
        ({}, {"/dev"}),
        ({"kubeletDir": "/var/lib/k0s/kubelet", "cdiDir": "/etc/cdi", "driverName": "gpu.example.com"}, {"/dev"}),
    ],
)
def test_of_the_host_an_agent_can_write_what_it_has_to(
    render: Render, values: Mapping[str, Any], writable: set[str]
) -> None:
    objects = render(values)
    kubelet = values.get("kubeletDir", "/var/lib/kubelet")
    mounts = {item["mountPath"]: item for item in agent(objects)["volumeMounts"]}
    assert {path for path, item in mounts.items() if not item.get("readOnly")} == {
        *(f"{kubelet}/plugins", f"{kubelet}/plugins_registry"),
        values.get("cdiDir", "/var/run/cdi"),
        f"/run/{values.get('driverName', 'gpu.nvidia.com')}",
        *writable,
    }
    neighbours = {f"{kubelet}/device-plugins", f"{kubelet}/pod-resources"}
    readable = {path for path, item in mounts.items() if item.get("readOnly")}
    assert readable == {"/host", "/etc/dra-driver", *neighbours}
    ignored = render({**values, "settings": {"device-plugin": "ignore"}})
    assert neighbours.isdisjoint(item["mountPath"] for item in agent(ignored)["volumeMounts"])
    # The runtime and the kubelet are told paths, so that both must see everything at the same place.
    volumes = {item["name"]: item.get("hostPath", {}).get("path") for item in agent_pod(objects)["volumes"]}
    for path, item in mounts.items():
        if path not in {"/host", "/etc/dra-driver"}:
            assert volumes[item["name"]] == path


def test_two_agents_overlap_in_an_update(render: Render) -> None:
    objects = render()
    assert objects["DaemonSet", NAME]["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}} in agent(objects)["env"]
    assert "hostPort" not in agent(objects)["ports"][0]
    assert "hostNetwork" not in agent_pod(objects)
    of_the_other_chart = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    objects = render({"kubeletPlugin": {"updateStrategy": of_the_other_chart}})
    assert objects["DaemonSet", NAME]["spec"]["updateStrategy"] == of_the_other_chart


def test_changed_settings_restart_the_agents(render: Render) -> None:
    def checksum(values: object) -> str:
        template = render(values)["DaemonSet", NAME]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert checksum({}) == checksum({}) != checksum({"settings": {"rescan-s": 5}})


def test_agents_may_be_asked_how_they_are(render: Render) -> None:
    container = agent(render({"kubeletPlugin": {"metrics": {"gpuHttpEndpoint": "0.0.0.0:9400"}}}))
    assert container["ports"] == [{"name": "http", "containerPort": 9400}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    container = agent(render({"kubeletPlugin": {"containers": {"gpus": {"healthcheckPort": -1}}}}))
    assert "livenessProbe" not in container
    assert "readinessProbe" not in container


def test_agents_that_are_not_to_be_asked_have_no_port(render: Render) -> None:
    metrics = {"gpuHttpEndpoint": "off"}
    objects = render({"kubeletPlugin": {"metrics": metrics, "containers": {"gpus": {"healthcheckPort": -1}}}})
    assert "ports" not in agent(objects)
    annotations = objects["DaemonSet", NAME]["spec"]["template"]["metadata"]["annotations"]
    assert not [name for name in annotations if name.startswith("prometheus.io/")]


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ({}, {"1.34.0": None, "1.35.3": None, "1.36.0": "nvidia.com/gpu", "1.37.1": "nvidia.com/gpu"}),
        ({"enabled": "true"}, {"1.34.0": "nvidia.com/gpu"}),
        ({"enabled": "false"}, {"1.37.0": None}),
        ({"name": "example.com/gpu"}, {"1.37.0": "example.com/gpu"}),
    ],
)
def test_the_extended_resource_is_offered_where_kubernetes_has_it(
    render: Render, mode: Mapping[str, object], name: Mapping[str, str | None]
) -> None:
    for version, expected in name.items():
        objects = render({"extendedResource": mode}, "--kube-version", version)
        assert objects["DeviceClass", "gpu.nvidia.com"]["spec"].get("extendedResourceName") == expected
        assert "extendedResourceName" not in objects["DeviceClass", "mig.nvidia.com"]["spec"]


def test_older_versions_of_the_api_have_no_extended_resource(render: Render) -> None:
    for version in ("v1beta1", "resource.k8s.io/v1beta2"):
        classes = render({"resourceApiVersion": version, "extendedResource": {"enabled": "true"}})
        gpu = classes["DeviceClass", "gpu.nvidia.com"]
        assert gpu["apiVersion"] == f"resource.k8s.io/{version.rpartition('/')[2]}"
        assert "extendedResourceName" not in gpu["spec"]


def test_another_driver_name_is_another_driver_altogether(render: Render) -> None:
    objects = render({"driverName": "gpu.example.com"}, release="other")
    assert {name for kind, name in objects if kind == "DeviceClass"} == {"gpu.example.com", "mig.example.com"}
    assert "gpu.nvidia.com" not in repr(objects)
    usual = render()
    assert {name for kind, name in objects if kind != "Namespace"}.isdisjoint({name for _, name in usual})


def test_gke_gets_the_quota_that_it_asks_for(render: Render) -> None:
    assert not [kind for kind, _ in render() if kind in {"ResourceQuota"}]
    gke = render({}, "--api-versions", "networking.gke.io/v1")
    (term,) = gke["ResourceQuota", "gpu-dra-driver"]["spec"]["scopeSelector"]["matchExpressions"]
    assert term["values"] == ["system-node-critical", "system-cluster-critical"]


def test_what_is_off_by_default(render: Render) -> None:
    values = {"podMonitor": {"enabled": True}, "kubeletPlugin": {"networkPolicy": {"enabled": True}}}
    objects = render(values, *MONITORED)
    extra = set(objects) - set(render())
    assert extra == {
        (kind, name) for kind in ("PodMonitor", "NetworkPolicy") for name in (NAME, "gpu-dra-driver-webhook")
    }
    for kind, name in extra:
        selector = objects[kind, name]["spec"]["selector" if kind == "PodMonitor" else "podSelector"]["matchLabels"]
        assert selector["app.kubernetes.io/component"] == name.removeprefix("gpu-dra-driver-")
        if kind == "NetworkPolicy":
            (egress,) = objects[kind, name]["spec"]["egress"]
            assert egress == {"ports": [{"port": 443}, {"port": 6443}, {"port": 16443}]}  # 16443: MicroK8s


@pytest.mark.parametrize("values", [{}, {"selectorLabelsOverride": {"app": "gpus"}}], ids=["default", "other-labels"])
def test_a_service_monitor_finds_the_services_that_find_the_pods(render: Render, values: Mapping[str, Any]) -> None:
    labels = {"release": "prometheus"}
    monitor = {"enabled": True, "interval": "10s", "labels": labels}
    metrics = {"metrics": {"gpuHttpEndpoint": ":9400"}}
    objects = render({**values, "serviceMonitor": monitor, "kubeletPlugin": metrics}, *MONITORED)
    parts = {"agent": ("DaemonSet", 9400), "webhook": ("Deployment", 8080)}
    names = {f"gpu-dra-driver-{part}-metrics": found for part, found in parts.items()}
    assert set(objects) - set(render(values)) == {
        (kind, name) for kind in ("Service", "ServiceMonitor") for name in names
    }
    services = {name: item for (kind, name), item in objects.items() if kind == "Service"}
    for name, (kind, port) in names.items():
        made = objects["ServiceMonitor", name]
        assert labels.items() <= made["metadata"]["labels"].items()
        assert made["spec"]["endpoints"] == [{"port": "http", "interval": "10s"}]
        wanted = made["spec"]["selector"]["matchLabels"].items()
        assert [name] == [found for found, item in services.items() if wanted <= item["metadata"]["labels"].items()]
        service = services[name]["spec"]
        assert service["clusterIP"] == "None"
        assert service["ports"] == [{"name": "http", "port": port, "targetPort": "http"}]
        workload = objects[kind, name.removesuffix("-metrics")]["spec"]
        assert service["selector"] == workload["selector"]["matchLabels"]
        (container,) = workload["template"]["spec"]["containers"]
        assert {"name": "http", "containerPort": port} in container["ports"]
    assert not [
        name
        for _, name in render({"serviceMonitor": monitor, "webhook": {"enabled": False}}, *MONITORED)
        if "webhook" in name
    ]


@pytest.mark.parametrize("length", [46, 47, 48, 53])
def test_names_of_services_are_names_however_long_that_of_the_release_is(render: Render, length: int) -> None:
    release = "r" * (length - 1) + "a"
    values = {"serviceMonitor": {"enabled": True}, "nameOverride": "r"}
    objects = render(values, *MONITORED, release=release)
    services = [name for kind, name in objects if kind == "Service"]
    assert len(services) == 3
    assert all(len(name) <= 63 for name in services)


@pytest.mark.parametrize("where", ["settings", "nodeSettings"])
def test_labels_of_nodes_take_a_right_or_a_directory_only_where_they_are_asked_for(render: Render, where: str) -> None:
    def values(word: str) -> dict[str, Any]:
        labels = {"node-labels": word}
        return {"settings": labels} if where == "settings" else {"nodeSettings": {"node-1": labels}}

    patch = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}
    features = "/etc/kubernetes/node-feature-discovery/features.d"
    for word, has_right, has_directory in (("off", False, False), ("file", False, True), ("node", True, False)):
        objects = render(values(word))
        assert (patch in objects["ClusterRole", NAME]["rules"]) is has_right
        mounts = {mount["mountPath"]: mount for mount in agent(objects)["volumeMounts"]}
        assert (features in mounts) is has_directory
    assert not mounts.get(features, {}).get("readOnly")


@pytest.mark.parametrize("word", ["node", "file"])
def test_labels_are_turned_off_in_two_steps_because_removing_them_takes_what_putting_them_takes(
    render: Render, word: str
) -> None:
    """As docs/from-the-device-plugin.md says."""
    before = {"settings": {"node-labels": word}}
    first = "--set=settings.node-labels=off,nodeSettings.nobody.node-labels=" + word

    def needed(objects: Objects) -> tuple[bool, bool]:
        may = any(
            "patch" in rule["verbs"] for rule in objects["ClusterRole", NAME]["rules"] if "nodes" in rule["resources"]
        )
        return may, any("features.d" in mount["mountPath"] for mount in agent(objects)["volumeMounts"])

    removing = render(before, first)
    assert needed(removing) == needed(render(before)) == (word == "node", word == "file")
    settings = yaml.safe_load(settings_file(removing))
    assert settings["node-labels"] == "off"
    assert settings["nodes"] == {"nobody": {"node-labels": word}}
    assert needed(render(before, first, "--set=nodeSettings.nobody.node-labels=off")) == (False, False)
