"""One simulated node in a directory: real ledger, CDI files, simulated GPUs below pynvml, a real (stub) API server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from tests.kube.stub_api import StubApi

NODE = "node-1"
CLAIMS = "resource.k8s.io/resourceclaims"
GPU_0, GPU_1 = "gpu-0000-3b-00-0", "gpu-0000-86-00-0"


class FlowNode:
    """`flags` start an agent of this node, or build its parts in a process of the test's own."""

    def __init__(self, directory: Path, api: StubApi) -> None:
        self.directory = directory
        self.api = api
        self._uids = itertools.count(1)
        for folder in ("kubelet/plugins", "kubelet/plugins_registry"):
            (directory / folder).mkdir(parents=True)
        self.settings = {
            "node_name": NODE,
            "machine": "t4",
            "simulation_dir": str(directory / "simulation"),
            "kubeconfig": str(api.kubeconfig(directory)),
            "kubelet_dir": str(directory / "kubelet"),
            "cdi_dir": str(directory / "cdi"),
            "run_dir": str(directory / "run"),
        }

    def claim(self, *devices: str, uid: str = "", name: str = "", admin: bool = False, **status: Any) -> ClaimRef:
        """An allocated claim on the API server; each request is named after its position."""
        number = next(self._uids)
        ref = ClaimRef(uid or f"00000000-0000-4000-8000-{number:012d}", "default", name or f"claim-{number}")
        results: list[dict[str, Any]] = [
            {"request": f"r{position}", "driver": "gpu.nvidia.com", "pool": NODE, "device": device}
            for position, device in enumerate(devices)
        ]
        for result in results:
            if admin:
                result["adminAccess"] = True
        # An allocation of another driver in every claim: who forgets to filter fails every test.
        results.append({"request": "nic", "driver": "net.example.com", "pool": "other", "device": "eth0"})
        self.api.put(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
                "spec": {},
                "status": {"allocation": {"devices": {"results": results, **status}}},
            },
        )
        return ref

    def records(self) -> list[str]:
        return _names(self.directory / "run/ledger/claims")

    def holders(self) -> dict[str, list[str]]:
        base = self.directory / "run/ledger/holders"
        return {device: uids for device in _names(base) if (uids := _names(base / device))}

    def specs(self) -> list[str]:
        return [name for name in _names(self.directory / "cdi") if name.endswith(".json")]

    def litter(self) -> list[str]:
        """Temporary files anywhere."""
        return [str(path) for path in self.directory.rglob("*.tmp") if "simulation" not in path.parts]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "node-uid"}}
        stub.put("nodes", node)
        yield stub


@pytest.fixture
def node(tmp_path: Path, api: StubApi) -> FlowNode:
    return FlowNode(tmp_path, api)
