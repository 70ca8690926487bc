"""What exists while the kubelet is served.

One gRPC server answers on both sockets. Sockets that vanish (the kubelet's directories wiped or made anew) are noticed by
looking at two inodes every few seconds: 20 microseconds each time, where inotify would need ctypes, a thread all the same,
and a second mechanism for a directory that is itself deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc

from api.proto.pb import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_driver.kubelet import sockets
from dra_driver.kubelet.claim_calls import ClaimCalls
from dra_driver.kubelet.endpoint import Endpoint
from dra_driver.kubelet.knock import why_no_answer
from dra_driver.kubelet.names import SocketNames
from dra_driver.kubelet.plugin import add_plugins
from dra_driver.kubelet.registration import Registration
from dra_driver.model.errors import DriverError, TellUser
from dra_driver.ports import NodeService

logger = logging.getLogger(__name__)

# SO_REUSEPORT means nothing for unix sockets; channelz keeps books that nobody reads.
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.enable_channelz", 0),
)


class Serving:
    """One gRPC server on both sockets, the claims of its calls, and a watch over the socket files.

    `registration` remembers what the kubelet said; `trouble` is why a lost socket could not be made again, else empty.
    """

    def __init__(self, names: SocketNames, service: NodeService, workers: int, log_place: str) -> None:
        self.names = names
        self.registration = Registration(names.driver, str(names.dra_socket))
        self.trouble = ""
        self._service = service
        self._calls = ClaimCalls(workers, log_place)
        self._endpoints: list[Endpoint] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def open(self, paths: list[Path]) -> None:
        endpoint = Endpoint(paths, self._server)
        with sockets.locked(self.names.lock_file):
            endpoint.open()
            for directory in (self.names.data_dir, self.names.registry_dir):
                for path in sockets.sweep(directory, self.names.is_of_an_instance):
                    logger.info("removed the socket of an instance that is gone", extra={"path": str(path)})
        self._endpoints.append(endpoint)

    def start_watching(self, every_s: float, drain_s: float) -> None:
        def watch() -> None:
            while not self._stopping.wait(every_s):
                self._restore(drain_s)

        self._watcher = threading.Thread(target=watch, name="socket-watch", daemon=True)
        self._watcher.start()

    def stop(self, drain_s: float) -> bool:
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        errors: list[DriverError] = []
        deadline = time.monotonic() + drain_s
        # First of all: the kubelet hangs up within a second of the end of the registration socket, and a call that it has
        # hung up on is a failed one. New calls go to a successor as soon as that is registered.
        self._calls.wait(deadline)
        self._withdraw(self.names.registration_socket, errors)
        left = max(0.0, deadline - time.monotonic())
        ended: list[Callable[[float | None], bool]] = [endpoint.drain(left) for endpoint in self._endpoints]
        for wait in ended:
            # gRPC needs a moment to break the connections once the grace is over.
            wait(max(0.0, deadline - time.monotonic()) + 1.0)
        # A call whose caller has gone has ended for gRPC, and yet its claim is being worked on.
        self._calls.wait(deadline)
        self._withdraw(self.names.dra_socket, errors)
        self._calls.stop()
        cut_off = self._calls.running
        for what in cut_off:
            logger.warning(
                "stopping: %s has not ended after %g s; it is taken up again at the next start", what, drain_s
            )
        if errors:
            raise ExceptionGroup("stopping the kubelet servers", errors)
        return not cut_off

    def not_alive(self, timeout_s: float) -> list[str]:
        path = self.names.dra_socket
        reasons = [self.trouble] if self.trouble else []
        if why := why_no_answer(path, timeout_s):
            reasons.append(f"calling ourselves on {path}: {why}")
        return reasons

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=_OPTIONS)
        registration_grpc.add_RegistrationServicer_to_server(self.registration, server)
        add_plugins(server, self._service, self._calls)
        return server

    def _restore(self, drain_s: float) -> None:
        """Makes sockets again that are no longer in place. Level-triggered: what fails now is tried at the next look."""
        ours = (self.names.dra_socket, self.names.registration_socket)
        lost = [path for path in ours if not any(endpoint.holds(path) for endpoint in self._endpoints)]
        trouble = ""
        if lost:
            try:
                check_directories(self.names)
                if self.names.registration_socket in lost:
                    self.registration.forget()
                self.open(lost)
            except DriverError as error:
                trouble = f"restoring a lost socket: {error}"
            else:
                logger.warning("made sockets again that had vanished", extra={"paths": [str(path) for path in lost]})
            for endpoint in [endpoint for endpoint in self._endpoints if not endpoint.is_reachable]:
                endpoint.drain(drain_s)
                self._endpoints.remove(endpoint)
        if trouble and trouble != self.trouble:
            logger.error(trouble)
        self.trouble = trouble

    def _withdraw(self, path: Path, errors: list[DriverError]) -> None:
        try:
            with ExitStack() as stack:
                try:
                    stack.enter_context(sockets.locked(self.names.lock_file))
                except DriverError as error:
                    # Without the lock a successor might bind between look and removal; a socket left behind is certain.
                    errors.append(error)
                for endpoint in self._endpoints:
                    endpoint.withdraw(path)
        except DriverError as error:
            errors.append(error)


def check_directories(names: SocketNames) -> None:
    """Makes the data directory, the only one that is ours to make. TellUser when the kubelet's are not there."""
    for directory, setting in ((names.data_dir.parent, "plugins"), (names.registry_dir, "plugin registry")):
        if not directory.is_dir():
            raise TellUser(
                f"looking for the kubelet's {setting} directory {directory}",
                "it is not a directory" if directory.exists() else "it does not exist",
                "see that it is mounted from the host and that the setting names the kubelet's root directory",
            )
    try:
        names.data_dir.mkdir(mode=0o750, exist_ok=True)
    except OSError as error:
        raise TellUser(
            f"making the plugin data directory {names.data_dir}",
            error.strerror or str(error),
            f"make {names.data_dir.parent} writable for the driver",
        ) from error
