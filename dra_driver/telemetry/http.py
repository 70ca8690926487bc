"""/metrics, /healthz and /readyz over HTTP, for Prometheus and the kubelet's probes."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dra_driver.model.errors import TellUser
from dra_driver.telemetry.metrics import CONTENT_TYPE

logger = logging.getLogger(__name__)

Reasons = Callable[[], Sequence[str]]


class HttpServer:
    """`listen` is `address:port`, `:port`, `[address]:port` (port 0: any free one) or `off`. `metrics` renders the page;
    `not_alive` and `not_ready` return reasons, one line each, and an empty list when all is well. They run in a thread of
    the request; an exception counts as a reason."""

    def __init__(self, listen: str, metrics: Callable[[], bytes], not_alive: Reasons, not_ready: Reasons) -> None:
        self._listen = listen
        self._metrics = metrics
        self._not_alive = not_alive
        self._not_ready = not_ready
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listens and answers. TellUser when the address is malformed or taken."""
        if self._listen == "off":
            return
        host, port = _parse(self._listen)
        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE, self._metrics()),
            "/healthz": lambda: _verdict(self._not_alive),
            "/readyz": lambda: _verdict(self._not_ready),
        }
        try:
            self._server = _Server(host, port, pages)
        except OSError as error:
            raise TellUser(
                f"listening on {self._listen} for probes and metrics",
                error.strerror or str(error),
                "set another address and port, or off",
            ) from error
        self._thread = threading.Thread(target=self._server.serve, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the socket; answers under way are finished by their threads."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.end()
            self._thread.join()

    @property
    def port(self) -> int | None:
        """The port listened on, None when off or stopped."""
        return int(self._server.server_address[1]) if self._server else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Waiting for them would let one client that sends nothing hold up the stop.
    block_on_close = False

    def __init__(self, host: str, port: int, pages: dict[str, Callable[[], tuple[int, str, bytes]]]) -> None:
        # Without an address: both families, since probes come to the pod's IP, which may be of either.
        both = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
        self.pages = pages
        self._ending = False
        super().__init__((host, port), _Request)

    def serve(self) -> None:
        # Not serve_forever, which wakes twice a second to see whether it should end.
        while not self._ending:
            self.handle_request()
        self.server_close()

    def end(self) -> None:
        self._ending = True
        self.socket.shutdown(socket.SHUT_RDWR)  # on Linux this wakes whoever waits for a connection

    def server_bind(self) -> None:
        # HTTPServer's own would ask DNS for the name of the host.
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (signature of socketserver)
        logger.debug("answering an HTTP request failed", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds until a client that does not say what it wants is hung up on

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self.path.split("?", 1)[0]
        page = self.server.pages.get(path)
        if page is None:
            status, content_type, body = (
                404,
                "text/plain; charset=utf-8",
                b"no such page; there are /metrics /healthz /readyz\n",
            )
        else:
            status, content_type, body = page()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        return "dra-driver"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server)
        logger.debug("HTTP request: " + format, *args)  # noqa: G003 (http.server's own format)


def _verdict(reasons: Reasons) -> tuple[int, str, bytes]:
    try:
        found = list(reasons())
    except Exception as error:  # whatever keeps us from telling is a reason
        logger.exception("looking whether the driver is well: bug in the driver")
        found = [f"looking whether the driver is well: bug in the driver ({type(error).__name__}: {error})"]
    body = "".join(f"{reason}\n" for reason in found) or "ok\n"
    return (503 if found else 200), "text/plain; charset=utf-8", body.encode()


def _parse(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise TellUser(
            f"reading the listen address {listen!r}",
            "it is not address:port",
            "write for example :8080, 127.0.0.1:0 or off",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
