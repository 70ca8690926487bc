from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from dra_driver.model.errors import TellUser
from dra_driver.telemetry.http import HttpServer


class Health:
    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []

    def not_alive(self) -> list[str]:
        return self.dead

    def not_ready(self) -> list[str]:
        return self.unready


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def serve(health: Health) -> Iterator[Callable[[str], HttpServer]]:
    started: list[HttpServer] = []

    def start(listen: str = "127.0.0.1:0") -> HttpServer:
        server = HttpServer(listen, lambda: b"a_metric 1\n", health.not_alive, health.not_ready)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def fetch(server: HttpServer, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://{host}:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_are_served_as_prometheus_wants_them(serve: Callable[..., HttpServer]) -> None:
    status, content_type, body = fetch(serve(), "/metrics?x=1")
    assert (status, body) == (200, "a_metric 1\n")
    assert content_type.startswith("text/plain; version=")


def test_all_is_well(serve: Callable[..., HttpServer]) -> None:
    server = serve()
    assert fetch(server, "/healthz")[::2] == (200, "ok\n")
    assert fetch(server, "/readyz")[::2] == (200, "ok\n")
    assert fetch(server, "/readyz", method="HEAD")[::2] == (200, "")


def test_what_is_wrong_is_told_line_by_line(serve: Callable[..., HttpServer], health: Health) -> None:
    server = serve()
    health.unready = ["not registered", "no slice yet"]
    assert fetch(server, "/readyz")[::2] == (503, "not registered\nno slice yet\n")
    assert fetch(server, "/healthz")[0] == 200
    health.unready, health.dead = [], ["socket lost"]
    assert fetch(server, "/healthz")[::2] == (503, "socket lost\n")
    assert fetch(server, "/readyz")[0] == 200


def test_a_check_that_fails_is_a_reason(serve: Callable[..., HttpServer], health: Health) -> None:
    server = serve()
    health.dead = None  # type: ignore[assignment]
    status, _, body = fetch(server, "/healthz")
    assert status == 503
    assert "bug in the driver (TypeError" in body


def test_other_pages_are_not_found_and_the_answer_says_which_there_are(serve: Callable[..., HttpServer]) -> None:
    status, _, body = fetch(serve(), "/")
    assert status == 404
    assert "/metrics /healthz /readyz" in body


def test_off_listens_nowhere(serve: Callable[..., HttpServer]) -> None:
    assert serve("off").port is None


def test_without_an_address_it_listens_on_all_of_both_families(serve: Callable[..., HttpServer]) -> None:
    server = serve(":0")
    assert fetch(server, "/healthz")[0] == 200
    if socket.has_dualstack_ipv6():
        assert fetch(server, "/healthz", host="[::1]")[0] == 200


@pytest.mark.parametrize("listen", ["", "8080", "localhost", "127.0.0.1:http", ":70000", ":-1"])
def test_a_malformed_address_shows_what_one_looks_like(serve: Callable[..., HttpServer], listen: str) -> None:
    with pytest.raises(TellUser, match=r"write for example :8080, 127.0.0.1:0 or off"):
        serve(listen)


def test_a_port_that_is_taken_is_named(serve: Callable[..., HttpServer]) -> None:
    port = serve().port
    with pytest.raises(TellUser, match=rf"listening on 127.0.0.1:{port} .*in use"):
        serve(f"127.0.0.1:{port}")


def test_stopping_is_prompt_even_with_a_client_that_says_nothing(serve: Callable[..., HttpServer]) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port or 0)):
        assert fetch(server, "/healthz")[0] == 200
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 2
    assert server.port is None
    server.stop()
