"""One AdmissionReview in, one verdict out. Pure. Shapes: admission.k8s.io/v1 of the Kubernetes API reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.resource.objects import CONFIG_PATHS, Configuration, configurations
from dra_driver import deep_json
from dra_driver.model.strategy import warning

GROUP = "resource.k8s.io"
API_VERSION = "admission.k8s.io/v1"
# A sentence is about 100 bytes. Who has more mistakes than this has one, over and over.
MISTAKES_SHOWN = 20


class MalformedReview(ValueError):
    """What came is no AdmissionReview; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`result` is allowed, refused or ignored (let through unjudged); `answer` the AdmissionReview to send back; `about`
    the fields of a log line; `why` what the user is told, as a refusal or a warning, empty for nothing."""

    result: str
    answer: dict[str, Any]
    about: dict[str, object]
    why: str = ""


def judge(body: bytes, driver: str) -> Verdict:
    """MalformedReview when it cannot be answered."""
    return _verdict(_request(_decoded(body)), driver)


def _decoded(body: bytes) -> object:
    try:
        body.decode("utf-8")  # JSON in UTF-16 would be decoded, too
        return deep_json.loads(body)
    except UnicodeDecodeError as error:
        raise MalformedReview(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise MalformedReview(f"it is not JSON: {error}") from None


def _request(review: object) -> dict[str, Any]:
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise MalformedReview("it is no AdmissionReview")
    if review.get("apiVersion") != API_VERSION:
        raise MalformedReview(
            f"it is not of {API_VERSION}: set admissionReviewVersions: [v1] in the webhook configuration"
        )
    request = review.get("request")
    if not isinstance(request, dict):
        raise MalformedReview("it has no request")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise MalformedReview("its request has no uid")
    return request


def _verdict(request: dict[str, Any], driver: str) -> Verdict:
    about = _about(request)
    kind = _mapping(request.get("kind"))
    name = kind.get("kind")
    if kind.get("group") != GROUP or not isinstance(name, str) or name not in CONFIG_PATHS:
        why = f"{about['kind']} holds no configuration that this webhook judges; check its rules"
        return Verdict("ignored", _answer(request, warnings=[f"dra-driver: {why}"]), about, why)
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return Verdict("ignored", _answer(request), about)
    new, old = request.get("object"), request.get("oldObject")
    if not isinstance(new, dict):
        raise MalformedReview("its request has no object")
    if _mapping(new.get("metadata")).get("deletionTimestamp"):
        # Controllers that remove finalizers must get through, whatever was let in before this webhook was there.
        return Verdict("allowed", _answer(request), about)
    before = {_canonical(found.parameters) for found in configurations(old, driver, name)}
    brought = [found for found in configurations(new, driver, name) if _canonical(found.parameters) not in before]
    mistakes = [mistake for found in brought for mistake in found.mistakes()]
    warnings = _warnings(brought)
    if not mistakes:
        return Verdict("allowed", _answer(request, warnings=warnings), about, "; ".join(warnings))
    why = _sentence(f"checking the configuration of {about['kind']} {about['object']} for {driver}", mistakes)
    return Verdict("refused", _answer(request, _status(request, why, mistakes), warnings), about, why)


def _warnings(brought: Sequence[Configuration]) -> list[str]:
    """Of what is right, but will be refused when it is prepared. kubectl shows each on a line; API servers cut them at 256
    letters when there are many."""
    told = ((found.path, warning(found.strategy())) for found in brought)
    return [f"{path}: {sentence}" for path, sentence in told if sentence][:MISTAKES_SHOWN]


def _sentence(doing: str, mistakes: list[tuple[str, str]]) -> str:
    shown = [f"{path}: {sentence}" for path, sentence in mistakes[:MISTAKES_SHOWN]]
    if more := len(mistakes) - len(shown):
        shown.append(f"and {more} more")
    return f"{doing}: {'; '.join(shown)}; correct the opaque parameters (check a file with `dra-driver validate FILE`)"


def _status(request: dict[str, Any], message: str, mistakes: list[tuple[str, str]]) -> dict[str, Any]:
    """As the API server's own validation answers, so that kubectl shows one line for each mistake."""
    kind = _mapping(request.get("kind"))
    causes = [
        {"reason": "FieldValueInvalid", "message": sentence, "field": path}
        for path, sentence in mistakes[:MISTAKES_SHOWN]
    ]
    details = {"group": GROUP, "kind": kind.get("kind"), "name": _name(request), "causes": causes}
    return {"status": "Failure", "code": 422, "reason": "Invalid", "message": message, "details": details}


def _answer(
    request: dict[str, Any], refusal: dict[str, Any] | None = None, warnings: list[str] | None = None
) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": refusal is None}
    if refusal is not None:
        response["status"] = refusal
    if warnings:
        response["warnings"] = warnings
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _about(request: dict[str, Any]) -> dict[str, object]:
    kind = _mapping(request.get("kind"))
    namespace, name = _text(request, "namespace"), _name(request)
    return {
        "operation": _text(request, "operation"),
        "kind": _text(kind, "kind") or "an object of no kind",
        "object": f"{namespace}/{name}" if namespace else name,
        "user": _text(_mapping(request.get("userInfo")), "username"),
    }


def _name(request: dict[str, Any]) -> str:
    """An object that gets its name from generateName has none yet."""
    metadata = _mapping(_mapping(request.get("object")).get("metadata"))
    return _text(request, "name") or _text(metadata, "name") or _text(metadata, "generateName") or "<no name>"


def _canonical(parameters: object) -> str:
    """Python takes 1 for true; JSON does not."""
    return json.dumps(parameters, sort_keys=True)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(mapping: dict[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""
