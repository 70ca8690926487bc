"""DRAPlugin over a real socket: what the kubelet gets for what the node service does."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from api.proto.pb import dra_v1_pb2, dra_v1beta1_pb2, pluginregistration_v1_pb2, pluginregistration_v1_pb2_grpc
from dra_driver.kubelet.claim_calls import ClaimCalls
from dra_driver.kubelet.plugin import DRAPlugin
from dra_driver.kubelet.servers import KubeletServers
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import GiveUp, RetryLater
from tests.kubelet.conftest import DRIVER, Node, Service, device_of
from tests.kubelet.fake_kubelet import FakeKubelet, running

Serve = Callable[..., KubeletServers]


@pytest.fixture(params=["v1.DRAPlugin", "v1beta1.DRAPlugin"])
def kubelet(request: pytest.FixtureRequest, node: Node) -> Iterator[FakeKubelet]:
    with running(FakeKubelet(node.registry, knows=(request.param,))) as kubelet:
        yield kubelet


def claim(name: str) -> tuple[str, str, str]:
    return f"uid-{name}", "default", name


def raising(error: Exception) -> Callable[[ClaimRef], list]:
    def act(ref: ClaimRef) -> list:
        raise error

    return act


def test_a_prepared_claim_is_answered_with_its_devices(serve: Serve, kubelet: FakeKubelet) -> None:
    serve()
    [device] = kubelet.prepare(DRIVER, [claim("a")])["uid-a"].devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("node-1", "gpu-0000-1b-00-0")
    assert list(device.cdi_device_ids) == ["k8s.gpu.nvidia.com/claim=uid-a-gpu-0000-1b-00-0"]


def test_the_share_id_is_told_to_those_who_know_it(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    service.acts["a"] = lambda ref: [device_of(ref, share_id="s1"), device_of(ref)]
    serve()
    first, second = kubelet.prepare(DRIVER, [claim("a")])["uid-a"].devices
    if kubelet.knows == ("v1.DRAPlugin",):
        assert first.share_id == "s1"
        assert not second.HasField("share_id")
    else:
        assert "share_id" not in first.DESCRIPTOR.fields_by_name


def test_request_names_lose_the_sub_request(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    service.acts["a"] = lambda ref: [device_of(ref, request="gpu/big")]
    serve()
    [device] = kubelet.prepare(DRIVER, [claim("a")])["uid-a"].devices
    assert list(device.request_names) == ["gpu"]


def test_each_claim_of_a_call_is_answered_on_its_own(
    serve: Serve, kubelet: FakeKubelet, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.acts["gone"] = raising(GiveUp("preparing claim default/gone", "it is gone"))
    service.acts["later"] = raising(RetryLater("reading claim default/later", "the API server does not answer"))
    service.acts["bug"] = raising(KeyError("minor"))
    service.acts["empty"] = lambda ref: []
    serve(log_place="kubectl logs -n gpu agent-1")
    answers = kubelet.prepare(DRIVER, [claim(name) for name in ("ok", "gone", "later", "bug", "empty")])
    assert answers["uid-ok"].error == ""
    assert len(answers["uid-ok"].devices) == 1
    assert answers["uid-gone"].error == "preparing claim default/gone: it is gone"
    assert answers["uid-later"].error == "reading claim default/later: the API server does not answer"
    assert (
        "bug in the driver (KeyError: 'minor'); the traceback is in kubectl logs -n gpu agent-1"
        in answers["uid-bug"].error
    )
    assert (answers["uid-empty"].error, list(answers["uid-empty"].devices)) == ("", [])
    [record] = [record for record in caplog.records if record.exc_info]
    assert (record.claim, record.claim_uid, record.levelno) == ("default/bug", "uid-bug", logging.ERROR)


def test_unprepare_answers_every_claim_and_its_error(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    service.acts["busy"] = raising(RetryLater("unpreparing claim default/busy", "GPU in use"))
    service.acts["bug"] = raising(ZeroDivisionError())
    serve()
    answers = kubelet.unprepare(DRIVER, [claim("ok"), claim("busy"), claim("bug")])
    assert answers["uid-ok"].error == ""
    assert answers["uid-busy"].error == "unpreparing claim default/busy: GPU in use"
    assert "bug in the driver (ZeroDivisionError" in answers["uid-bug"].error


def test_a_call_without_claims_is_answered(serve: Serve, kubelet: FakeKubelet) -> None:
    serve()
    assert kubelet.prepare(DRIVER, []) == {}
    assert kubelet.unprepare(DRIVER, []) == {}


def test_a_claim_named_twice_is_prepared_once(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    serve()
    kubelet.prepare(DRIVER, [claim("a"), claim("a")])
    assert len(service.calls) == 1


def test_claims_of_one_call_are_prepared_at_the_same_time(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    together = threading.Barrier(4)

    def meet(ref: ClaimRef) -> list:
        together.wait(timeout=10)
        return [device_of(ref)]

    service.acts = dict.fromkeys("abcd", meet)
    serve()
    answers = kubelet.prepare(DRIVER, [claim(name) for name in "abcd"])
    assert [answer.error for answer in answers.values()] == [""] * 4


def test_quick_claims_of_one_call_share_a_thread_and_a_slow_one_keeps_none_waiting(
    serve: Serve, kubelet: FakeKubelet, service: Service
) -> None:
    serve()
    names = [f"c{n}" for n in range(8)]
    kubelet.prepare(DRIVER, [claim(name) for name in names])
    assert len({thread for _, _, thread in service.calls}) < 8
    service.calls.clear()
    let_go, done = threading.Event(), threading.Event()
    service.acts["c0"] = lambda ref: [device_of(ref)] if let_go.wait(30) else []
    service.acts["c7"] = lambda ref: done.set() or [device_of(ref)]
    answers: dict[str, Any] = {}
    call = threading.Thread(target=lambda: answers.update(kubelet.prepare(DRIVER, [claim(name) for name in names])))
    call.start()
    assert done.wait(30), "the last is done while the first is still at it"
    let_go.set()
    call.join(30)
    assert [len(answers[f"uid-{name}"].devices) for name in names] == [1] * 8
    slow = next(thread for _, ref, thread in service.calls if ref.name == "c0")
    assert [ref.name for _, ref, thread in service.calls if thread == slow] == ["c0"]


def test_sixteen_calls_are_served_at_the_same_time(serve: Serve, kubelet: FakeKubelet, service: Service) -> None:
    together = threading.Barrier(16)

    def meet(ref: ClaimRef) -> list:
        together.wait(timeout=10)
        return [device_of(ref)]

    names = [f"c{number}" for number in range(16)]
    service.acts = dict.fromkeys(names, meet)
    serve()
    plugin = kubelet.plugin(DRIVER)
    requests = [
        plugin.wire.NodePrepareResourcesRequest(claims=[plugin.wire.Claim(uid=name, name=name)]) for name in names
    ]
    calls = [plugin.stub.NodePrepareResources.future(request, timeout=20) for request in requests]
    assert [call.result().claims[name].error for call, name in zip(calls, names, strict=True)] == [""] * 16


def test_calls_at_once_share_a_thread_and_a_slow_one_keeps_none_waiting(
    serve: Serve, kubelet: FakeKubelet, service: Service
) -> None:
    """Eight threads would fight for the interpreter at every file."""
    serve()
    begun, let_go = threading.Event(), threading.Event()

    def first(ref: ClaimRef) -> list:
        begun.set()
        return [device_of(ref)] if let_go.wait(30) else []

    service.acts["first"] = first
    plugin = kubelet.plugin(DRIVER)

    def call(name: str) -> Any:
        claims = [plugin.wire.Claim(uid=f"uid-{name}", namespace="default", name=name)]
        return plugin.stub.NodePrepareResources.future(
            plugin.wire.NodePrepareResourcesRequest(claims=claims), timeout=30
        )

    slow = call("first")
    assert begun.wait(30)
    others = [call(f"c{n}") for n in range(8)]
    assert [len(other.result().claims[f"uid-c{n}"].devices) for n, other in enumerate(others)] == [1] * 8
    let_go.set()
    assert len(slow.result().claims["uid-first"].devices) == 1
    threads = {ref.name: thread for _, ref, thread in service.calls}
    assert threads["first"] not in {threads[f"c{n}"] for n in range(8)}


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_call_that_cannot_begin_is_answered_for_each_of_its_claims(names: list[str]) -> None:
    class Broken:
        def prepare_each(self, refs: object) -> Any:
            raise ZeroDivisionError

    calls = ClaimCalls(2, "the log")
    claims = [dra_v1_pb2.Claim(uid=f"uid-{name}", namespace="default", name=name) for name in names]
    request = dra_v1_pb2.NodePrepareResourcesRequest(claims=claims)
    answers = asyncio.run(DRAPlugin(dra_v1_pb2, Broken(), calls).NodePrepareResources(request, Caller(10.0))).claims
    assert len(answers) == len(names)
    assert all("bug in the driver (ZeroDivisionError" in answer.error for answer in answers.values())
    assert calls.wait(0)
    calls.stop()


class Caller:
    """Says how much time its deadline leaves, and waits for the answer however long that takes: whether a busy machine
    delivers it in time is not what is asked here."""

    def __init__(self, remaining_s: float) -> None:
        self._remaining_s = remaining_s

    def time_remaining(self) -> float:
        return self._remaining_s

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Nobody is there to send the answer to."""
        callback(self)


