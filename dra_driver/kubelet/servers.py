"""The driver's presence at the kubelet: both sockets, from directory checks to an orderly goodbye."""

from __future__ import annotations

from pathlib import Path

from dra_driver.kubelet.names import socket_names
from dra_driver.kubelet.serving import Serving, check_directories
from dra_driver.model.errors import TellUser
from dra_driver.ports import NodeService


class KubeletServers:
    """`plugins_dir` and `registry_dir` are the kubelet's directories, as the kubelet sees them: the DRA socket's path is
    told to it. `instance` (the pod UID) lets several instances overlap in a rolling update. `workers` bounds the
    claims worked on at once. `drain_s` is how long `stop` lets running calls end."""

    def __init__(
        self,
        driver_name: str,
        plugins_dir: Path,
        registry_dir: Path,
        service: NodeService,
        instance: str | None = None,
        *,
        workers: int = 32,
        drain_s: float = 20.0,
        check_every_s: float = 10.0,
        log_place: str = "the log of the driver's pod on this node",
    ) -> None:
        self._driver_name = driver_name
        self._plugins_dir = plugins_dir
        self._registry_dir = registry_dir
        self._service = service
        self._instance = instance
        self._workers = workers
        self._drain_s = drain_s
        self._check_every_s = check_every_s
        self._log_place = log_place
        self._serving: Serving | None = None

    def start(self) -> None:
        """Checks names and directories, then serves: DRA first, registration last. With its return the kubelet may call.

        TellUser when something has to be put right first (path too long, directory missing, another instance answers),
        RetryLater when another instance is just starting or stopping. Nothing is left behind then.
        """
        if self._serving is not None:
            raise TellUser("starting the kubelet servers", "they serve already", "this is a bug of the driver")
        names = socket_names(self._driver_name, self._plugins_dir, self._registry_dir, self._instance)
        check_directories(names)
        serving = Serving(names, self._service, self._workers, self._log_place)
        serving.open([names.dra_socket, names.registration_socket])
        serving.start_watching(self._check_every_s, self._drain_s)
        self._serving = serving

    def stop(self) -> bool:
        """Removes the registration socket, lets running calls end, removes the DRA socket. Not started: nothing to do.

        False when calls were still running after `drain_s` (their claims are named in the log): their threads cannot be
        ended, and would keep the interpreter from exiting by itself. ExceptionGroup of DriverErrors when files could not
        be removed; everything else is stopped all the same.
        """
        serving, self._serving = self._serving, None
        return True if serving is None else serving.stop(self._drain_s)

    @property
    def registered(self) -> bool:
        """True while the kubelet has us registered, as far as it said."""
        verdict = self._serving.registration.verdict if self._serving else None
        return verdict is not None and verdict.registered

    def not_ready(self) -> list[str]:
        """Why the kubelet cannot use the driver now, one line each; empty when it can. Touches no file."""
        if self._serving is None:
            return ["the kubelet servers have not been started"]
        verdict = self._serving.registration.verdict
        reasons = [self._serving.trouble] if self._serving.trouble else []
        if verdict is None:
            path = self._serving.names.registration_socket
            reasons.append(f"registering with the kubelet: it has not called yet; does it watch {path.parent}?")
        elif not verdict.registered:
            reasons.append(f"registering with the kubelet: refused: {verdict.error or 'no reason given, see its log'}")
        return reasons

    def not_alive(self, timeout_s: float = 2.0) -> list[str]:
        """Why a restart is called for, one line each: asks ourselves over the DRA socket, as the kubelet would. Takes about 1 ms.

        Empty before `start`. A socket directory that was deleted and mounted no longer can only be had back by a restart.
        """
        return [] if self._serving is None else self._serving.not_alive(timeout_s)
