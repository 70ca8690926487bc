"""A stand-in for the kubelet's plugin manager and DRA manager, as far as a plugin can tell. Test code; real sockets.

Registers as the kubelet does: watches the registry directory (names with a dot are ignored), asks GetInfo within 1 s,
validates, notifies; tries again after failures; a socket that is gone is deregistered, one that was made anew is registered
again. Calls with one connection for each endpoint, the first version on the plugin's list that it knows, 45 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from api.proto.pb import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_v1_pb2,
    pluginregistration_v1_pb2_grpc,
)

WIRE: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (dra_v1_pb2, dra_v1_pb2_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.DRAPluginStub),
}


def eventually(holds: Callable[[], Any], within_s: float = 10.0, why: str = "") -> Any:
    """Polls until `holds()` is true and returns that; AssertionError after the deadline."""
    deadline = time.monotonic() + within_s
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {why or holds}")
        time.sleep(0.005)
    return found


@dataclass
class Plugin:
    """One registered instance of a driver."""

    socket: Path
    name: str
    endpoint: str
    supported_versions: list[str]
    version: str
    channel: grpc.Channel
    stub: Any
    wire: Any


@dataclass
class FakeKubelet:
    """`knows`: DRAPlugin versions of this release, `refusal`: refuse every plugin with this reason."""

    registry_dir: Path
    knows: Sequence[str] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    refusal: str = ""
    retry_s: float = 0.1
    plugins: list[Plugin] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _retry_at: dict[Path, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._watch, name="fake-kubelet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """As when the kubelet dies: nobody is told, connections break."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        for plugin in self.plugins:
            plugin.channel.close()
        self.plugins, self._seen, self._retry_at = [], {}, {}

    def restart(self) -> None:
        self.stop()
        self.start()

    def plugin(self, driver: str, within_s: float = 10.0) -> Plugin:
        """The instance that calls go to: the one registered last. Waits for it."""
        eventually(lambda: self._newest(driver), within_s, f"no plugin {driver} registered; {self.failures}")
        newest = self._newest(driver)
        assert newest is not None
        return newest

    def prepare(self, driver: str, claims: Sequence[tuple[str, str, str]], timeout_s: float = 45.0) -> dict[str, Any]:
        """`claims` are (uid, namespace, name); UID -> NodePrepareResourceResponse, checked as the kubelet checks it."""
        return self._call(driver, "Prepare", claims, timeout_s)

    def unprepare(self, driver: str, claims: Sequence[tuple[str, str, str]], timeout_s: float = 45.0) -> dict[str, Any]:
        return self._call(driver, "Unprepare", claims, timeout_s)

    def _call(self, driver: str, verb: str, claims: Sequence[tuple[str, str, str]], timeout_s: float) -> dict[str, Any]:
        plugin = self.plugin(driver)
        request = getattr(plugin.wire, f"Node{verb}ResourcesRequest")(
            claims=[plugin.wire.Claim(uid=uid, namespace=namespace, name=name) for uid, namespace, name in claims]
        )
        response = getattr(plugin.stub, f"Node{verb}Resources")(request, timeout=timeout_s, wait_for_ready=True)
        answers = dict(response.claims)
        assert set(answers) == {uid for uid, _, _ in claims}, "skipped claims, or answered ones that were not asked for"
        return answers

    def _newest(self, driver: str) -> Plugin | None:
        return next((plugin for plugin in reversed(list(self.plugins)) if plugin.name == driver), None)

    def _watch(self) -> None:
        while not self._stopping.wait(0.01):
            found = dict(self._sockets())
            for socket in [socket for socket, inode in self._seen.items() if found.get(socket) != inode]:
                self._deregister(socket)
            for socket, inode in found.items():
                if socket not in self._seen and time.monotonic() >= self._retry_at.get(socket, 0.0):
                    self._register(socket, inode)

    def _sockets(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        try:
            entries = sorted(self.registry_dir.iterdir())
        except OSError:
            return
        for path in entries:
            try:
                if path.is_socket() and not path.name.startswith("."):
                    status = path.lstat()
                    yield path, (status.st_ino, status.st_ctime_ns)
            except OSError:
                continue

    def _register(self, socket: Path, inode: tuple[int, int]) -> None:
        channel = grpc.insecure_channel(f"unix:{socket}")
        stub = pluginregistration_v1_pb2_grpc.RegistrationStub(channel)
        try:
            info = stub.GetInfo(pluginregistration_v1_pb2.InfoRequest(), timeout=1.0)
            versions = list(info.supported_versions)
            version = next((version for version in versions if version in self.knows), None)
            error = self.refusal
            if info.type != "DRAPlugin" or version is None:
                error = f"no supported version of type DRAPlugin: {info}"
            status = pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=not error, error=error)
            if not error:
                wire, stub_class = WIRE[version]
                connection = grpc.insecure_channel(f"unix:{info.endpoint or socket}")
                self.plugins.append(
                    Plugin(
                        socket, info.name, info.endpoint, versions, version, connection, stub_class(connection), wire
                    )
                )
            stub.NotifyRegistrationStatus(status, timeout=5.0)
        except grpc.RpcError as failure:
            error = str(failure)
        finally:
            channel.close()
        if not error:
            self._seen[socket] = inode
            return
        self.failures.append(f"{socket.name}: {error}")
        self._deregister(socket)
        self._retry_at[socket] = time.monotonic() + self.retry_s

    def _deregister(self, socket: Path) -> None:
        self._seen.pop(socket, None)
        for plugin in [plugin for plugin in self.plugins if plugin.socket == socket]:
            self.plugins.remove(plugin)
            plugin.channel.close()


@contextmanager
def running(kubelet: FakeKubelet) -> Iterator[FakeKubelet]:
    kubelet.start()
    try:
        yield kubelet
    finally:
        kubelet.stop()
