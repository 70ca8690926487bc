"""Counts and times of the admission webhook, in a registry of its own.

dra_driver_webhook_reviews_total                              counter by result
dra_driver_webhook_review_seconds                             histogram
dra_driver_webhook_certificate_expires_timestamp_seconds      gauge: when the certificate in use expires, 0 without one
dra_driver_build_info, process_*                              as of the agent
"""

from __future__ import annotations

from collections.abc import Sequence

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

# From what a review costs to the longest time that an API server waits.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)


class ReviewMetrics:
    """`results` are the words that `review_done` will be told: series that begin at zero, so that rate() sees the first."""

    def __init__(self, version: str, driver_name: str, results: Sequence[str]) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._reviews = Counter(
            "dra_driver_webhook_reviews", "Admission reviews, by result.", ["result"], registry=self._registry
        )
        for result in results:
            self._reviews.labels(result)
        self._seconds = Histogram(
            "dra_driver_webhook_review_seconds",
            "Time to judge one review, without the network.",
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._expires = Gauge(
            "dra_driver_webhook_certificate_expires_timestamp_seconds",
            "When the certificate in use expires, as a Unix time.",
            registry=self._registry,
        )
        build = Info("dra_driver_build", "The version that is running.", registry=self._registry)
        build.info({"version": version, "driver": driver_name})
        ProcessCollector(registry=self._registry)

    def review_done(self, result: str, seconds: float) -> None:
        self._reviews.labels(result).inc()
        self._seconds.observe(seconds)

    def certificate_expires(self, seconds: float) -> None:
        self._expires.set(seconds)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)
