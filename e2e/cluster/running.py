"""The cluster as plain processes of this machine: one machine for the control plane, one for each node.

The order of things is here; what each thing is, is told by the modules it calls.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from e2e.cluster import ClusterError, Part, access, cgroups, control_plane, images, network, parts, pki
from e2e.cluster.access import Api, wait
from e2e.cluster.build import Programs, build
from e2e.cluster.limits import check_inotify
from e2e.cluster.machine import Machine
from e2e.cluster.network import Addresses
from e2e.cluster.node import Place, RunningNode
from e2e.cluster.options import Options
from e2e.cluster.pki import Pki
from e2e.cluster.prerequisites import provide
from e2e.cluster.state import State, exclusively
from e2e.cluster.steps import say, step

CONTROL_PLANE = "control-plane"
READY_SECONDS = 90  # a busy two-core machine needs a third of it
INOTIFY_OF_THE_CONTROL_PLANE = 10  # API server 5, controller manager 5
INOTIFY_OF_A_NODE = 12  # kubelet 6, containerd 2, kube-proxy 1, and what pods need


class RunningCluster:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.name = options.name
        self.directory = options.directory
        self.kubeconfig = self.directory / "kubeconfig"
        self._pki = Pki(self.directory / "pki")
        self._state = State(self.directory)
        self._machine = Machine(CONTROL_PLANE, self.directory / CONTROL_PLANE, self._state)
        self._nodes: dict[str, RunningNode] = {}

    @property
    def ca(self) -> Path:
        return self._pki.ca

    @property
    def server(self) -> str:
        return f"https://{self._addresses.control_plane}:{control_plane.PORT['apiserver']}"

    @property
    def kubectl(self) -> Path:
        return self._programs["kubectl"]

    @property
    def nodes(self) -> Mapping[str, RunningNode]:
        """In the order of the options that the cluster was brought up with."""
        names = self._options.nodes
        if tuple(self._nodes) != names:
            self._nodes = {name: self._node(number, name, len(names)) for number, name in enumerate(names)}
        return self._nodes

    def up(self) -> None:
        programs = self._build()
        with exclusively(self._lock, f"bringing up {self.name}"):
            if self._state.exists and self._state.complete and self._all_run():
                if not self.options.same_as(self._state.options):
                    raise ClusterError(
                        f"bringing up {self.name}: it is up with other options ({self._state.options}); "
                        f"take it down first or use another name"
                    )
                say(f"{self.name} is up already")
                return
            if self._state.exists:
                say(f"{self.name} is there but not whole: clearing it away first")
            self._clear()
            nodes = len(self.options.nodes)
            check_inotify(f"bringing up {self.name}", INOTIFY_OF_THE_CONTROL_PLANE + INOTIFY_OF_A_NODE * nodes)
            try:
                self._up(programs)
            except BaseException:
                self._end()
                say(f"{self.name} did not come up; its logs are below {self.directory}")
                raise

    def down(self, *, keep_logs: bool = False) -> None:
        with exclusively(self._lock, f"taking down {self.name}"):
            self._clear(keep_logs=keep_logs)
        with self._choosing_a_subnet():
            pass  # and its lock file is gone, whoever died holding it
        if self.options.home.exists() and not any(self.options.home.iterdir()):
            self.options.home.rmdir()

    def stop(self, part: Part) -> None:
        if daemon := self._machine.daemon(part):
            daemon.kill()
        # A killed process of many threads may listen for a moment yet, and the next one would find its port taken.
        port = control_plane.PORT[part]
        wait(
            f"port {port} to be free",
            lambda: not network.listens(self._machine.pid, port),
            20,
            lambda: f"{part} was killed",
        )

    def start(self, part: Part) -> None:
        self._start(part)

    def restart(self, part: Part, *flags: str) -> None:
        self.stop(part)
        self._start(part, *flags)

    def _start(self, part: Part, *flags: str) -> None:
        options, directory = self._options, self._machine.directory
        argv = control_plane.argv(part, options, self._programs, directory, self._pki, self._addresses)
        daemon = self._machine.start_daemon(part, [*argv, *flags])

        def serves() -> bool:
            if not daemon.alive:
                raise ClusterError(f"{part} has ended")
            if part == "apiserver":
                return self._api.text("GET", control_plane.readiness(options)) == "ok"
            return network.listens(self._machine.pid, control_plane.PORT[part])

        log = self._machine.logs / f"{part}.log"
        wait(f"{part} to serve", serves, READY_SECONDS, lambda: f"{log} ends with:\n{_tail(log)}", lambda: daemon.alive)

    def parts(self) -> dict[Part, bool]:
        """Which parts of the control plane run."""
        daemons = {part: self._machine.daemon(part) for part in control_plane.parts(self._options)}
        return {part: daemon is not None and daemon.alive for part, daemon in daemons.items()}

    def token(self, identity: str) -> str:
        return self._pki.token(identity)

    def service_account_token(self, namespace: str, name: str, node: str | None = None) -> str:
        return access.service_account_token(self.request, namespace, name, node)

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        return access.write_private(path, access.kubeconfig(self.server, self.ca.read_bytes(), token, self.name))

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._api.request(method, path, body)

    def load(self, archive: Path) -> None:
        for node in self.nodes.values():
            node.load(archive)

    @property
    def _options(self) -> Options:
        """What the cluster was brought up with, whoever did it: this object may have been made knowing its name only."""
        return Options.recorded(self.name, self.options.home, self._state.options)

    @property
    def _lock(self) -> Path:
        return self.options.home / f".{self.name}.lock"

    def _choosing_a_subnet(self) -> AbstractContextManager[None]:
        return exclusively(self.options.home / ".subnets.lock", "choosing a subnet", patiently=True)

    @cached_property
    def _addresses(self) -> Addresses:
        return Addresses(self._state.subnet)

    @property
    def _api(self) -> Api:
        return Api(self.server, self.ca, self.token(pki.ADMIN))

    @cached_property
    def _programs(self) -> Programs:
        return self._state.programs

    def _node(self, number: int, name: str, nodes: int) -> RunningNode:
        place = Place(
            self.options.key,
            number,
            nodes,
            self._addresses,
            self._machine,
            self.ca,
            self.directory / "images",
            self._options.feature_gates,
            self._options.containerd17.get(name),
        )
        return RunningNode(Machine(name, self.directory / "nodes" / name, self._state), place, self._programs)

    def _build(self) -> Programs:
        old = parts.OLD_RUNTIME if self.options.containerd17 else ()
        programs = (*parts.PROGRAMS, *old) if self.options.nodes else parts.CONTROL_PLANE
        return build(programs, provide(programs, to_run=True))

    def _all_run(self) -> bool:
        return all(process.alive for process in self._state.processes().values())

    def _up(self, programs: Programs) -> None:
        with step("certificates, images, network"):
            self._prepare(programs)
        running = control_plane.parts(self.options)
        with ThreadPoolExecutor(len(self.options.nodes) + 1) as pool:
            booting = [pool.submit(node.boot) for node in self.nodes.values()]
            for part in running[:2]:
                with step(part):
                    self.start(part)
            for name, boot in zip(self.nodes, booting, strict=True):
                with step(f"containerd and images on {name}"):
                    boot.result()
        for node in self.nodes.values():
            node.serve()
        for part in running[2:]:
            with step(part):
                self.start(part)
        with step(f"nodes {', '.join(self.nodes)} Ready" if self.nodes else "namespace default"):
            logs = f"see the logs below {self.directory}"
            wait("nodes to be Ready and pods to be welcome", self._usable, READY_SECONDS, lambda: logs)
        self._state.finish()

    def _prepare(self, programs: Programs) -> None:
        names = self.options.nodes
        self.directory.mkdir(parents=True)
        with self._choosing_a_subnet():
            others = [State(file.parent) for file in self.options.home.glob("[!.]*/state.json")]
            subnet = network.free_subnet(other.subnet for other in others if other.subnet)
            self._state.create(self.options.record(), subnet, programs)
        addresses = self._addresses
        self._pki.create(self.name, (addresses.control_plane, control_plane.FIRST_SERVICE, "127.0.0.1"), names)
        self.write_kubeconfig(self.kubeconfig, self.token(pki.ADMIN))
        self._machine.directory.mkdir()
        for part, identity in (("controller-manager", pki.CONTROLLER_MANAGER), ("scheduler", pki.SCHEDULER)):
            self.write_kubeconfig(self._machine.directory / f"{part}.kubeconfig", self.token(identity))
        (self.directory / "images").mkdir()
        for name in names:
            etc = self.directory / "nodes" / name / "etc/e2e"
            etc.mkdir(parents=True)
            self.write_kubeconfig(etc / "kubelet.kubeconfig", self.token(pki.node_identity(name)))
            self.write_kubeconfig(etc / "kube-proxy.kubeconfig", self.token(pki.PROXY))
        if names:
            for image in (images.pause(programs["pause"]), images.busybox_image(), images.glibc_image()):
                image.write(self.directory / "images" / f"{image.tag.replace('/', '-').replace(':', '-')}.tar")
        pid = self._machine.start(programs["pause"])
        network.connect_control_plane(self.options.key, pid, addresses, len(names))

    def _usable(self) -> bool:
        self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        ready = [node for node in nodes if not node["spec"].get("taints") and node_ready(node)]
        return len(ready) == len(self.options.nodes)

    def _end(self) -> None:
        """End every process, and with them mounts and namespaces; remove interface and cgroups. Files stay."""
        for node in self._nodes.values():
            node.switch_off()
        for process in self._state.processes().values() if self._state.exists else ():
            process.kill()
        if shutil.which("ip"):
            network.remove(self.options.key)
        cgroups.remove(self.options.key)

    def _clear(self, *, keep_logs: bool = False) -> None:
        """Whatever state an earlier run left, nothing of it is left."""
        self._end()
        for cached in ("_addresses", "_programs"):
            self.__dict__.pop(cached, None)
        self._nodes = {}
        mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        if below := [mount for mount in mounted if Path(mount).is_relative_to(self.directory)]:
            raise ClusterError(f"removing {self.directory}: {', '.join(below)} is mounted there; unmount it first")
        if not keep_logs:
            shutil.rmtree(self.directory, ignore_errors=not self.directory.exists())
            return
        for file in [self.directory / "state.json", self.kubeconfig]:
            file.unlink(missing_ok=True)
        for path in [
            *self.directory.glob("*"),
            *self.directory.glob("nodes/*/*"),
            *self.directory.glob("control-plane/*"),
        ]:
            if path.is_dir() and path.name not in ("nodes", CONTROL_PLANE, "logs"):
                shutil.rmtree(path)


def node_ready(node: Mapping[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def _tail(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
