from __future__ import annotations

import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.kube import client, errors
from dra_driver.kube.client import KubeApi
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser
from tests.kube.stub_api import StubApi

CLAIM = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/one"


def put_claim(stub: StubApi) -> None:
    stub.put("resource.k8s.io/resourceclaims", {"metadata": {"namespace": "ml", "name": "one", "uid": "u1"}})


Get = Callable[[str], dict[str, Any]]


@pytest.fixture(params=["request", "ask"])
def get(request: pytest.FixtureRequest, api: KubeApi) -> Get:
    """The two ways to the same answer."""
    return get_by(request.param, api)


def get_by(way: str, api: KubeApi) -> Get:
    def ask(path: str) -> dict[str, Any]:
        (answer,) = api.ask([path])
        return answer()

    return ask if way == "ask" else lambda path: api.request("GET", path)


def test_a_get_returns_the_object_and_says_who_asks(stub: StubApi, get: Get) -> None:
    put_claim(stub)
    assert get(CLAIM)["metadata"]["uid"] == "u1"
    headers = stub.requests[-1].headers
    assert headers["User-Agent"].startswith("dra-driver/")
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Accept"] == "application/json"


def test_bodies_are_sent_as_they_are_with_fields_that_no_model_knows(stub: StubApi, api: KubeApi) -> None:
    body = {"metadata": {"generateName": "x-"}, "spec": {"fieldOf2031": [1, None, 2**60]}}
    made = api.request("POST", "/apis/resource.k8s.io/v1/resourceslices", body=body)
    assert made["spec"] == body["spec"]


@pytest.mark.parametrize(
    ("status", "kind", "then"),
    [
        (400, errors.Invalid, TellUser),
        (401, errors.Unauthorized, TellUser),
        (403, errors.Forbidden, TellUser),
        (409, errors.Conflict, RetryLater),
        (410, errors.Gone, RetryLater),
        (422, errors.Invalid, TellUser),
        (429, errors.TooManyRequests, RetryLater),
        (500, errors.Unavailable, RetryLater),
        (503, errors.Unavailable, RetryLater),
        (302, errors.Unavailable, RetryLater),
    ],
)
def test_every_status_says_what_to_do_next(
    stub: StubApi, get: Get, status: int, kind: type[errors.ApiError], then: type[Exception]
) -> None:
    stub.fail("GET", CLAIM, status, message="because of the weather", reason="Weather")
    with pytest.raises(kind) as caught:
        get(CLAIM)
    assert isinstance(caught.value, then)
    assert caught.value.status == status
    assert caught.value.reason == "Weather"
    assert f"GET {CLAIM}: HTTP {status} Weather: because of the weather" in str(caught.value)
    assert stub.count("GET") == 1


def test_a_claim_that_is_gone_is_not_found_but_a_path_that_is_not_served_is_retried(stub: StubApi, get: Get) -> None:
    with pytest.raises(errors.NotFound) as gone:
        get(CLAIM)
    assert isinstance(gone.value, GiveUp)
    stub.served = ["v1beta1"]
    with pytest.raises(errors.NotServed) as unserved:
        get(CLAIM)
    assert isinstance(unserved.value, RetryLater)
    stub.fail("GET", CLAIM, 404, body=b"<html>nginx: secret upstream name</html>")
    with pytest.raises(errors.NotServed) as proxy:
        get(CLAIM)
    assert "nginx" not in str(proxy.value)


def test_a_429_is_handed_on_at_once_with_the_time_to_wait(stub: StubApi, get: Get) -> None:
    stub.fail("GET", CLAIM, 429, headers={"Retry-After": "7"})
    began = time.monotonic()
    with pytest.raises(errors.TooManyRequests) as caught:
        get(CLAIM)
    assert caught.value.retry_after == 7
    assert time.monotonic() - began < 1
    assert stub.count("GET") == 1


def test_a_403_names_the_verb_and_resource_that_rbac_lacks(stub: StubApi, api: KubeApi, get: Get) -> None:
    said = 'User "x" cannot get resource "resourceclaims" in API group "resource.k8s.io" in the namespace "ml"'
    stub.fail("GET", CLAIM, 403, message=said)
    with pytest.raises(errors.Forbidden, match=r"allow verb 'get' on resourceclaims.resource.k8s.io"):
        get(CLAIM)
    stub.fail("POST", "slices", 403, message="ValidatingAdmissionPolicy 'p' denied request: wrong node")
    with pytest.raises(errors.Forbidden, match="admission policy or webhook refused to create resourceslices"):
        api.request("POST", "/apis/resource.k8s.io/v1/resourceslices", body={})


@pytest.mark.parametrize(
    ("method", "path", "verb", "resource"),
    [
        ("GET", CLAIM, "get", "resourceclaims.resource.k8s.io"),
        ("PUT", CLAIM + "/status", "update", "resourceclaims/status.resource.k8s.io"),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices?limit=1", "list", "resourceslices.resource.k8s.io"),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices?watch=true", "watch", "resourceslices.resource.k8s.io"),
        ("POST", "/api/v1/namespaces/ml/events", "create", "events"),
        ("GET", "/api/v1/nodes/n1", "get", "nodes"),
        ("GET", "/api/v1/namespaces/ml", "get", "namespaces"),
        ("GET", "/version", "get", "/version"),
    ],
)
def test_a_request_tells_its_rbac_verb_and_resource(method: str, path: str, verb: str, resource: str) -> None:
    assert errors.wanted(method, path) == (verb, resource)


def test_long_messages_are_cut(stub: StubApi, get: Get) -> None:
    stub.fail("GET", CLAIM, 422, message="x" * 5000)
    with pytest.raises(errors.Invalid) as caught:
        get(CLAIM)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("way", ["request", "ask"])
