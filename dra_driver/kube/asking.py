"""A GET that is under way: sent now, its answer read later.

So the server works on several at once while one thread sees to all of them. urllib3 connects and keeps the connections;
the bytes go past it, because building a request and parsing its answer costs it 0.2 ms of the interpreter, five times as
much as this, and a prepare consists of little else.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httptools
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

_READ_BYTES = 65536


class NoAnswerError(Exception):
    """The connection ended before the answer did, or what came is not HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    data: bytes
    raw_headers: Sequence[tuple[bytes, bytes]]

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}


class PendingGet:
    """On a connection of the pool, which goes back to it with the answer."""

    def __init__(self, pool: HTTPConnectionPool, connection: HTTPConnection) -> None:
        self._pool = pool
        self._connection = connection
        self._answered = False

    def __del__(self) -> None:
        if not self._answered:  # nobody wants it, and it must not be read as the answer to something else
            self._connection.close()

    def answer(self) -> Answer:
        """To be called once. NoAnswerError, or OSError as the socket says it; the connection is closed then."""
        self._answered = True
        parts = _Parts()
        try:
            parts.read(_socket(self._connection))
        except BaseException:
            self._connection.close()
            raise
        if not parts.keep_alive:
            self._connection.close()
        self._pool._put_conn(self._connection)
        return Answer(parts.status, b"".join(parts.body), parts.headers)


def send(
    pool: HTTPConnectionPool, url: str, headers: Mapping[str, str], connect_timeout_s: float, read_timeout_s: float
) -> PendingGet | None:
    """Sends a GET on a connection of the pool. None when it could not be sent: the ordinary way says why, or gets
    through. `url` is quoted, header values have no line breaks."""
    # urllib3's own methods for this are private; they have been the same since its version 1.0.
    connection = pool._get_conn()
    assert isinstance(connection, HTTPConnection)
    if connection.is_closed and pool.proxy is not None:
        pool._put_conn(connection)  # a tunnel wants more than connecting
        return None
    lines = [f"GET {url} HTTP/1.1", f"Host: {connection.host}:{connection.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        if connection.is_closed:
            connection.timeout = connect_timeout_s
            connection.connect()
        sock = _socket(connection)
        sock.settimeout(read_timeout_s)
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    except (HTTPError, OSError, ValueError):
        connection.close()
        return None
    return PendingGet(pool, connection)


class _Parts:
    """What the parser finds. Method names are those that it calls."""

    def __init__(self) -> None:
        self.status = 0
        self.keep_alive = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self._complete = False
        self._parser = httptools.HttpResponseParser(self)

    def read(self, sock: socket.socket) -> None:
        while not self._complete:
            received = sock.recv(_READ_BYTES)
            if not received:
                raise NoAnswerError("the connection was closed")
            try:
                self._parser.feed_data(received)
            except httptools.HttpParserError as error:
                raise NoAnswerError(str(error)) from error

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.keep_alive = self._parser.should_keep_alive()
        self._complete = True


def _socket(connection: HTTPConnection) -> socket.socket:
    sock = connection.sock
    assert isinstance(sock, socket.socket)
    return sock
