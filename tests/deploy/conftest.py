"""The chart, rendered by the real helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm.schema import CHART
from e2e.cluster.build import build
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import CHART as HELM

Objects = dict[tuple[str, str], dict[str, Any]]


class Refused(Exception):
    """What helm said."""


@pytest.fixture(scope="session")
def helm() -> Path:
    return build(HELM, present_go() or install_go())["helm"]


@pytest.fixture(scope="session")
def render(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Objects]:
    """Renders the chart for release `gpu-dra-driver` in namespace `dra-driver`; objects by kind and name."""

    def rendered(values: object = None, *arguments: str, release: str = "gpu-dra-driver") -> Objects:
        file = tmp_path_factory.mktemp("values") / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        command = [helm, "template", release, CHART, "--namespace", "dra-driver", "--values", file, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(done.stderr)
        objects = [item for item in yaml.safe_load_all(done.stdout) if item]
        by_name = {(item["kind"], item["metadata"]["name"]): item for item in objects}
        assert len(by_name) == len(objects)
        return by_name

    return rendered


def agent_pod(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = objects["DaemonSet", "gpu-dra-driver-agent"]["spec"]["template"]["spec"]
    return pod


def agent(objects: Objects) -> dict[str, Any]:
    container: dict[str, Any] = agent_pod(objects)["containers"][0]
    return container


def settings_file(objects: Objects) -> str:
    return str(objects["ConfigMap", "gpu-dra-driver-agent"]["data"]["settings.yaml"])


def manifests(name: str) -> Sequence[dict[str, Any]]:
    return [item for item in yaml.safe_load_all((CHART / "manifests" / f"{name}.yaml").read_text()) if item]
