"""A node moves over from a device plugin by the very commands that `dra-driver migrate` prints; a Deployment stays as it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.choice import DEFAULT, chosen
from e2e.installation import ROOT, TEST_IMAGE, until
from e2e.objects import STAY
from e2e.tests.space import Space
from e2e.tests.test_device_plugin import NODE, RESOURCE, device_plugin, offered

pytestmark = [
    pytest.mark.once,
    pytest.mark.gate(DRAExtendedResource=True),
    pytest.mark.skipif(chosen() != DEFAULT, reason="the device plugin is a process of this machine on the node"),
]
PLUGIN = "nvidia-device-plugin"
CLAIMS = "gpu.nvidia.com/claims"


def daemonset() -> dict[str, Any]:
    """Stands for the plugin, which runs as a process here: where its pod is not, the process ends."""
    container = {"name": "main", "image": TEST_IMAGE, "command": ["sh", "-c", STAY]}
    return labelled("DaemonSet", PLUGIN, container, {})


def deployment() -> dict[str, Any]:
    """As it was before DRA. What is visible is told by the plugin, or by nvidia-smi, which the plugin here does not bring."""
    command = f'if [ -n "$NVIDIA_VISIBLE_DEVICES" ] && [ $NVIDIA_VISIBLE_DEVICES != void ]; then echo plugin; else nvidia-smi -L; fi; {STAY}'
    limits = {"limits": {RESOURCE: 1}}
    container = {"name": "main", "image": TEST_IMAGE, "command": ["sh", "-c", command], "resources": limits}
    return labelled("Deployment", "classic", container, {"replicas": 1})


def labelled(kind: str, name: str, container: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": NODE},
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def migrate(space: Space) -> subprocess.CompletedProcess[str]:
    kubeconfig = str(space.on.cluster.kubeconfig)
    argv = [sys.executable, "-m", "dra_driver.cli.main", "migrate", NODE, "--kubeconfig", kubeconfig]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    print(done.stdout, done.stderr)
    return done


def one_pod(space: Space) -> dict[str, Any] | None:
    """The Deployment's, when it runs and there is no other."""
    found = space.pods("app=classic")
    return found[0] if len(found) == 1 and found[0]["status"].get("phase") == "Running" else None


@pytest.fixture
def as_it_was(space: Space) -> Iterator[None]:
    """Another node offers GPUs as well, by its status alone, so that the plugin is not to be deleted."""
    there = ["patch", "node", "node-a", "--subresource=status", "--type=json"]
    path = f"/status/capacity/{RESOURCE.replace('/', '~1')}"
    space.on.kubectl(*there, f'-p=[{{"op":"add","path":"{path}","value":"1"}}]')
    until("node-a to offer it", lambda: offered(space, "node-a") == 1, 60)
    yield
    space.on.kubectl(*there, f'-p=[{{"op":"remove","path":"{path}"}}]')
    until("node-a to offer nothing", lambda: offered(space, "node-a") == 0, 60)
    space.on.kubectl("uncordon", NODE)
    space.on.kubectl("label", "node", NODE, f"{CLAIMS}-")
    space.on.kubectl(
        "patch", "deviceclass", "gpu.nvidia.com", "--type=merge", '-p={"spec":{"extendedResourceName":null}}'
    )


@pytest.mark.usefixtures("as_it_was")
def test_every_command_that_is_printed_works_and_the_deployment_goes_on_with_claims(space: Space) -> None:
    uuids = [device["attributes"]["uuid"]["string"] for device in space.on.devices(NODE)]
    with device_plugin(space, uuids) as process:
        space.apply(daemonset(), deployment())
        before = until("the pod", lambda: one_pod(space), 60)
        until("the plugin's word", lambda: "plugin" in space.on.logs(before["metadata"]["name"], None, space.name), 30)
        said = migrate(space)
        assert said.returncode == 0
        assert f"{RESOURCE}={len(uuids)}" in said.stdout
        assert "step 1 gives it to DeviceClass gpu.nvidia.com" in said.stdout
        commands = [line.strip() for line in said.stdout.splitlines() if line.startswith("     kubectl ")]
        assert [command.split()[1] for command in commands] == [
            *("patch", "cordon", "delete", "label", "patch", "wait", "uncordon"),
        ]
        for command in commands:
            run(space, command)
            if command.startswith("kubectl patch daemonset"):
                until("the plugin's pod to go", lambda: not space.pods(f"app={PLUGIN}"), 60)
                process.stop()
        assert offered(space) == 0
        after = until("the pod again", lambda: one_pod(space), 90)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert len(space.gpus(after["metadata"]["name"])) == 1
        said = migrate(space)
        assert said.returncode == 0
        assert "These nodes are left to claims: no device plugin offers their GPUs." in said.stdout


def run(space: Space, command: str) -> None:
    tool = f"{space.on.cluster.kubectl} --kubeconfig={space.on.cluster.kubeconfig}"
    done = subprocess.run(
        command.replace("kubectl", tool, 1), shell=True, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
