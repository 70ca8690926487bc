"""What is refused, what is let through, and what is no review at all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.admission.door import RESULTS, Door
from dra_driver.admission.review import MISTAKES_SHOWN, MalformedReview, Verdict, judge
from tests.admission.reviews import (
    BAD,
    BAD_SENTENCE,
    DRIVER,
    GOOD,
    NOT_OFFERED,
    PATHS,
    UID,
    body,
    entry,
    gpu,
    manifest,
    review,
)

VERSIONS = ("v1", "v1beta2", "v1beta1")


def judged(content: object) -> Verdict:
    return judge(body(content), DRIVER)


def response(verdict: Verdict) -> dict[str, Any]:
    assert verdict.answer["apiVersion"] == "admission.k8s.io/v1"
    assert verdict.answer["kind"] == "AdmissionReview"
    found: dict[str, Any] = verdict.answer["response"]
    assert found["uid"] == UID
    assert found["allowed"] is (verdict.result != "refused")
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", PATHS)
def test_wrong_configuration_is_refused_with_its_path_in_every_kind_and_version(kind: str, version: str) -> None:
    verdict = judged(review(manifest(entry(GOOD), entry(BAD), kind=kind, version=version)))
    assert verdict.result == "refused"
    status = response(verdict)["status"]
    name = "mine" if kind == "DeviceClass" else "default/mine"
    assert status["message"] == (
        f"checking the configuration of {kind} {name} for gpu.nvidia.com: "
        f"{PATHS[kind]}[1].opaque.parameters.{BAD_SENTENCE}; "
        "correct the opaque parameters (check a file with `dra-driver validate FILE`)"
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert f"{cause['field']}: {cause['message']}" == f"{PATHS[kind]}[1].opaque.parameters.{BAD_SENTENCE}"


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("configs", [(), (entry(GOOD),), (entry(BAD, "gpu.example.com"), entry(GOOD))])
def test_right_configuration_and_other_drivers_are_let_through(kind: str, configs: tuple[dict[str, Any], ...]) -> None:
    verdict = judged(review(manifest(*configs, kind=kind)))
    assert (verdict.result, verdict.why) == ("allowed", "")
    assert set(response(verdict)) == {"uid", "allowed"}


@pytest.mark.parametrize("strategy", NOT_OFFERED)
@pytest.mark.parametrize("kind", PATHS)
def test_what_will_be_refused_when_it_is_prepared_is_let_through_with_a_warning(kind: str, strategy: str) -> None:
    verdict = judged(review(manifest(entry(GOOD), entry(NOT_OFFERED[strategy]), kind=kind)))
    assert verdict.result == "allowed"
    assert response(verdict)["warnings"] == [verdict.why]
    assert verdict.why == (
        f"{PATHS[kind]}[1].opaque.parameters: asks for sharing strategy {strategy}, which this driver does not offer "
        "(it offers: Exclusive); remove `sharing` from the configuration of the claim or DeviceClass"
    )
    assert len(verdict.why) <= 256, "API servers may cut it"


def test_a_warning_is_told_beside_a_mistake_and_not_for_what_was_there_before() -> None:
    shared = entry(NOT_OFFERED["MPS"])
    assert len(response(judged(review(manifest(shared, entry(BAD)))))["warnings"]) == 1
    assert "warnings" not in response(judged(review(manifest(shared, entry(GOOD)), manifest(shared))))
    assert "warnings" not in response(judged(review(manifest(entry(NOT_OFFERED["MPS"], "gpu.example.com")))))
    many = manifest(*(entry(NOT_OFFERED["MPS"]) for _ in range(100)))
    assert len(response(judged(review(many)))["warnings"]) == MISTAKES_SHOWN


def test_the_configuration_of_an_installation_with_another_name_is_judged_by_that_name() -> None:
    content = body(review(manifest(entry(BAD, "gpu.example.com"))))
    assert judge(content, "gpu.example.com").result == "refused"


def test_the_object_need_not_say_its_kind() -> None:
    claim = manifest(entry(BAD))
    content = review(claim)
    del content["request"]["object"]["kind"]
    assert judged(content).result == "refused"


def test_an_update_that_leaves_the_configuration_as_it_was_is_let_through() -> None:
    old = manifest(entry(GOOD), entry(BAD), kind="DeviceClass")
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"team": "a"}
    assert judged(review(new, old)).result == "allowed"
    new["spec"]["config"].reverse()
    assert judged(review(new, old)).result == "allowed"
    new["spec"]["config"].append(entry(gpu(strategy="MPS", mpsConfig={"multiUsr": True})))
    verdict = judged(review(new, old))
    assert verdict.result == "refused"
    assert "multiUsr" in verdict.why
    assert "TimeSlice'" not in verdict.why


def test_a_number_in_the_place_of_a_bool_is_a_change() -> None:
    old = manifest(entry(gpu(strategy="MPS", mpsConfig={"multiUser": True})), kind="DeviceClass")
    new = manifest(entry(gpu(strategy="MPS", mpsConfig={"multiUser": 1})), kind="DeviceClass")
    assert judged(review(new, old)).result == "refused"


def test_what_is_being_deleted_is_let_through() -> None:
    new = manifest(entry(BAD))
    new["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert judged(review(new, manifest(entry(GOOD)))).result == "allowed"


@pytest.mark.parametrize("more", [{"operation": "DELETE"}, {"operation": "CONNECT"}, {"subResource": "status"}])
def test_what_writes_no_configuration_is_not_judged(more: dict[str, Any]) -> None:
    verdict = judged(review(manifest(entry(BAD)), **more))
    assert verdict.result == "ignored"
    assert response(verdict)["allowed"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"group": "", "version": "v1", "kind": "Pod"}, "Pod"),
        ({"group": "example.com", "version": "v1", "kind": "ResourceClaim"}, "ResourceClaim"),
        ({"group": "resource.k8s.io", "version": "v1", "kind": "ResourceSlice"}, "ResourceSlice"),
        ({"group": "resource.k8s.io", "kind": ["ResourceClaim"]}, "an object of no kind"),
        (None, "an object of no kind"),
    ],
)
def test_unknown_kinds_are_let_through_with_a_warning(kind: object, said: str) -> None:
    verdict = judged(review(manifest(entry(BAD)), kind=kind))
    assert verdict.result == "ignored"
    assert response(verdict)["warnings"] == [
        f"dra-driver: {said} holds no configuration that this webhook judges; check its rules"
    ]


def test_an_object_that_gets_its_name_later_is_named_as_far_as_it_is_known() -> None:
    claim = manifest(entry(BAD))
    claim["metadata"] = {"generateName": "train-", "namespace": "ml"}
    assert "ResourceClaim ml/train-" in judged(review(claim)).why


def test_hundreds_of_mistakes_do_not_make_an_endless_answer() -> None:
    wrong = {**GOOD, **{f"field{number}": 1 for number in range(500)}}
    verdict = judged(review(manifest(entry(wrong))))
    assert "and 480 more; correct" in verdict.why
    assert len(body(verdict.answer)) < 10_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not JSON: Expecting value"),
        (b"AdmissionReview", "it is not JSON"),
        (b'{"kind": "AdmissionReview"', "it is not JSON"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8"),
        (b'{"kind": "\xe4"}', "it is not UTF-8: invalid continuation byte at byte 10"),
        (b"[" * 100_000, "it is not JSON"),
        (b"9" * 10_000, "it is not JSON: Exceeds the limit"),
        (b"null", "it is no AdmissionReview"),
        (b"[]", "it is no AdmissionReview"),
        (b'{"kind": "Pod", "apiVersion": "v1"}', "it is no AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "it is not of admission.k8s.io/v1"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "it has no request"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": []}', "it has no request"),
        (body({**review(manifest()), "request": {"uid": 7}}), "its request has no uid"),
        (body(review(manifest(), object=None)), "its request has no object"),
    ],
)
def test_what_is_no_review_is_answered_in_words(data: bytes, why: str) -> None:
    with pytest.raises(MalformedReview, match=f"^{why}"):
        judge(data, DRIVER)
    counted: list[str] = []
    reply = Door(DRIVER, lambda result, _: counted.append(result)).answer(data)
    assert (reply.status, counted) == (400, ["malformed"])
    assert reply.body.decode().startswith(f"reading an AdmissionReview of {len(data)} bytes: {why}")


@pytest.mark.parametrize("levels", [900, 5000, 100_000])
def test_parameters_nested_deeper_than_python_decodes_are_judged_like_others(levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    text = json.dumps(review(manifest(entry("DEEP"), entry(BAD)))).replace('"DEEP"', deep)
    why = judge(text.encode(), DRIVER).why
    assert "config[0].opaque.parameters.kind: is required" in why
    assert BAD_SENTENCE in why
    others = json.dumps(review(manifest(entry("DEEP", "gpu.example.com"), entry(GOOD)))).replace('"DEEP"', deep)
    assert judge(others.encode(), DRIVER).result == "allowed"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SHAPED = st.fixed_dictionaries(
    {
        "uid": st.just(UID) | JSON,
        "kind": st.fixed_dictionaries(
            {"group": st.just("resource.k8s.io") | JSON, "kind": st.sampled_from(list(PATHS)) | JSON}
        )
        | JSON,
        "operation": st.sampled_from(["CREATE", "UPDATE", "DELETE"]) | JSON,
    },
    optional={
        "name": JSON,
        "namespace": JSON,
        "userInfo": JSON,
        "subResource": JSON,
        "object": st.fixed_dictionaries({}, optional={"metadata": JSON, "spec": JSON}) | JSON,
        "oldObject": JSON,
    },
)


def answered(data: bytes) -> None:
    counted: list[str] = []
    reply = Door(DRIVER, lambda result, _: counted.append(result)).answer(data)
    assert reply.status in (200, 400)
    assert counted[0] in set(RESULTS) - {"failed"}
    if reply.status == 200:
        assert isinstance(json.loads(reply.body)["response"]["allowed"], bool)


@given(st.binary() | JSON.map(body))
def test_whatever_comes_is_answered(data: bytes) -> None:
    answered(data)


@given(SHAPED)
def test_whatever_a_request_holds_it_is_answered(request: dict[str, Any]) -> None:
    answered(body({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))


@given(st.sampled_from(list(PATHS)), JSON, st.dictionaries(st.text(), JSON, max_size=4))
def test_whatever_configuration_holds_it_is_answered(kind: str, parameters: object, more: dict[str, Any]) -> None:
    for configuration in (parameters, {**GOOD, **more}, gpu(**more)):
        answered(body(review(manifest(entry(configuration), kind=kind))))
