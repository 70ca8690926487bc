"""The driver as manifests and one process a node: agents run from this checkout, each as its own service account."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from e2e.cluster import Cluster, ClusterError, Process
from e2e.installation import MANIFESTS, ROOT, Installation, documents, until

SERVICE_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"


class ByProcess(Installation):
    title = "one agent per node over a simulated machine, each as its own service account"
    account = "dra-driver"
    role = "dra-driver"
    has_webhook = False

    def __init__(self, cluster: Cluster, machines: Mapping[str, str], **settings: str) -> None:
        super().__init__(cluster, machines, **settings)
        self._agents: dict[str, Process] = {}

    @property
    def agents(self) -> Mapping[str, Process]:
        return self._agents

    def install(self) -> None:
        for manifest in ("rbac", "policy", "deviceclasses"):
            self.apply(*documents((MANIFESTS / f"{manifest}.yaml").read_text()))
        for node in self.machines:
            self.start_agent(node)

    def simulation(self, node: str) -> Path:
        return self.cluster.directory / "machines" / node

    def further(self, node: str) -> Sequence[str]:
        commands = []
        if ":" in (address := self.settings.get("http_address", "")):
            port = address.rpartition(":")[2]
            commands.append(
                f"curl http://{self.cluster.nodes[node].address}:{port}/metrics; the same with /readyz and /healthz"
            )
        driver = Path(sys.executable).parent / "dra-driver"
        commands.append(f"{driver} simulate {self.simulation(node)} lose 0   (and then: return 0)")
        commands.append(f"agents' logs: {' '.join(str(agent.log) for agent in self.agents.values())}")
        return commands

    def start_agent(self, node: str, *, wait: bool = True, name: str = "agent", **settings: str) -> Process:
        """With a token of the driver's service account that is bound to the node."""
        return self.start_version(ROOT, node, wait=wait, name=name, **settings)

    def start_version(
        self, source: Path, node: str, *, wait: bool = True, name: str = "agent", **settings: str
    ) -> Process:
        """The agent of another source tree; the packages are those of this one."""
        flags = {
            "node_name": node,
            "machine": self.machines[node],
            "simulation_dir": str(self.simulation(node)),
            **self.settings,
            **settings,
        }
        argv = [sys.executable, "-m", "dra_driver.cli.main", "agent"]
        for setting, value in flags.items():
            argv += ["--" + setting.replace("_", "-"), value]
        environment = self.credentials(node)
        log = self.cluster.nodes[node].logs / f"{name}.log"
        begin = log.stat().st_size if log.exists() else 0
        process = self.cluster.nodes[node].start(argv, environment, name=name, cwd=source)
        if name == "agent":
            self._agents[node] = process
        if wait:
            registered = b'"registered with the kubelet"'
            until(f"the agent of {node}", lambda: _alive(process) and registered in log.read_bytes()[begin:], 60)
            until(f"slices of {node}", lambda: self.slices(node), 30)
        return process

    def credentials(self, node: str) -> dict[str, str]:
        """Puts a token of the driver's service account, bound to the node, where a pod has it; the variables of a pod."""
        token = until("the service account", lambda: self._token(node), 30)  # the ServiceAccount may be a moment old
        secrets = self.cluster.nodes[node].path(SERVICE_ACCOUNT)
        secrets.mkdir(parents=True, exist_ok=True)
        for name, content in (("token", token), ("ca.crt", self.cluster.ca.read_text())):
            (secrets / name).write_text(content)
        api = urlsplit(self.cluster.server)
        return {"KUBERNETES_SERVICE_HOST": str(api.hostname), "KUBERNETES_SERVICE_PORT": str(api.port)}

    def _token(self, node: str) -> str | None:
        try:
            return self.cluster.service_account_token("dra-driver", "dra-driver", node)
        except ClusterError:
            return None


def _alive(process: Process) -> bool:
    if process.poll() is not None:
        raise ClusterError(f"the agent ended with status {process.poll()}: see {process.log}")
    return process.log.exists()
