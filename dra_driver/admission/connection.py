"""One connection of a client: requests one after another, each within its time and its size, each answered in words."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from dra_driver.admission.door import Reply, sentence

log = logging.getLogger(__name__)

PATH = "/validate"
# What an API server takes in one request; a review of an update holds an object twice, each limited to 1.5 MiB by etcd.
LIMIT_BYTES = 3 * 1024 * 1024
# Objects with configuration are of a few KiB. What is larger is read and judged one at a time: decoded JSON takes up to twenty
# times its bytes, and a hundred clients at once must not take the memory of the process.
LARGE_BYTES = 64 * 1024
# From the first byte of a request to its last, and for the TLS handshake. API servers wait 10 s by default, 30 s at most.
REQUEST_S = 10.0
# The API server's client drops idle connections after 90 s: if it is always the first to do so, no request is ever lost.
IDLE_S = 120.0

Answer = Callable[[bytes], Reply]


class Connection:
    """What the server knows about one client. `since` is when it last changed from answering to waiting, `answering`
    whether a whole request is being worked on; `large` is held by whoever has a large one."""

    def __init__(self, client: socket.socket, request_s: float, large: threading.Lock) -> None:
        self.socket = client
        self.request_s = request_s
        self.large = large
        self.since = time.monotonic()
        self.answering = False
        self.ending = False

    def hang_up(self) -> None:
        """Ends whatever its thread waits for. Past SSLSocket's own shutdown, which is not safe while another thread reads."""
        with suppress(OSError):  # it has ended already
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def serve(self, answer: Answer) -> None:
        """Until the client goes, is too slow, or `ending`. OSError when the connection breaks."""
        _Requests(self, answer)


class _Incoming(io.RawIOBase):
    """Bytes from the client until a deadline for all of them: a limit for each read would let a client drip for ever."""

    def __init__(self, client: socket.socket, request_s: float) -> None:
        self._client = client
        self._request_s = request_s
        self._deadline = 0.0
        self._waiting = True

    def await_request(self) -> None:
        self._deadline = time.monotonic() + IDLE_S
        self._waiting = True

    def await_body(self) -> None:
        self._deadline = time.monotonic() + self._request_s
        self._waiting = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._client.settimeout(remaining)
        count = self._client.recv_into(buffer)
        if self._waiting:
            self.await_body()
        return count


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes: with it each answer waits 40 ms for a delayed ACK
    wbufsize = -1
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s: %(explain)s\n"

    def __init__(self, connection: Connection, answer: Answer) -> None:
        self._own = connection
        self._ask = answer
        super().__init__(connection.socket, "", None)  # type: ignore[arg-type]  # no server: nothing here asks for one

    def setup(self) -> None:
        super().setup()
        self._incoming = _Incoming(self._own.socket, self._own.request_s)
        self.rfile = io.BufferedReader(self._incoming, 65536)

    def handle_one_request(self) -> None:
        self._incoming.await_request()
        try:
            super().handle_one_request()
        finally:
            self._own.answering = False
            self._own.since = time.monotonic()
        if self._own.ending:
            self.close_connection = True

    def do_POST(self) -> None:
        length = self._length()
        if length is None:
            return
        if length <= LARGE_BYTES:
            self._review(length)
        elif self._own.large.acquire(timeout=self._own.request_s / 4):  # an answer while the API server still waits
            try:
                self._incoming.await_body()
                self._review(length)
            finally:
                self._own.large.release()
        else:
            self._refuse(503, f"reading a review of {length} bytes: others as large are being read; try again")

    def _review(self, length: int) -> None:
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            self._refuse(408, f"reading a review of {length} bytes: they did not come within {self._own.request_s:g} s")
            return
        if len(body) < length:
            self.close_connection = True  # the client has gone
            return
        self._own.answering = True
        self._send(self._ask(body))

    def do_GET(self) -> None:
        if not self._path_is_known():
            self._refuse(404, f"{self.path[:100]}: no such page; there is {PATH} for AdmissionReviews")
        else:
            self._refuse(405, f"{self.command} {PATH}: only POST is understood", Allow="POST")

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815 - http.server's names

    def handle_expect_100(self) -> bool:
        if self._length() is None:
            return False
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()  # the client waits for it
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.request_version = (
            self.protocol_version
        )  # a request that was not understood would get an answer without head
        super().send_error(code, message, explain)

    def _path_is_known(self) -> bool:
        return self.path.partition("?")[0] == PATH  # API servers add ?timeout=5s

    def _length(self) -> int | None:
        """Bytes of the body; None when the request has been refused by its head alone."""
        if not self._path_is_known() or self.command != "POST":
            self.do_GET()
            return None
        if self.headers.get_content_type() != "application/json":
            self._refuse(415, "reading a review: it is not said to be JSON; send Content-Type: application/json")
            return None
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not length:
            self._refuse(411, "reading a review: its length is not said; send Content-Length")
            return None
        if not (length.isascii() and length.isdecimal()) or len(length) > 18:
            self._refuse(400, f"reading a review: Content-Length {length[:100]!r} is no number of bytes")
            return None
        if int(length) > LIMIT_BYTES:
            self._refuse(413, f"reading a review of {length} bytes: the limit is {LIMIT_BYTES} bytes")
            self._drain(int(length))
            return None
        return int(length)

    def _drain(self, length: int) -> None:
        """A client that still sends when the connection is closed may never see the answer."""
        self.wfile.flush()
        left = min(length, 4 * LIMIT_BYTES)
        while left > 0 and (part := self.rfile.read(min(left, 65536))):
            left -= len(part)

    def _refuse(self, status: int, text: str, **headers: str) -> None:
        self.close_connection = True  # what is left of the request has not been read
        self._send(sentence(status, text), **headers)

    def _send(self, reply: Reply, **headers: str) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection or self._own.ending:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self._own.socket.settimeout(self._own.request_s)
            self.wfile.write(reply.body)

    def version_string(self) -> str:
        return "dra-driver"

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server)
        log.debug("HTTP request: " + format, *args)  # noqa: G003 (http.server's own format)
