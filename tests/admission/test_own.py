"""The webhook's own certificate in a Secret, over a real (stub) API server: bootstrap, two replicas, renewal, damage."""

from __future__ import annotations

import base64
import datetime
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.admission.own import OwnCertificate
from dra_driver.kube.client import KubeApi
from dra_driver.model.errors import DriverError, RetryLater, TellUser
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually

CONFIGURATIONS = "admissionregistration.k8s.io/validatingwebhookconfigurations"
NAME = "dra-driver-webhook"
Make = Callable[..., OwnCertificate]


class Clock:
    def __init__(self) -> None:
        self.now = datetime.datetime.now(datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now

    def days(self, number: float) -> None:
        self.now += datetime.timedelta(days=number)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stub() -> Iterator[StubApi]:
    with StubApi() as api:
        api.put("secrets", {"kind": "Secret", "type": "Opaque", "metadata": {"name": NAME, "namespace": "gpu"}})
        webhooks = [{"name": f"{word}.gpu.nvidia.com", "clientConfig": {"service": {"name": NAME}}} for word in "ab"]
        api.put(CONFIGURATIONS, {"metadata": {"name": NAME}, "webhooks": webhooks})
        yield api


@pytest.fixture
def make(stub: StubApi, clock: Clock, tmp_path: Path) -> Iterator[Make]:
    apis: list[KubeApi] = []

    def own(**more: Any) -> OwnCertificate:
        apis.append(KubeApi(stub.kubeconfig(tmp_path)))
        parts = {
            "secret": ("gpu", NAME),
            "configuration": NAME,
            "names": ("webhook.gpu.svc",),
            "life_s": 90 * 86400,
            "check_s": 0.05,
            "expires": lambda _: None,
            "now": clock,
        }
        return OwnCertificate(apis[-1], **{**parts, **more})

    yield own
    for api in apis:
        api.close()


def secret(stub: StubApi) -> dict[str, bytes]:
    (item,) = stub.list("secrets")
    return {key: base64.b64decode(value) for key, value in (item.get("data") or {}).items()}


def bundles(stub: StubApi) -> list[bytes]:
    (item,) = stub.list(CONFIGURATIONS)
    return [base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in item["webhooks"]]


def test_the_first_round_fills_secret_and_configuration_and_the_second_writes_nothing(
    stub: StubApi, make: Make
) -> None:
    told: list[float] = []
    own = make(expires=told.append)
    assert own.not_ready() == ["no certificate yet"]
    with pytest.raises(RetryLater, match="no certificate yet"):
        own.context()
    own.round()
    assert sorted(secret(stub)) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert bundles(stub) == [secret(stub)["ca.crt"]] * 2
    assert own.not_ready() == []
    assert own.context() is own.context()
    writes = len(stub.writes())
    own.round()
    assert (len(stub.writes()), len(told)) == (writes, 1)
    (item,) = stub.list(CONFIGURATIONS)
    assert item["webhooks"][0]["clientConfig"]["service"] == {"name": NAME}, "what others wrote stays"


def test_two_replicas_that_start_together_share_one_certificate(stub: StubApi, make: Make) -> None:
    replicas = [make() for _ in range(2)]
    stub.fail("PUT", "/secrets/", 0, delay_s=0.3, times=2)  # so that both read it empty
    threads = [threading.Thread(target=replica.start) for replica in replicas]
    for thread in threads:
        thread.start()
    for replica in replicas:
        eventually(lambda replica=replica: not replica.not_ready(), why="a replica has no certificate")
    for replica in replicas:
        replica.stop()
    assert bundles(stub) == [secret(stub)["ca.crt"]] * 2
    before = secret(stub)
    for replica in replicas:
        replica.round()
    assert secret(stub) == before


def test_it_is_renewed_before_its_time_and_the_other_replica_takes_it_over(
    stub: StubApi, make: Make, clock: Clock
) -> None:
    one, other = make(), make()
    for own in (one, other):
        own.round()
    first, contexts = secret(stub), (one.context(), other.context())
    clock.days(61)
    one.round()
    second = secret(stub)
    assert (second["ca.crt"], second["tls.crt"] != first["tls.crt"]) == (first["ca.crt"], True)
    other.round()
    assert secret(stub) == second
    assert one.context() is not contexts[0]
    assert other.context() is not contexts[1]


def test_an_expired_certificate_is_said_and_renewed_without_a_restart(stub: StubApi, make: Make, clock: Clock) -> None:
    own = make()
    own.round()
    clock.days(91)
    stub.fail("GET", "/secrets/", 503, times=1)
    with pytest.raises(RetryLater):
        own.round()
    assert own.not_ready()[0].startswith("the certificate has expired")
    own.round()
    assert own.not_ready() == []


def test_an_authority_at_its_end_is_followed_without_a_moment_that_nobody_believes(
    stub: StubApi, make: Make, clock: Clock
) -> None:
    own = make()
    own.round()
    first = secret(stub)
    clock.days(2425)
    own.round()
    young = secret(stub)
    clock.days(10)
    own.round()
    step = secret(stub)
    assert step["ca.crt"].endswith(first["ca.crt"])
    assert step["ca.crt"] != first["ca.crt"]
    assert step["tls.crt"] == young["tls.crt"]
    assert bundles(stub) == [step["ca.crt"]] * 2
    own.round()
    assert secret(stub)["tls.crt"] != young["tls.crt"]
    assert secret(stub)["ca.crt"] == step["ca.crt"]


@pytest.mark.parametrize("data", [{"tls.crt": "!!!"}, {"ca.crt": "AAAA", "tls.key": 7}, {"ca.key": None}])
def test_a_secret_with_nonsense_in_it_is_filled_anew(stub: StubApi, make: Make, data: dict[str, Any]) -> None:
    (item,) = stub.list("secrets")
    stub.put("secrets", {**item, "data": {**data, "note": "bWluZQ=="}})
    own = make()
    own.round()
    assert own.not_ready() == []
    assert secret(stub)["note"] == b"mine"


def test_a_secret_that_somebody_empties_gets_back_what_api_servers_know(stub: StubApi, make: Make) -> None:
    own = make()
    own.round()
    before, context = secret(stub), own.context()
    (item,) = stub.list("secrets")
    del item["data"]
    stub.put("secrets", item)
    own.round()
    assert secret(stub) == before
    assert own.context() is context


def test_a_bundle_that_somebody_changed_is_put_right(stub: StubApi, make: Make) -> None:
    own = make()
    own.round()
    (item,) = stub.list(CONFIGURATIONS)
    item["webhooks"][1]["clientConfig"]["caBundle"] = "AAAA"
    stub.put(CONFIGURATIONS, item)
    own.round()
    assert bundles(stub) == [secret(stub)["ca.crt"]] * 2


@pytest.mark.parametrize(("collection", "namespace"), [("secrets", "gpu"), (CONFIGURATIONS, "")])
def test_an_object_that_is_not_there_is_named_and_comes_with_the_installation(
    stub: StubApi, make: Make, collection: str, namespace: str
) -> None:
    stub.delete(collection, NAME, namespace)
    with pytest.raises(TellUser, match=rf"/{NAME}: HTTP 404 .*repair that \(helm upgrade\)"):
        make().round()


def test_while_the_api_server_refuses_it_says_so_and_what_is_in_use_stays(stub: StubApi, make: Make) -> None:
    fault = stub.fail("PUT", "validatingwebhookconfigurations", 403, times=None, message="user cannot update")
    own = make()
    own.start()
    eventually(lambda: "cannot update" in own.not_ready()[0], why="it does not say why")
    assert own.context()
    with stub.lock:
        stub.faults.remove(fault)
    eventually(lambda: not own.not_ready(), why="it has not come back")
    stub.fail("GET", "/secrets/", 500, times=3)
    eventually(lambda: not stub.faults, why="it has stopped asking")
    assert own.not_ready() == []
    own.stop()


def test_an_api_server_that_does_not_answer_does_not_keep_it_from_ending(stub: StubApi, make: Make) -> None:
    stub.fail("GET", "/secrets/", delay_s=25.0)
    own = make()
    own.start()
    eventually(lambda: stub.count("GET", "/secrets/"), why="it has not asked")
    begin = time.monotonic()
    own.stop()
    assert time.monotonic() - begin < 8.0  # of the 20 s of its pod the reviews under way may take 10


def test_without_a_configuration_only_the_secret_is_touched(stub: StubApi, make: Make) -> None:
    own = make(configuration="")
    own.round()
    assert own.not_ready() == []
    assert bundles(stub) == [b"", b""]
    assert stub.count("GET", "admissionregistration") == 0


def test_other_names_make_another_certificate(stub: StubApi, make: Make) -> None:
    make().round()
    before = secret(stub)
    make(names=("other.gpu.svc",)).round()
    assert secret(stub)["ca.crt"] == before["ca.crt"]
    assert secret(stub)["tls.crt"] != before["tls.crt"]


def test_a_conflict_ends_the_round_and_nothing_of_it_is_used(stub: StubApi, make: Make) -> None:
    own = make()
    stub.fail("PUT", "/secrets/", 409)
    with pytest.raises(DriverError):
        own.round()
    assert own.not_ready() == ["no certificate yet"]
    own.round()
    assert own.not_ready() == []
