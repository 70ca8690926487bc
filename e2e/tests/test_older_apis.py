"""API servers that serve only v1beta1 or only v1beta2 of resource.k8s.io, as 1.32 and 1.33 do.

No scheduler and no kubelet of today works with these. So there is only a control plane, the agent runs on this host, and the test
is in the place of both: it writes the allocation of a claim, and calls the agent through its socket.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from e2e.bench.agent import Kubelet
from e2e.cluster import Cluster, ClusterError, Options, processes
from e2e.installation import DRIVER, MANIFESTS, ROOT, View, documents, stays, until

NODE = "lonely"
DEVICES = 8


class Lonely:
    """A node that is only an object, and its agent on this host."""

    def __init__(self, cluster: Cluster, version: str, directory: Path) -> None:
        self.cluster = cluster
        self.version = version
        self.directory = directory
        self.log = directory / "agent.log"
        self.api = f"/apis/resource.k8s.io/{version}"
        self.on = View(cluster)
        for manifest in ("rbac", "policy"):
            self.on.apply(*documents((MANIFESTS / f"{manifest}.yaml").read_text()))
        cluster.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        token = until("the service account", self._token, 30)
        kubeconfig = cluster.write_kubeconfig(directory / "kubeconfig", token)
        flags = {
            "node-name": NODE,
            "machine": "dgx-h100",
            "simulation-dir": directory / "simulation",
            "kubeconfig": kubeconfig,
            "kubelet-dir": directory / "kubelet",
            "cdi-dir": directory / "cdi",
            "run-dir": directory / "run",
            "rescan-s": "1",
            "keeper-s": "0.5",
        }
        self._command = [sys.executable, "-m", "dra_driver.cli.main", "agent"]
        self._command += [f"--{name}={value}" for name, value in flags.items()]
        self._process: subprocess.Popen[bytes] | None = None
        for folder in ("plugins", "plugins_registry"):
            (directory / "kubelet" / folder).mkdir(parents=True)

    def _token(self) -> str | None:
        try:
            return self.cluster.service_account_token("dra-driver", "dra-driver", NODE)
        except ClusterError:
            return None

    def start(self) -> None:
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)
        until(f"the agent to serve, see {self.log}", lambda: b'"serving"' in self.log.read_bytes()[begin:], 30)
        until("its devices", lambda: len(self.devices()) == DEVICES, 30)

    def end(self, with_signal: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(with_signal)
            self._process.wait(30)
            self._process = None

    def kubelet(self) -> Kubelet:
        return Kubelet(self.directory / "kubelet/plugins" / DRIVER / "dra.sock")

    def slices(self) -> list[dict[str, Any]]:
        return self.on.slices(NODE, self.version)

    def devices(self) -> list[dict[str, Any]]:
        return [device for item in self.slices() for device in item["spec"].get("devices") or []]

    def names(self, folder: str) -> list[str]:
        directory = self.directory / folder
        return sorted(file.name for file in directory.iterdir()) if directory.is_dir() else []

    def allocate(self, name: str, device: str) -> ClaimRef:
        """A claim, allocated as the scheduler of that time would."""
        wish: dict[str, Any] = {"deviceClassName": DRIVER}
        request = {"name": "gpu", **wish} if self.version == "v1beta1" else {"name": "gpu", "exactly": wish}
        base = f"{self.api}/namespaces/default/resourceclaims"
        made = self.cluster.request(
            "POST",
            base,
            {
                "apiVersion": f"resource.k8s.io/{self.version}",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.cluster.request("PUT", f"{base}/{name}/status", made)
        return ClaimRef(made["metadata"]["uid"], "default", name)


@pytest.fixture(scope="module", params=["v1beta1", "v1beta2"])
def cluster_of_version(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, str]]:
    version = request.param
    made = processes(Options(name=f"e2e-{version}", nodes=(), served=(version,)))
    made.up()
    try:
        groups = made.request("GET", "/apis/resource.k8s.io")
        assert [entry["version"] for entry in groups["versions"]] == [version]
        yield made, version
    finally:
        made.down()


@pytest.fixture(scope="module")
def lonely(cluster_of_version: tuple[Cluster, str]) -> Iterator[Lonely]:
    cluster, version = cluster_of_version
    # A tmpfs, as /run of a node is; and a short path, as sockets need.
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/dev/shm") as directory:
        node = Lonely(cluster, version, Path(directory))
        node.start()
        try:
            yield node
        finally:
            node.end()


def test_slices_are_published_in_the_version_that_is_served(lonely: Lonely) -> None:
    for device in lonely.devices():
        content = device["basic"] if lonely.version == "v1beta1" else device
        assert content["attributes"]["productName"]["string"] == "NVIDIA H100 80GB HBM3"
        assert content["capacity"]["memory"]["value"]


def test_slices_deleted_or_edited_by_hand_come_back_as_they_were(lonely: Lonely) -> None:
    before = lonely.devices()
    (item,) = lonely.slices()
    lonely.cluster.request("DELETE", f"{lonely.api}/resourceslices/{item['metadata']['name']}")
    until("the slice", lambda: lonely.devices() == before, 30)
    path = f"{lonely.api}/resourceslices/{lonely.slices()[0]['metadata']['name']}"
    wrong = lonely.cluster.request("GET", path)
    wrong["spec"]["devices"] = wrong["spec"]["devices"][:3]
    lonely.cluster.request("PUT", path, wrong)
    until("the slice", lambda: lonely.devices() == before, 30)


def test_nothing_is_written_while_nothing_changes_and_not_by_a_new_agent_either(lonely: Lonely) -> None:
    writes = lonely.on.writes()
    assert writes
    stays("no slice is written", lambda: lonely.on.writes() == writes, 4)
    lonely.end()
    lonely.start()
    stays("no slice is written", lambda: lonely.on.writes() == writes, 3)


def test_a_claim_is_prepared_and_unprepared(lonely: Lonely) -> None:
    ref = lonely.allocate("simple", lonely.devices()[0]["name"])
    kubelet = lonely.kubelet()
    kubelet.prepare([ref])
    assert len(lonely.names("run/ledger/claims")) == len(lonely.names("cdi")) == 1
    kubelet.prepare([ref])
    assert len(lonely.names("run/ledger/claims")) == len(lonely.names("cdi")) == 1
    kubelet.unprepare([ref])
    kubelet.close()
    assert not lonely.names("run/ledger/claims")
    assert not lonely.names("cdi")


def test_a_prepared_claim_survives_the_agent_and_a_damaged_record(lonely: Lonely) -> None:
    ref = lonely.allocate("kept", lonely.devices()[1]["name"])
    kubelet = lonely.kubelet()
    kubelet.prepare([ref])
    (name,), (spec,) = lonely.names("run/ledger/claims"), lonely.names("cdi")
    file, record = lonely.directory / "cdi" / spec, lonely.directory / "run/ledger/claims" / name
    content = file.read_bytes()
    lonely.end(signal.SIGKILL)
    file.unlink()
    lonely.start()
    assert file.read_bytes() == content
    lonely.end(signal.SIGKILL)
    record.write_bytes(record.read_bytes()[:30])
    lonely.start()
    until("the record to be rebuilt", lambda: lonely.names("run/ledger/claims") == [name], 20)
    kubelet.prepare([ref])
    assert file.read_bytes() == content
    kubelet.unprepare([ref])
    kubelet.close()
    assert not lonely.names("cdi")


def test_a_claim_that_is_gone_is_unprepared_and_not_prepared(lonely: Lonely) -> None:
    ref = lonely.allocate("gone", lonely.devices()[2]["name"])
    kubelet = lonely.kubelet()
    kubelet.prepare([ref])
    base = f"{lonely.api}/namespaces/default/resourceclaims/gone"
    claim = lonely.cluster.request("GET", base)
    claim["status"] = {}
    lonely.cluster.request("PUT", f"{base}/status", claim)
    lonely.cluster.request("DELETE", base)
    until("the claim to go", lambda: lonely.on.get(base) is None, 20)
    kubelet.unprepare([ref])
    assert not lonely.names("run/ledger/claims")
    with pytest.raises(ClusterError, match="does not exist any more"):
        kubelet.prepare([ref])
    kubelet.close()