@pytest.mark.parametrize("wire", [dra_v1_pb2, dra_v1beta1_pb2], ids=["v1", "v1beta1"])
def test_claims_that_are_done_are_answered_before_the_deadline_beside_one_that_hangs(
    service: Service, wire: Any
) -> None:
    let_go, calls = threading.Event(), ClaimCalls(2, "the log")
    service.acts["slow"] = lambda ref: [device_of(ref)] if let_go.wait(30) else []
    claims = [wire.Claim(uid=f"uid-{name}", namespace="default", name=name) for name in ("quick", "slow")]
    request = wire.NodePrepareResourcesRequest(claims=claims)
    try:
        answers = asyncio.run(DRAPlugin(wire, service, calls).NodePrepareResources(request, Caller(2.0))).claims
        assert calls.running == ["prepare claim default/slow (UID uid-slow)"]
    finally:
        let_go.set()
        calls.stop()
    assert len(answers["uid-quick"].devices) == 1
    assert "not finished after 2 s; it goes on, and the kubelet asks again" in answers["uid-slow"].error


def test_get_info_answers_at_once_while_every_worker_hangs(
    serve: Serve, node: Node, kubelet: FakeKubelet, service: Service
) -> None:
    let_go = threading.Event()
    names = [f"c{number}" for number in range(8)]

    def hang(ref: ClaimRef) -> list:
        let_go.wait(30)
        return []

    service.acts = dict.fromkeys(names, hang)
    serve(workers=4)
    plugin = kubelet.plugin(DRIVER)
    calls = [
        plugin.stub.NodePrepareResources.future(
            plugin.wire.NodePrepareResourcesRequest(claims=[plugin.wire.Claim(uid=name, name=name)]), timeout=20
        )
        for name in names
    ]
    try:
        with grpc.insecure_channel(f"unix:{plugin.socket}") as channel:
            stub = pluginregistration_v1_pb2_grpc.RegistrationStub(channel)
            stub.GetInfo(pluginregistration_v1_pb2.InfoRequest(), timeout=5)
            stub.GetInfo(pluginregistration_v1_pb2.InfoRequest(), timeout=1)  # as long as the kubelet waits
    finally:
        let_go.set()
    assert all(call.result() for call in calls)