def test_a_server_that_is_down_is_unavailable_and_named(tmp_path: Path, way: str) -> None:
    with StubApi() as stub:
        config = stub.kubeconfig(tmp_path)
    with pytest.raises(errors.Unavailable, match=r"check that the API server http://127.0.0.1:\d+ is up"):
        get_by(way, KubeApi(config))(CLAIM)


def test_all_that_is_asked_for_at_once_is_under_way_before_the_first_answer_is_read(
    stub: StubApi, api: KubeApi
) -> None:
    put_claim(stub)
    answers = api.ask([CLAIM] * 8)
    deadline = time.monotonic() + 10
    while stub.count("GET", CLAIM) < 8 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert stub.count("GET", CLAIM) == 8
    assert [answer()["metadata"]["uid"] for answer in answers] == ["u1"] * 8
    assert [answer()["metadata"]["uid"] for answer in api.ask([CLAIM] * 8)] == ["u1"] * 8
    assert len(stub._server.connections) == 8, "connections are used again"


def test_an_answer_in_pieces_and_one_that_ends_its_connection_are_read_whole(stub: StubApi, tmp_path: Path) -> None:
    """As a proxy between may send them."""
    body = json.dumps({"metadata": {"uid": "u1"}, "x": "y" * 200_000}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:90_000], body[90_000:]))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    answers = [
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
    ]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while answers and self.rfile.readline():
                while self.rfile.readline().strip():
                    pass
                answer = answers.pop(0)
                self.wfile.write(answer)
                if b"Connection: close" in answer:
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        config = Path(stub.kubeconfig(tmp_path))
        config.write_text(config.read_text().replace(str(stub.port), str(server.server_address[1])))
        api = KubeApi(str(config))
        assert [get_by("ask", api)(CLAIM) for _ in range(3)] == [json.loads(body)] * 3
        api.close()
        server.shutdown()


def test_a_server_that_takes_too_long_is_unavailable(stub: StubApi, tmp_path: Path) -> None:
    put_claim(stub)
    api = KubeApi(stub.kubeconfig(tmp_path), read_timeout_s=0.2)
    stub.fail("GET", CLAIM, delay_s=5)
    with pytest.raises(errors.Unavailable, match="timed out"):
        get_by("ask", api)(CLAIM)
    assert get_by("ask", api)(CLAIM)["metadata"]["uid"] == "u1", "and its late answer is nobody else's"


def test_a_get_is_sent_again_when_an_idle_connection_was_closed_but_a_create_never(
    stub: StubApi, api: KubeApi, get: Get
) -> None:
    put_claim(stub)
    stub.fail("GET", CLAIM, drop=True)
    assert get(CLAIM)["metadata"]["uid"] == "u1"
    stub.fail("POST", "slices", drop=True)
    with pytest.raises(errors.Unavailable):
        api.request("POST", "/apis/resource.k8s.io/v1/resourceslices", body={"metadata": {"generateName": "x-"}})
    assert stub.count("POST") == 1


def test_an_answer_that_is_no_json_object_is_unavailable(stub: StubApi, get: Get) -> None:
    for body in (b"<html>", b"[1]", b"\xff\xfe"):
        stub.fail("GET", CLAIM, 200, body=body)
        with pytest.raises(errors.Unavailable, match="no JSON object"):
            get(CLAIM)


def test_connections_are_kept_and_eight_at_once_are_served(stub: StubApi, api: KubeApi) -> None:
    put_claim(stub)
    failed: list[Exception] = []

    def many() -> None:
        try:
            for _ in range(20):
                api.request("GET", CLAIM)
        except DriverError as error:
            failed.append(error)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(stub._server.connections) <= 8


def test_a_token_file_is_read_again_and_survives_an_empty_moment(stub: StubApi, tmp_path: Path) -> None:
    put_claim(stub)
    token = tmp_path / "token"
    token.write_text("first\n")
    api = KubeApi(stub.kubeconfig(tmp_path, {"tokenFile": "token"}), token_age_s=0)
    sent = []
    for content in ("first\n", "", "second\n"):
        token.write_text(content)
        api.request("GET", CLAIM)
        sent.append(stub.requests[-1].headers["Authorization"])
    api.close()
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


def test_a_401_reads_the_credentials_anew(stub: StubApi, tmp_path: Path) -> None:
    put_claim(stub)
    api = KubeApi(stub.kubeconfig(tmp_path, {"token": "old"}), renew_every_s=0)
    stub.fail("GET", CLAIM, 401)
    with pytest.raises(errors.Unauthorized):
        api.request("GET", CLAIM)
    stub.kubeconfig(tmp_path, {"token": "new"})
    api.request("GET", CLAIM)
    assert stub.requests[-1].headers["Authorization"] == "Bearer new"
    api.close()


def test_outside_a_cluster_without_kubeconfig_the_user_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(TellUser, match="--kubeconfig"):
        KubeApi().request("GET", "/version")


@pytest.mark.parametrize("content", ["", "{", "kind: Config", "[]"])
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(TellUser, match=str(path)):
        KubeApi(str(path)).request("GET", "/version")
    with pytest.raises(TellUser, match="missing"):
        KubeApi(str(tmp_path / "missing")).request("GET", "/version")


def test_all_connections_share_one_tls_context_that_takes_cas_without_key_identifiers(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],'
        ' "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1/base/"}}],'
        ' "users": [{"name": "u", "user": {"token": "t"}}]}'
    )
    reached = client.reach(str(config))
    context = reached.pool.conn_kw["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert reached.prefix == "/base"
    assert reached.authorization() == "Bearer t"
    reached.close()


def test_nothing_is_connected_before_the_first_request(stub: StubApi, api: KubeApi) -> None:
    assert stub.requests == []
    assert not stub._server.connections
