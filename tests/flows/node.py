"""One simulated node in a directory: real ledger, CDI files, simulated GPUs below pynvml, a real (stub) API server."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from dra_driver.hardware.sim.simulation import SimulatedMachine
from dra_driver.model.claim import ClaimRef
from tests.kube.stub_api import StubApi

NODE = "node-1"
DRIVER = "gpu.nvidia.com"
CLAIMS = "resource.k8s.io/resourceclaims"
SLICES = "resource.k8s.io/resourceslices"
GPU_0, GPU_1 = "gpu-0000-3b-00-0", "gpu-0000-86-00-0"
_uids = itertools.count(1)


class FlowNode:
    """`settings` start an agent of this node, or build its parts in a process of the test's own. `simulation` is the
    directory of a machine that several nodes of a test may use, where none of them changes it."""

    def __init__(self, directory: Path, api: StubApi, simulation: Path | None = None) -> None:
        self.directory = directory
        self.api = api
        for folder in ("kubelet/plugins", "kubelet/plugins_registry"):
            (directory / folder).mkdir(parents=True)
        self.settings = {
            "node_name": NODE,
            "machine": "t4",
            "simulation_dir": str(simulation or directory / "simulation"),
            "kubeconfig": str(api.kubeconfig(directory)),
            "kubelet_dir": str(directory / "kubelet"),
            "cdi_dir": str(directory / "cdi"),
            "run_dir": str(directory / "run"),
            "rescan_s": "1",
            "keeper_s": "0.05",
            "handover_s": "0",
        }

    @property
    def machine(self) -> SimulatedMachine:
        return SimulatedMachine.create(self.settings["simulation_dir"], self.settings["machine"], seed=NODE)

    def claim(
        self,
        *devices: str,
        uid: str = "",
        name: str = "",
        admin: bool = False,
        pool: str = NODE,
        configs: list[dict[str, Any]] | None = None,
        requests: list[str] | None = None,
    ) -> ClaimRef:
        """An allocated claim on the API server; each request is named after its position, unless `requests` names it."""
        number = next(_uids)
        ref = ClaimRef(uid or f"00000000-0000-4000-8000-{number:012d}", "default", name or f"claim-{number}")
        results: list[dict[str, Any]] = [
            {"request": request, "driver": DRIVER, "pool": pool, "device": device}
            for device, request in zip(devices, requests or [f"r{n}" for n in range(len(devices))], strict=True)
        ]
        for result in results:
            if admin:
                result["adminAccess"] = True
        # An allocation of another driver in every claim: who forgets to filter fails every test.
        results.append({"request": "nic", "driver": "net.example.com", "pool": "other", "device": "eth0"})
        allocation: dict[str, Any] = {"results": results}
        if configs is not None:
            allocation["config"] = configs
        self.put_claim(ref, {"allocation": {"devices": allocation}})
        return ref

    def put_claim(self, ref: ClaimRef, status: dict[str, Any]) -> None:
        self.api.put(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
                "spec": {},
                "status": status,
            },
        )

    # What lies on the node, by the files alone ------------------------------------------------------------------

    def record_path(self, ref: ClaimRef) -> Path:
        return self.directory / f"run/ledger/claims/{ref.uid}.json"

    def spec_path(self, ref: ClaimRef) -> Path:
        return self.directory / f"cdi/k8s.{DRIVER}-claim_{ref.uid}.json"

    def record(self, ref: ClaimRef) -> dict[str, Any] | None:
        """The payload of the claim's record."""
        path = self.record_path(ref)
        found: dict[str, Any] | None = json.loads(path.read_text().partition("\n")[2]) if path.exists() else None
        return found

    def spec(self, ref: ClaimRef) -> dict[str, Any] | None:
        path = self.spec_path(ref)
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def records(self) -> list[str]:
        names = _names(self.directory / "run/ledger/claims")
        return [name.removesuffix(".json") for name in names if not name.startswith(".")]

    def holders(self) -> dict[str, list[str]]:
        base = self.directory / "run/ledger/holders"
        return {device: uids for device in _names(base) if (uids := _names(base / device))}

    def specs(self) -> list[str]:
        return [name for name in _names(self.directory / "cdi") if name.endswith(".json")]

    def litter(self) -> list[str]:
        """Temporary files anywhere."""
        return [str(path) for path in self.directory.rglob("*.tmp") if "simulation" not in path.parts]

    def wholly_prepared(self, ref: ClaimRef, *holding: str) -> bool:
        """Record ready, spec whole and for its devices, and exactly these devices on the index as held."""
        record, spec = self.record(ref), self.spec(ref)
        return (
            record is not None
            and record["phase"] == "ready"
            and spec is not None
            and {device["name"] for device in spec["devices"]}
            == {device["cdiIDs"][0].partition("=")[2] for device in record["devices"]}
            and {device for device, uids in self.holders().items() if ref.uid in uids} == set(holding)
        )

    def nothing_left_of(self, ref: ClaimRef) -> bool:
        left = [path for path in self.directory.rglob(f"*{ref.uid}*") if ".settled" not in path.name]
        return not left

    def nothing_left(self) -> bool:
        return not (self.records() or self.specs() or self.holders() or self.litter())

    # What is on the API server ----------------------------------------------------------------------------------

    def published(self) -> dict[str, list[str]]:
        """Device -> its taints as `key=value:effect`."""
        return {
            device["name"]: [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in device.get("taints", [])]
            for item in self.api.list(SLICES)
            for device in item["spec"].get("devices", [])
        }

    def events(self, ref: ClaimRef, reason: str = "") -> list[str]:
        """Messages of the Events on this claim."""
        return [
            event["message"]
            for event in self.api.list("events")
            if event["involvedObject"]["uid"] == ref.uid and reason in ("", event["reason"])
        ]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
