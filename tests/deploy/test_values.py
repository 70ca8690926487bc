"""Values: typos are refused with their path, what cannot work with a sentence, and what moves over does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm.schema import CHART, SCHEMA, schema
from dra_driver.setting_rows import Row
from dra_driver.settings import TABLE, load
from tests.deploy.conftest import Objects, Refused, agent, agent_pod, settings_file

Render = Callable[..., Objects]
MOVED: Mapping[str, str] = yaml.safe_load((CHART / "moved.yaml").read_text())


def test_the_schema_says_what_values_settings_and_machines_are_there() -> None:
    assert json.loads(SCHEMA.read_text()) == schema(), "out of date: python -m deploy.helm.schema"


def test_every_value_has_a_comment_or_stands_under_one() -> None:
    described = schema()["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    bare = {"image", "imagePullSecrets", "serviceAccount", "fullnameOverride", "simulation", "deviceClasses"}
    assert {name for name in values if "description" not in described[name]} <= bare


@pytest.mark.parametrize(
    ("values", "path", "why"),
    [
        ({"kubletDir": "/x"}, "''", "kubletDir"),
        ({"kubeletPlugin": {"tolerances": []}}, "/kubeletPlugin", "tolerances"),
        ({"kubeletPlugin": {"containers": {"gpu": {}}}}, "/kubeletPlugin/containers", "gpu"),
        ({"webhook": {"tls": {"certmanager": {}}}}, "/webhook/tls", "certmanager"),
        ({"settings": {"rescan": 5}}, "/settings", "rescan"),
        ({"nodeSettings": {"node-a": {"machin": "t4"}}}, "/nodeSettings/node-a", "machin"),
        ({"featureGates": {"MPSsupport": True}}, "/featureGates", "MPSsupport"),
        ({"simulation": {"machine": "dgx-h1000"}}, "/simulation/machine", "dgx-h100"),
        ({"simulation": {"machines": {"node-a": "h100"}}}, "/simulation/machines/node-a", "dgx-h100"),
        ({"image": {"pullPolicy": "always"}}, "/image/pullPolicy", "IfNotPresent"),
        ({"image": {"tag": 1.0}}, "/image/tag", "string"),
        ({"webhook": {"replicas": "2"}}, "/webhook/replicas", "integer"),
        ({"driverName": "GPU.example.com"}, "/driverName", "pattern"),
        ({"settings": {"rescan-s": "soon"}}, "/settings/rescan-s", "pattern"),
    ],
)
def test_a_mistake_is_refused_with_its_path(render: Render, values: object, path: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        render(values)
    line = next(line for line in str(refused.value).splitlines() if f"at '{path.strip(chr(39))}'" in line)
    assert why in str(refused.value)[str(refused.value).index(line) :]


@pytest.mark.parametrize("path", MOVED)
def test_what_has_no_meaning_here_is_refused_with_a_sentence(render: Render, path: str) -> None:
    values: Any = {"a": 1} if path in {"controller", "kubeletPlugin.containers.init"} else True
    if path.startswith("settings."):
        values = "x"
    for name in reversed(path.split(".")):
        values = {name: values}
    with pytest.raises(Refused) as refused:
        render(values)
    assert f"- {path}: {MOVED[path]}\n" in str(refused.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"resources": {"gpus": {"enabled": False}}}, "resources.gpus.enabled: GPUs are all that this driver serves"),
        ({"resources": {"computeDomains": {"enabled": True}}}, "ComputeDomains (IMEX channels) are not served here"),
        ({"namespaceOverride": "default"}, "the namespace is `default`"),
        ({"kubeletPlugin": {"privileged": "false"}}, "an agent that is not privileged has no access to real GPUs"),
        ({"kubeletPlugin": {"kubeletPluginsDirectoryPath": "/a/b"}}, "set kubeletDir to that directory"),
        ({"kubeletPlugin": {"metrics": {"gpuHttpEndpoint": "off"}}}, "the probes need it"),
        ({"podMonitor": {"enabled": True}}, "podMonitor.enabled: this cluster has no Prometheus Operator"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled: this cluster has no Prometheus Operator"),
        (
            {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
            "podMonitor.enabled and serviceMonitor.enabled: every metric would be there twice",
        ),
        (
            {"serviceMonitor": {"enabled": True}, "kubeletPlugin": {"metrics": {"gpuHttpEndpoint": "off"}}},
            "serviceMonitor.enabled: agents show no metrics while kubeletPlugin.metrics.gpuHttpEndpoint is off",
        ),
        ({"nodeSettings": {"a": {"machine": "t4"}}}, "remove it, and set simulation.machines"),
        ({"driverName": "gpu"}, "needs a dot in it"),
        ({"webhook": {"tls": {"mode": "secret"}}}, "webhook.tls.secret: name and caBundle are needed"),
        ({"webhook": {"tls": {"mode": "cert-manager"}}}, "this cluster has no cert-manager"),
        (
            {"webhook": {"tls": {"mode": "cert-manager", "certManager": {"issuerType": "issuer"}}}},
            "webhook.tls.certManager.issuerName: is needed",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(render: Render, values: object, sentence: str) -> None:
    with pytest.raises(Refused, match=r"This cannot be installed:") as refused:
        render(values)
    assert sentence in str(refused.value)


def test_all_mistakes_are_told_at_once(render: Render) -> None:
    with pytest.raises(Refused) as refused:
        render({"controller": {"replicas": 2}, "featureGates": {"MPSSupport": True}, "namespaceOverride": "default"})
    assert str(refused.value).count("\n  - ") == 3


def test_a_release_without_the_api_is_too_old(render: Render) -> None:
    with pytest.raises(Refused, match=r"requires kubeVersion: >=1\.32"):
        render({}, "--kube-version", "1.31.0")


def test_a_values_file_of_the_existing_driver_moves_over(render: Render, tmp_path: Path) -> None:
    objects = render(
        {
            "nvidiaDriverRoot": "/run/nvidia/driver",
            "nvidiaCDIHookPath": "/usr/bin/nvidia-cdi-hook",
            "gpuResourcesEnabledOverride": True,
            "resourceApiVersion": "resource.k8s.io/v1beta1",
            "logVerbosity": "6",
            "image": {"repository": "registry.example.com/gpu", "tag": "v1", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "registry"}],
            "serviceAccount": {"create": True, "annotations": {"a": "b"}},
            "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
            "featureGates": {"TimeSlicingSettings": False, "NVMLDeviceHealthCheck": False},
            "selectorLabelsOverride": {"app": "gpus"},
            "kubeletPlugin": {
                "priorityClassName": "mine",
                "nodeSelector": {"pool": "gpus"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "podAnnotations": {"c": "d"},
                "kubeletRegistrarDirectoryPath": "/data/kubelet/plugins_registry",
                "kubeletPluginsDirectoryPath": "/data/kubelet/plugins",
                "metrics": {"enabled": True, "gpuHttpEndpoint": ":9090"},
                "containers": {
                    "gpus": {
                        "env": [{"name": "E", "value": "f"}],
                        "securityContext": {"privileged": True},
                        "resources": {"limits": {"memory": "1Gi"}},
                        "healthcheckPort": 51516,
                    }
                },
                "affinity": {"nodeAffinity": {}},
            },
            "webhook": {"enabled": True, "replicas": 1, "tls": {"mode": "own"}},
        }
    )
    pod, container = agent_pod(objects), agent(objects)
    assert container["image"] == "registry.example.com/gpu:v1"
    assert (pod["priorityClassName"], pod["nodeSelector"], pod["affinity"]) == (
        "mine",
        {"pool": "gpus"},
        {"nodeAffinity": {}},
    )
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "E", "value": "f"} in container["env"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    daemon_set = objects["DaemonSet", "gpu-dra-driver-agent"]["spec"]
    assert daemon_set["selector"]["matchLabels"] == {"app": "gpus"}
    assert daemon_set["template"]["metadata"]["labels"]["app"] == "gpus"
    assert objects["DeviceClass", "gpu.nvidia.com"]["apiVersion"] == "resource.k8s.io/v1beta1"
    settings = _loaded(objects, tmp_path)
    assert settings.driver_root == "/run/nvidia/driver"
    assert settings.cdi_hook == "/usr/bin/nvidia-cdi-hook"
    assert settings.kubelet_dir == "/data/kubelet"
    assert settings.http_address == ":9090"
    assert settings.log_level == "debug"


def _others(row: Row) -> list[str]:
    """A value that the setting takes and that is not its default, and another one."""
    try:
        row.parse("?")
        words = []
    except ValueError as error:
        words = re.findall(r"[a-z]+", str(error).partition("must be one of ")[2])
    fitting = []
    for value in (*words, "7", "8", "/x", "/y"):
        try:
            row.parse(value)
        except ValueError:
            continue
        if value != row.default:
            fitting.append(value)
    return [*fitting, row.default][:2]


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if f"settings.{row.name.replace('_', '-')}" not in MOVED],
    ids=lambda row: str(row.name),
)
def test_every_setting_reaches_the_agent(render: Render, tmp_path: Path, row: Row) -> None:
    name = row.name.replace("_", "-")
    value, of_node = _others(row)
    objects = render({"settings": {name: value}, "nodeSettings": {"node-b": {name: of_node}}})
    assert getattr(_loaded(objects, tmp_path), row.name) == row.parse(value)
    assert getattr(_loaded(objects, tmp_path, "node-b"), row.name) == row.parse(of_node)


def test_each_node_can_be_another_machine(render: Render, tmp_path: Path) -> None:
    objects = render({"simulation": {"machine": "t4", "machines": {"node-b": "dgx-h100"}}, "settings": {"rescan-s": 5}})
    of = {node: _loaded(objects, tmp_path, node) for node in ("node-a", "node-b")}
    assert [settings.machine for settings in of.values()] == ["t4", "dgx-h100"]
    assert {settings.simulation_dir for settings in of.values()} == {"/var/lib/gpu.nvidia.com/simulation"}


def _loaded(objects: Objects, tmp_path: Path, node: str = "node-a") -> Any:
    file = tmp_path / "settings.yaml"
    file.write_text(settings_file(objects))
    return load({}, {"NODE_NAME": node}, file, required=("node_name",))
