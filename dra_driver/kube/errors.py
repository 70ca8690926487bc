"""What the API server answered instead of what was asked for, by what the caller does next.

ApiError                   DriverError + the HTTP status, the machine-readable reason
|-- NotFound               GiveUp      404, said by the API server about one object
|-- NotServed              RetryLater  404 about the path itself: API version not served, or not the API server at all
|-- Conflict               RetryLater  409: changed by somebody else, or already there
|-- Gone                   RetryLater  410: the resourceVersion or continue token is too old; list again
|-- TooManyRequests        RetryLater  429: `retry_after` seconds
|-- Unavailable            RetryLater  no answer (status 0: network, timeout, TLS), 408, 5xx, or an answer that is not JSON
|-- Unauthorized           TellUser    401
|-- Forbidden              TellUser    403: RBAC or an admission policy
`-- Invalid                TellUser    400, 422 and whatever else means that this request is wrong as it is

A body that is no Kubernetes Status is never quoted: it comes from a proxy and may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver import deep_json
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser

MESSAGE_LIMIT = 400

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACED_DEPTH = 2


class ApiError(DriverError):
    """`status` is the HTTP status (0: there was no answer), `reason` the Status object's reason, `retry_after` the
    seconds that the server asked to wait, if it did."""

    def __init__(
        self,
        doing: str,
        why: str,
        next_step: str = "",
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(doing, why, next_step)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ApiError, GiveUp):
    pass


class NotServed(ApiError, RetryLater):
    pass


class Conflict(ApiError, RetryLater):
    pass


class Gone(ApiError, RetryLater):
    pass


class TooManyRequests(ApiError, RetryLater):
    pass


class Unavailable(ApiError, RetryLater):
    pass


class Unauthorized(ApiError, TellUser):
    pass


class Forbidden(ApiError, TellUser):
    pass


class Invalid(ApiError, TellUser):
    pass


def from_answer(method: str, path: str, status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error for an answer outside 200..299. `path` may hold a query."""
    answer = _status_object(body)
    return from_status(method, path, status, answer, _seconds(headers.get("retry-after")))


def from_status(
    method: str, path: str, status: int, answer: Mapping[str, Any] | None, retry_after: float | None = None
) -> ApiError:
    """The error for a Status object (also the one inside a watch); None when the answer held no Status object."""
    kind = _kind(status, answer)
    reason = message = ""
    if answer is not None:
        reason = str(answer.get("reason") or "")
        message = " ".join(str(answer.get("message") or "").split())
        details = answer.get("details")
        if retry_after is None and isinstance(details, dict):
            retry_after = _seconds(details.get("retryAfterSeconds"))
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 3] + "..."
    said = message or ("no message" if answer is not None else "the answer is no Kubernetes Status object")
    return kind(
        f"{method} {path.split('?', 1)[0]}",
        f"HTTP {status}{' ' + reason if reason else ''}: {said}",
        _next_step(kind, method, path, message),
        status=status,
        reason=reason,
        retry_after=retry_after,
    )


def _kind(status: int, answer: Mapping[str, Any] | None) -> type[ApiError]:
    if status == 404:
        # Without this a proxy's 404, or an API version that an upgrade removed, reads as "the claim is gone", and what
        # is prepared for a running pod would be undone.
        details = answer.get("details") if answer is not None else None
        named = isinstance(details, dict) and bool(details.get("name"))
        return NotFound if named else NotServed
    known: dict[int, type[ApiError]] = {
        401: Unauthorized,
        403: Forbidden,
        408: Unavailable,
        409: Conflict,
        410: Gone,
        429: TooManyRequests,
    }
    if status in known:
        return known[status]
    return Invalid if 400 <= status < 500 else Unavailable


def _next_step(kind: type[ApiError], method: str, path: str, message: str) -> str:
    verb, resource = wanted(method, path)
    steps: dict[type[ApiError], str] = {
        NotServed: "check that the API server serves this API version and that the address leads to the API server",
        Conflict: "read it again and retry",
        Gone: "list again",
        TooManyRequests: "wait; if it stays, look at the API server's priority and fairness for this service account",
        Unavailable: "retry; if it stays, look at the API server's health",
        Unauthorized: "check the service account token or kubeconfig of the driver",
        Forbidden: f"an admission policy or webhook refused to {verb} {resource}: see its message",
    }
    if kind in (Forbidden, Invalid) and " cannot " in f" {message}":
        # 1.36+ refuses status.devices with 422 where everything else is refused with 403.
        if "resourceclaims/driver" in message:
            return "allow associated-node:update and associated-node:patch on resourceclaims/driver in the driver's ClusterRole"
        return f"allow verb {verb!r} on {resource} in the driver's ClusterRole (RBAC)"
    return steps.get(kind, "")


def wanted(method: str, path: str) -> tuple[str, str]:
    """RBAC verb and `resource.group` of a request: GET /apis/g/v/namespaces/n/things/x -> ("get", "things.g")."""
    bare, _, query = path.partition("?")
    parts = [part for part in bare.split("/") if part]
    group = parts[1] if parts[:1] == ["apis"] and len(parts) > 1 else ""
    rest = parts[3:] if group else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > _NAMESPACED_DEPTH:
        rest = rest[2:]
    if not rest:
        return "get", bare
    resource = "/".join([rest[0], *rest[2:]]) + (f".{group}" if group else "")
    if method == "GET":
        verb = "get" if len(rest) > 1 else ("watch" if "watch=" in query else "list")
    else:
        verb = _VERBS.get(method, method.lower())
    return verb, resource


def _status_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = deep_json.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else None


def _seconds(value: Any) -> float | None:
    # Retry-After may also be a date; the API server never sends one, and a proxy's clock is not ours.
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None
