"""A cluster made by kind: one control plane and workers, each a container on a network of the cluster's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from e2e.cluster import ClusterError, Part, Unsupported, access, cgroups
from e2e.cluster.access import Api, wait
from e2e.cluster.build import Programs, build
from e2e.cluster.limits import check_inotify
from e2e.cluster.options import Options
from e2e.cluster.parts import CONTROL_PLANE, KIND
from e2e.cluster.prerequisites import provide
from e2e.cluster.running import node_ready
from e2e.cluster.state import exclusively
from e2e.cluster.steps import say, step
from e2e.kind import configuration, docker, making
from e2e.kind.daemon import PrivateDocker, interface
from e2e.kind.docker import Docker
from e2e.kind.node import KindNode
from e2e.kind.node_image import NodeImage, provide_node_image
from e2e.kind.test_images import write_test_images

READY_SECONDS = 120
INOTIFY_OF_A_NODE = 20  # systemd 4, kubelet 7, containerd 2, and what pods need; the control plane's are a few more
PORTS: Mapping[Part, int] = {"etcd": 2379, "apiserver": 6443, "controller-manager": 10257, "scheduler": 10259}


class KindCluster:
    def __init__(self, options: Options) -> None:
        refuse(options)
        self.options = options
        self.name = options.name
        self.key = f"kind-{options.key}"  # what Docker and kind know it by
        self.directory = options.home / f"kind-{options.name}"
        self.kubeconfig = self.directory / "kubeconfig"
        self.ca = self.directory / "ca.crt"
        self._file = self.directory / "state.json"
        self._private = PrivateDocker(options.home)
        self._nodes: dict[str, KindNode] = {}

    @property
    def server(self) -> str:
        return f"https://{self._control_plane.address}:{PORTS['apiserver']}"

    @property
    def kubectl(self) -> Path:
        return Path(self._state["kubectl"])

    @property
    def nodes(self) -> Mapping[str, KindNode]:
        """In the order of the options that the cluster was brought up with."""
        names = self._state["options"]["nodes"]
        if list(self._nodes) != names:
            places = configuration.containers(self.key, names)
            self._nodes = {name: self._node(name, container) for name, container in places.items()}
        return self._nodes

    @property
    def docker(self) -> Docker:
        """The Docker that it runs on."""
        found = self._private.running if self._state["private"] else docker.machines_own()
        if found is None:
            raise ClusterError(
                f"reaching {self.name}: the Docker that it ran on does not answer; take the cluster down"
            )
        return found

    def up(self) -> None:
        wanted = [*KIND, *(program for program in CONTROL_PLANE if program.name == "kubectl")]
        go = provide(wanted, to_run=False, pause=False)
        chosen = self._choose()
        programs = build(wanted, go, pause=False)
        with exclusively(self._lock, f"bringing up {self.name}"):
            if self._file.exists() and self._state["complete"] and self._all_run():
                if not self.options.same_as(self._state["options"]):
                    raise ClusterError(
                        f"bringing up {self.name}: it is up with other options ({self._state['options']}); "
                        f"take it down first or use another name"
                    )
                say(f"{self.name} is up already")
                return
            if self._file.exists():
                say(f"{self.name} is there but not whole: clearing it away first")
            self._clear(chosen)
            check_inotify(f"making {self.name} with kind", INOTIFY_OF_A_NODE * (len(self.options.nodes) + 1))
            image = provide_node_image(chosen, go)
            try:
                self._up(chosen, image, programs)
            except BaseException:
                if self._file.exists():
                    self._export_logs(chosen)
                making.remove(chosen, self.key)
                say(f"{self.name} did not come up; its logs are below {self.directory}")
                raise

    def down(self, *, keep_logs: bool = False) -> None:
        with exclusively(self._lock, f"taking down {self.name}"):
            try:
                used: Docker | None = self.docker
            except ClusterError:
                used = docker.machines_own()
            if keep_logs and used is not None and self._file.exists():
                self._export_logs(used)
            self._clear(used, keep_logs=keep_logs)
        self._private.stop_unused()
        if used is not None and used.daemon is None:
            say("Docker keeps the images that were built, for the next time: `docker images 'dra-driver*'` lists them")
        if self.options.home.exists() and not any(self.options.home.iterdir()):
            self.options.home.rmdir()

    def stop(self, part: Part) -> None:
        """SIGKILL, after its manifest is out of the kubelet's sight: else it would be started again. But etcd only freezes:
        the kubelet takes a minute to bring it back, and kills the API server for its failing probe meanwhile."""
        name = _component(part)
        if part == "etcd":
            self._on_control_plane(f"pkill -STOP -f '^{name} '", part)
            return
        self._on_control_plane(
            f"mv /etc/kubernetes/manifests/{name}.yaml /kind/{name}.yaml && pkill -KILL -f '^{name} '", part
        )
        self._wait(f"{part} to be gone", lambda: not self._listens(part), 60)

    def start(self, part: Part) -> None:
        name = _component(part)
        if part == "etcd":
            self._on_control_plane(f"pkill -CONT -f '^{name} '", part)
            return
        self._on_control_plane(f"mv /kind/{name}.yaml /etc/kubernetes/manifests/{name}.yaml", part)
        self._wait(f"{part} to serve", lambda: self._serves(part), READY_SECONDS)

    def restart(self, part: Part, *flags: str) -> None:
        if flags:
            raise Unsupported(f"giving {part} flags on kind: its manifest is fixed; use the cluster of processes")
        self.stop(part)
        self.start(part)

    def token(self, identity: str) -> str:
        if identity != "admin":
            raise ClusterError(f"giving the token of {identity}: kind's components have certificates, not tokens")
        return str(self._state["token"])

    def service_account_token(self, namespace: str, name: str, node: str | None = None) -> str:
        return access.service_account_token(self.request, namespace, name, node)

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        return access.write_private(path, access.kubeconfig(self.server, self.ca.read_bytes(), token, self.name))

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._api.request(method, path, body)

    def load(self, archive: Path) -> None:
        for node in (self._control_plane, *self.nodes.values()):
            node.load(archive)

    @property
    def _lock(self) -> Path:
        return self.options.home / f".kind-{self.name}.lock"

    @property
    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise ClusterError(f"reading {self._file}: there is no such cluster; bring it up first") from None
        return state

    def _change(self, **changes: Any) -> None:
        before = self._state if self._file.exists() else {}
        access.write_private(self._file.with_suffix(".new"), json.dumps({**before, **changes}, indent=1))
        os.replace(self._file.with_suffix(".new"), self._file)

    @property
    def _api(self) -> Api:
        return Api(self._state["server"], self.ca, self._state["token"])

    @property
    def _control_plane(self) -> KindNode:
        return self._node("control-plane", f"{self.key}-control-plane")

    def _node(self, name: str, container: str) -> KindNode:
        return KindNode(self._docker_now, name, container, self.directory / "nodes" / name / "logs")

    @cached_property
    def _docker_now(self) -> Docker:
        return self.docker

    def _choose(self) -> Docker:
        own, private = docker.machines_own(), self._private.running
        if private is not None and own is not None:
            # The client may have been told to use the private one: then we must know that it sees other process ids.
            return private if os.environ.get("DOCKER_HOST") == private.settings["DOCKER_HOST"] else own
        if found := own or private:
            return found
        if not docker.wanted_private():
            raise docker.none_here()
        return self._private.start()

    def _up(self, chosen: Docker, image: NodeImage, programs: Programs) -> None:
        self.directory.mkdir(parents=True)
        self._change(
            options=self.options.record(),
            private=chosen.daemon is not None,
            kubectl=str(programs["kubectl"]),
            complete=False,
        )
        (self.directory / "kind.yaml").write_text(
            configuration.cluster(
                self.options.nodes,
                self.options.feature_gates,
                official=image.official,
                unified_cgroups=cgroups.unified(),
            )
        )
        with step(f"network {self.key}"):
            bridge = f"com.docker.network.bridge.name={interface(self.options.home, self.key)}"
            chosen.run("network", "create", "--opt", bridge, self.key)
        with step(f"kind: control plane, {', '.join(self.options.nodes)} from {image.name.partition('@')[0]}"):
            making.create(chosen, programs["kind"], self.key, image.name, self.directory)
        reached = making.administrator(programs["kubectl"], self.kubeconfig, self.ca)
        self._change(server=reached.server, token=reached.token)
        with step(f"nodes {', '.join(self.options.nodes)} Ready"):
            self._wait("nodes to be Ready and pods to be welcome", self._usable, READY_SECONDS)
        with step("test images"):
            for archive in write_test_images(chosen, self.directory / "images"):
                self.load(archive)
        self._change(complete=True)

    def _usable(self) -> bool:
        self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        return len([node for node in nodes if node_ready(node)]) == len(self.options.nodes) + 1

    def _all_run(self) -> bool:
        try:
            listed = self.docker.run("ps", "--quiet", "--filter", f"{making.LABEL}={self.key}")
        except ClusterError:
            return False
        return len(listed.split()) == len(self._state["options"]["nodes"]) + 1

    def _listens(self, part: Part) -> bool:
        done = self._control_plane.run(["ss", "-ltnH", f"sport = :{PORTS[part]}"])
        return bool(done.stdout.strip())

    def _serves(self, part: Part) -> bool:
        if part == "apiserver":
            return self._api.text("GET", "/readyz") == "ok"
        return self._listens(part)

    def _wait(self, what: str, done: Any, seconds: float) -> None:
        wait(what, done, seconds, lambda: f"look with `docker exec {self.key}-control-plane journalctl -eu kubelet`")

    def _on_control_plane(self, text: str, part: Part) -> None:
        done = self._control_plane.run(["sh", "-c", text])
        if done.returncode:
            raise ClusterError(f"stopping or starting {part}: `{text}` says {done.stderr.strip() or done.returncode}")

    def _export_logs(self, used: Docker) -> None:
        workers = configuration.containers(self.key, self._state["options"]["nodes"])
        making.export_logs(used, {"control-plane": f"{self.key}-control-plane", **workers}, self.directory / "nodes")

    def _clear(self, used: Docker | None, *, keep_logs: bool = False) -> None:
        if used is not None:
            making.remove(used, self.key)
        self._nodes = {}
        self.__dict__.pop("_docker_now", None)
        if not self.directory.exists():
            return
        for path in self.directory.iterdir():
            if keep_logs and (path.name == "nodes" or path.suffix == ".log"):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not keep_logs:
            self.directory.rmdir()


def refuse(options: Options) -> None:
    """ClusterError for what kind cannot be asked."""
    if not options.nodes or len(options.nodes) > 7:
        raise ClusterError(
            f"making {len(options.nodes)} nodes with kind: 1 to 7; use the cluster of processes for others"
        )
    if options.emulate is not None or options.served is not None:
        raise Unsupported(
            "serving an older API with kind: its API server serves what its release does; use the cluster of processes"
        )
    if options.containerd17:
        raise Unsupported(
            "giving nodes of kind containerd 1.7: they have what the node image brings; use the cluster of processes"
        )


def _component(part: Part) -> str:
    return part if part == "etcd" else f"kube-{part}"
