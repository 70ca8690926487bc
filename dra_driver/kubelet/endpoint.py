"""One gRPC server and the sockets on which it answers.

gRPC's own handling of socket files cannot be used as it is: it deletes a socket that another process serves, and when a
server stops it deletes whatever has its path by then, its successor's socket included. So a server binds names that
nobody else knows; once it answers, each socket is renamed into its place in one atomic step. The name that gRPC deletes in
the end has not existed for long, and the file in its place we remove ourselves, if it still is ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path

import grpc

from dra_driver.kubelet import event_loop, sockets
from dra_driver.kubelet.names import unpublished
from dra_driver.model.errors import TellUser


class Endpoint:
    """`build` makes a server with its services, not yet started, in gRPC's loop. `paths` are published in this order: the first one
    answers before the second one can be seen. Used by one thread at a time, with the sockets' lock held."""

    def __init__(self, paths: Sequence[Path], build: Callable[[], grpc.aio.Server]) -> None:
        self._paths = tuple(paths)
        self._build = build
        self._server: grpc.aio.Server | None = None
        self._ours: dict[Path, sockets.Identity] = {}

    def open(self) -> None:
        """Serves. TellUser when a path is taken, by a live process or by something else than a socket, or cannot be made;
        then nothing is left behind."""
        for path in self._paths:
            sockets.require_free(path)
        hidden = {path: unpublished(path) for path in self._paths}
        server = event_loop.run(self._built).result()
        try:
            for path, name in hidden.items():
                _bind(server, path, name)
            event_loop.run(server.start).result()
            for path, name in hidden.items():
                found = sockets.identity(name)
                os.rename(name, path)
                if found is not None:
                    self._ours[path] = found
        except (OSError, RuntimeError, TellUser) as error:
            for path in self._paths:
                self.withdraw(path)
            event_loop.run(partial(server.stop, None)).result()
            for name in hidden.values():  # a server that never started leaves them to the garbage collector
                name.unlink(missing_ok=True)
            if isinstance(error, TellUser):
                raise
            raise _cannot_serve(path, getattr(error, "strerror", None) or str(error)) from error
        self._server = server

    def holds(self, path: Path) -> bool:
        """True when the socket at `path` is the one that this server published."""
        return path in self._ours and sockets.identity(path) == self._ours[path]

    @property
    def is_reachable(self) -> bool:
        """False once all its sockets have been deleted or replaced: only established connections are left."""
        return any(self.holds(path) for path in self._ours)

    def withdraw(self, path: Path) -> bool:
        """Deletes the socket at `path` if it is ours; established connections stay. RetryLater when it cannot."""
        return path in self._ours and sockets.remove_if_ours(path, self._ours[path])

    def drain(self, grace_s: float) -> Callable[[float | None], bool]:
        """Refuses new calls, lets running ones end for `grace_s` seconds, then breaks their connections. Does not wait;
        the function returned does (seconds or None), and says whether the server has ended."""
        if self._server is None:
            return lambda _timeout: True
        stopped = event_loop.run(partial(self._server.stop, grace_s))
        return lambda timeout_s: bool(wait([stopped], timeout_s).done)

    async def _built(self) -> grpc.aio.Server:
        return self._build()


def _bind(server: grpc.aio.Server, path: Path, name: Path) -> None:
    try:
        server.add_insecure_port(f"unix:{name}")
    except RuntimeError as error:  # gRPC keeps the reason to itself (its own log has it): ask the kernel
        why = str(error)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            why = f"directory {path.parent} is not there or not writable"
        raise _cannot_serve(path, why) from error


def _cannot_serve(path: Path, why: str) -> TellUser:
    return TellUser(
        f"serving on {path}",
        why,
        f"see that {path.parent} is there and writable; if it was removed and made again, restart the pod to mount it anew",
    )
