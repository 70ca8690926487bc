"""A request's body in, status and body of the answer out: judged, counted and logged. Never raises."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from dra_driver.admission.review import MalformedReview, Verdict, judge

log = logging.getLogger(__name__)

RESULTS = ("allowed", "refused", "ignored", "malformed", "failed")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    content_type: str
    body: bytes


def sentence(status: int, text: str) -> Reply:
    return Reply(status, "text/plain; charset=utf-8", f"{text}\n".encode(errors="replace"))


class Door:
    """`count` is told the result of each review (one of RESULTS) and its seconds."""

    def __init__(self, driver: str, count: Callable[[str, float], None]) -> None:
        self._driver = driver
        self._count = count

    def answer(self, body: bytes) -> Reply:
        begin = time.monotonic()
        result, reply = self._judged(body)
        self._count(result, time.monotonic() - begin)
        return reply

    def _judged(self, body: bytes) -> tuple[str, Reply]:
        try:
            verdict = judge(body, self._driver)
            _tell(verdict)
            return verdict.result, Reply(200, "application/json", json.dumps(verdict.answer).encode())
        except MalformedReview as why:
            log.warning("a review that cannot be answered: %s", why, extra={"bytes": len(body)})
            return "malformed", sentence(400, f"reading an AdmissionReview of {len(body)} bytes: {why}")
        except Exception:
            log.exception("judging a review: this is a bug, please report it with this line")
            return "failed", sentence(500, "judging a review: bug in the driver; see the log of the webhook")


def _tell(verdict: Verdict) -> None:
    if verdict.why and verdict.result in ("refused", "allowed"):
        log.info("%s: %s", verdict.result, verdict.why, extra=verdict.about)
    elif verdict.why:
        log.warning("%s: %s", verdict.result, verdict.why, extra=verdict.about)
    else:
        log.debug("%s", verdict.result, extra=verdict.about)
