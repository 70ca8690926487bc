"""HTTPS: accepts, shakes hands, and gives each connection a thread. Who keeps connections without using them makes room."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from dra_driver.admission.connection import REQUEST_S, Answer, Connection
from dra_driver.model.errors import DriverError, TellUser

log = logging.getLogger(__name__)

# An API server keeps one for each review that it has under way; each costs a thread and about 100 KiB.
CONNECTIONS = 128
STOP_S = 10.0


class Server:
    """`address` ("" for all of both families) and `port` (0: any free one); `context` is asked for each connection, so
    that a new certificate needs no restart; `answer` judges one body; at most `limit` connections at a time, `request_s`
    from the first byte of a request to its last."""

    def __init__(
        self,
        address: str,
        port: int,
        context: Callable[[], ssl.SSLContext],
        answer: Answer,
        limit: int = CONNECTIONS,
        request_s: float = REQUEST_S,
    ) -> None:
        self._address = address
        self._wanted = port
        self._context = context
        self._answer = answer
        self._limit = limit
        self._request_s = request_s
        self._lock = threading.Condition()
        self._large = threading.Lock()
        self._connections: set[Connection] = set()
        self._listening: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._ending = False

    @property
    def port(self) -> int | None:
        """The port listened on, None when stopped."""
        return int(self._listening.getsockname()[1]) if self._listening else None

    def start(self) -> None:
        """TellUser when the address is taken or not this machine's."""
        both = not self._address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in self._address else socket.AF_INET
        try:
            self._listening = socket.create_server(
                (self._address, self._wanted), family=family, backlog=256, dualstack_ipv6=both
            )
        except OSError as error:
            raise TellUser(
                f"listening on {self._address}:{self._wanted} for reviews",
                error.strerror or str(error),
                "set another address and port with --listen",
            ) from error
        self._thread = threading.Thread(target=self._accept, args=(self._listening,), name="accept", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes no more, hangs up on who asks nothing, and waits for the reviews under way."""
        listening, self._listening = self._listening, None
        if listening is None or self._thread is None:
            return
        self._ending = True
        listening.shutdown(socket.SHUT_RDWR)  # on Linux this wakes whoever waits for a connection
        self._thread.join()
        listening.close()
        deadline = time.monotonic() + STOP_S
        with self._lock:
            for connection in self._connections:
                connection.ending = True
                if not connection.answering:
                    connection.hang_up()
            while self._connections and time.monotonic() < deadline:
                self._lock.wait(deadline - time.monotonic())

    def _accept(self, listening: socket.socket) -> None:
        while not self._ending:
            try:
                client, _ = listening.accept()
            except OSError as error:
                if not self._ending:
                    log.error("accepting a connection: %s; it is tried again", error.strerror)  # noqa: TRY400 - no bug
                    time.sleep(0.1)  # out of file descriptors: the waiting connection stays, and so does the error
                continue
            connection = Connection(client, self._request_s, self._large)
            with self._lock:
                if len(self._connections) >= self._limit:
                    self._make_room()
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), name="review", daemon=True).start()
            except RuntimeError as error:
                log.error("starting a thread for a connection: %s; it is closed", error)  # noqa: TRY400 - no bug
                self._forget(connection)

    def _make_room(self) -> None:
        """Hangs up on whoever has let us wait longest: reviews take milliseconds, so that is nobody who works."""
        waiting = [connection for connection in self._connections if not connection.answering]
        if waiting:
            oldest = min(waiting, key=lambda connection: connection.since)
            oldest.hang_up()
            self._connections.discard(oldest)
            log.debug("hung up on the client that has been silent longest: %d connections", self._limit)

    def _serve(self, connection: Connection) -> None:
        try:
            connection.socket.settimeout(self._request_s)
            secure = self._context().wrap_socket(connection.socket, server_side=True, do_handshake_on_connect=False)
            connection.socket = secure
            secure.do_handshake()
            if not connection.ending:
                connection.serve(self._answer)
        except DriverError as error:
            log.warning("a connection is closed: %s", error)
        except (OSError, ValueError) as error:  # broken connections; ValueError: the file was closed under the reader
            log.debug("a connection ended: %s", error)
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._lock.notify_all()
        connection.socket.close()
