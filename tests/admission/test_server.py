"""The server over real sockets: what it takes, what it refuses in words, and who cannot keep it from others."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable

import pytest

from dra_driver.admission.connection import LARGE_BYTES, LIMIT_BYTES
from dra_driver.admission.door import Reply
from dra_driver.admission.server import Server
from dra_driver.model.errors import RetryLater, TellUser
from tests.admission.conftest import Connect, Pair
from tests.admission.reviews import BAD, GOOD, body, entry, manifest, review

Serve = Callable[..., Server]
REVIEW = body(review(manifest(entry(BAD))))


def raw(server: Server, pair: Pair) -> ssl.SSLSocket:
    assert server.port is not None
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    return pair.client.wrap_socket(plain, server_hostname="127.0.0.1")


def everything(secure: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    parts = []
    try:
        while part := secure.recv(65536):
            parts.append(part)
    except (ConnectionResetError, ssl.SSLEOFError):
        pass  # a hang-up without good-bye is one, too
    return b"".join(parts)


def test_many_reviews_over_one_connection(serve: Serve, pair: Pair, connect: Connect, counted: list[str]) -> None:
    client = connect(serve())
    for parameters, allowed in ((GOOD, True), (BAD, False)) * 20:
        status, answer = client.ask(body(review(manifest(entry(parameters)))))
        assert (status, json.loads(answer)["response"]["allowed"]) == (200, allowed)
    assert counted == ["allowed", "refused"] * 20


def test_many_connections_at_once(serve: Serve, pair: Pair, connect: Connect, counted: list[str]) -> None:
    server = serve()
    statuses: list[int] = []

    def work() -> None:
        client = connect(server)
        statuses.extend(client.ask(REVIEW)[0] for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 200
    assert counted == ["refused"] * 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "words"),
    [
        ("GET", "/validate", {}, 405, b"GET /validate: only POST is understood"),
        ("PUT", "/validate?timeout=5s", {}, 405, b"PUT /validate: only POST is understood"),
        ("POST", "/", {}, 404, b"there is /validate for AdmissionReviews"),
        ("GET", "/healthz", {}, 404, b"there is /validate for AdmissionReviews"),
        ("BREW", "/validate", {}, 501, b"Unsupported method"),
        ("POST", "/validate", {"Content_Type": "application/yaml"}, 415, b"send Content-Type: application/json"),
        ("POST", "/validate", {"Content_Length": "many"}, 400, b"Content-Length 'many' is no number of bytes"),
        ("POST", "/validate", {"Content_Length": "-1"}, 400, b"is no number of bytes"),
        ("POST", "/validate", {"Content_Length": "\u00b2"}, 400, b"is no number of bytes"),
        ("POST", "/validate", {"Content_Length": "9" * 5000}, 400, b"is no number of bytes"),
        ("POST", "/validate", {"Transfer_Encoding": "chunked"}, 411, b"send Content-Length"),
    ],
)
def test_what_is_not_asked_as_an_api_server_asks_is_refused_in_words(
    serve: Serve,
    pair: Pair,
    connect: Connect,
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    words: bytes,
) -> None:
    server = serve()
    found, answer = connect(server).ask(REVIEW, method, path, **headers)
    assert found == status
    assert words in answer
    assert answer.count(b"\n") == 1
    assert connect(server).ask(REVIEW)[0] == 200


def test_a_content_type_may_have_parameters(serve: Serve, pair: Pair, connect: Connect) -> None:
    client = connect(serve())
    assert client.ask(REVIEW, Content_Type="application/json; charset=utf-8")[0] == 200


def test_bodies_up_to_the_limit_are_read_and_larger_ones_refused(serve: Serve, pair: Pair, connect: Connect) -> None:
    server = serve()
    padding = LIMIT_BYTES - len(REVIEW)
    assert connect(server).ask(REVIEW + b" " * padding)[0] == 200
    status, answer = connect(server).ask(REVIEW + b" " * (padding + 1))
    assert status == 413
    assert answer == f"reading a review of {LIMIT_BYTES + 1} bytes: the limit is {LIMIT_BYTES} bytes\n".encode()


def test_who_asks_before_sending_much_is_told_before(serve: Serve, pair: Pair, connect: Connect) -> None:
    with raw(serve(), pair) as secure:
        head = "POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: "
        secure.sendall(f"{head}{LIMIT_BYTES + 1}\r\n\r\n".encode())
        assert secure.recv(65536).startswith(b"HTTP/1.1 413 ")
    with raw(serve(), pair) as secure:
        secure.sendall(f"{head}{len(REVIEW)}\r\n\r\n".encode())
        assert secure.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        secure.sendall(REVIEW)
        assert secure.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"POST\r\n\r\n",
        b"POST /validate HTTP/9.9\r\n\r\n",
        b"POST /validate HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"POST /validate HTTP/1.1\r\nX: " + b"y" * 70000 + b"\r\n\r\n",
        b"POST /" + b"v" * 70000 + b" HTTP/1.1\r\n\r\n",
        b"\x00\xff\xfe" * 100 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_hurts_nobody_else(serve: Serve, pair: Pair, connect: Connect, data: bytes) -> None:
    server = serve()
    with raw(server, pair) as secure:
        secure.sendall(data)
        answer = everything(secure)
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert b"<html" not in answer.lower()
    assert connect(server).ask(REVIEW)[0] == 200


def test_who_speaks_no_tls_is_hung_up_on(serve: Serve, pair: Pair, connect: Connect) -> None:
    server = serve()
    assert server.port is not None
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        everything(plain)
    assert connect(server).ask(REVIEW)[0] == 200


def test_old_versions_of_tls_are_refused(serve: Serve, pair: Pair, connect: Connect) -> None:
    old = pair.client
    old.set_ciphers("ALL:@SECLEVEL=0")
    for bound in ("minimum_version", "maximum_version"):
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            setattr(old, bound, ssl.TLSVersion.TLSv1_1)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert.protocol.version"):
        connect(serve(), old).ask(REVIEW)


def test_a_client_that_goes_away_in_the_middle_hurts_nobody(
    serve: Serve, pair: Pair, connect: Connect, counted: list[str]
) -> None:
    server = serve()
    for data in (
        b"",
        b"POST /val",
        b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    ):
        with raw(server, pair) as secure:
            secure.sendall(data)
    assert connect(server).ask(REVIEW)[0] == 200
    assert counted == ["refused"]


def test_a_client_that_drips_is_told_and_hung_up_on(serve: Serve, pair: Pair) -> None:
    with raw(serve(request_s=0.5), pair) as secure:
        secure.sendall(b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        answer = everything(secure)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"reading a review of 99 bytes: they did not come within" in answer


def test_large_bodies_come_one_at_a_time_and_hold_up_no_ordinary_ones(
    serve: Serve, pair: Pair, connect: Connect
) -> None:
    server = serve(request_s=1)
    large = REVIEW + b" " * LARGE_BYTES
    with raw(server, pair) as greedy:
        greedy.sendall(
            f"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(large)}\r\n\r\n".encode()
        )
        greedy.sendall(b" " * 1000)  # and then no more
        assert connect(server).ask(REVIEW)[0] == 200
        status, answer = connect(server).ask(large)
        assert status in (200, 503)
        assert status == 200 or b"others as large are being read; try again" in answer
        assert everything(greedy).startswith(b"HTTP/1.1 408 ")
    assert connect(server).ask(large)[0] == 200


def test_silent_clients_make_room_for_those_who_ask(serve: Serve, pair: Pair, connect: Connect) -> None:
    server = serve(limit=4)
    first = connect(server)
    assert first.ask(REVIEW)[0] == 200
    silent = [raw(server, pair) for _ in range(20)]
    assert connect(server).ask(REVIEW)[0] == 200
    assert everything(silent[0]) == b"", "the oldest were hung up on"
    for secure in silent:
        secure.close()


def test_clients_that_do_not_even_shake_hands_make_room_too(serve: Serve, pair: Pair, connect: Connect) -> None:
    server = serve(limit=4)
    assert server.port is not None
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(20)]
    assert connect(server).ask(REVIEW)[0] == 200
    for plain in silent:
        plain.close()


def test_stopping_answers_what_is_under_way_and_hangs_up_on_the_others(
    serve: Serve, pair: Pair, connect: Connect
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: bytes) -> Reply:
        begun.set()
        go_on.wait(30)
        return Reply(200, "application/json", b"{}")

    server = serve(answer=slow)
    answers: list[tuple[int, bytes]] = []
    client = connect(server)
    asking = threading.Thread(target=lambda: answers.append(client.ask(REVIEW)))
    with raw(server, pair) as silent:
        asking.start()
        assert begun.wait(30)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert everything(silent) == b""
        go_on.set()
        stopping.join()
    asking.join()
    assert answers == [(200, b"{}")]
    assert server.port is None
    server.stop()


def test_an_answer_that_fails_costs_that_connection_only(serve: Serve, pair: Pair) -> None:
    def broken(_: bytes) -> Reply:
        raise RetryLater("judging", "no")

    server = serve(answer=broken)
    for _ in range(2):
        with raw(server, pair) as secure:
            secure.sendall(b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            assert everything(secure) == b""


def test_without_a_certificate_connections_are_closed_and_come_later(
    serve: Serve, pair: Pair, connect: Connect
) -> None:
    def none_yet() -> ssl.SSLContext:
        raise RetryLater("showing a certificate", "no certificate yet")

    server = serve(context=none_yet)
    for _ in range(2):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect(server).ask(REVIEW)


def test_all_addresses_of_both_families(serve: Serve, pair: Pair, connect: Connect) -> None:
    server = serve(address="")
    assert connect(server).ask(REVIEW)[0] == 200
    if socket.has_dualstack_ipv6():
        with socket.create_connection(("::1", server.port or 0), timeout=30):
            pass


def test_an_address_that_is_taken_is_named(serve: Serve) -> None:
    port = serve().port
    with pytest.raises(TellUser, match=rf"listening on 127.0.0.1:{port} for reviews: .*in use.*--listen"):
        serve(port=port)
