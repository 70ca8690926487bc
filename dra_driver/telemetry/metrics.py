"""Counts and times for Prometheus, in a registry of our own: nothing appears that is not listed here.

dra_driver_prepare_seconds, dra_driver_unprepare_seconds   histograms by result (ok, retry, give_up, tell_user)
dra_driver_devices_published                               gauge
dra_driver_device_problems                                 gauge
dra_driver_claims_prepared                                 gauge
dra_driver_damaged_records                                 gauge
dra_driver_device_plugin_gpus                              gauge by state (offered, held, given_twice)
dra_driver_resourceslice_writes_total                      counter by verb (create, update, delete) and result
dra_driver_build_info                                      1, with version and driver name
process_*                                                  CPU, memory, file descriptors; read from /proc when asked
"""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST

RESULTS = ("ok", "retry", "give_up", "tell_user")

# From what a prepare costs at best (a GET and three small files) to where the kubelet gives up (45 s).
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45)


class Metrics:
    """`ports.Telemetry` over prometheus_client. Writing costs about a microsecond; rendering happens when somebody asks."""

    def __init__(self, version: str, driver_name: str) -> None:
        # For the whole process: a `_created` time beside every series doubles the page and tells nobody anything.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._seconds = {
            "prepare": self._histogram("prepare", "Time to prepare one claim, from the kubelet's call to its answer."),
            "unprepare": self._histogram(
                "unprepare", "Time to unprepare one claim, from the kubelet's call to its answer."
            ),
        }
        self._devices = Gauge(
            "dra_driver_devices_published", "Devices in the ResourceSlices of this node.", registry=self._registry
        )
        self._problems = Gauge(
            "dra_driver_device_problems", "GPUs of this node that could not be read.", registry=self._registry
        )
        self._claims = Gauge(
            "dra_driver_claims_prepared", "Claims that are prepared on this node now.", registry=self._registry
        )
        self._damaged = Gauge(
            "dra_driver_damaged_records",
            "Claims of this node whose record was damaged, and that are neither rebuilt nor released yet.",
            registry=self._registry,
        )
        self._device_plugin = Gauge(
            "dra_driver_device_plugin_gpus",
            "GPUs of this node that a device plugin offers, that pods have through it, and that claims have as well.",
            ["state"],
            registry=self._registry,
        )
        self.device_plugin(0, 0, 0)
        self._writes = Counter(
            "dra_driver_resourceslice_writes",
            "Writes of ResourceSlices to the API server.",
            ["verb", "result"],
            registry=self._registry,
        )
        build = Info("dra_driver_build", "The version that is running.", registry=self._registry)
        build.info({"version": version, "driver": driver_name})
        ProcessCollector(registry=self._registry)

    def claim_done(self, operation: str, result: str, seconds: float) -> None:
        histogram = self._seconds.get(operation)
        if histogram is not None:
            histogram.labels(result).observe(seconds)

    def devices_seen(self, published: int, problems: int) -> None:
        self._devices.set(published)
        self._problems.set(problems)

    def claims_prepared(self, count: int) -> None:
        self._claims.set(count)

    def records_damaged(self, count: int) -> None:
        self._damaged.set(count)

    def device_plugin(self, offered: int, held: int, doubly: int) -> None:
        for state, count in (("offered", offered), ("held", held), ("given_twice", doubly)):
            self._device_plugin.labels(state).set(count)

    def slice_written(self, verb: str, result: str) -> None:
        self._writes.labels(verb, result).inc()

    def render(self) -> bytes:
        """The page in Prometheus' text format; serve it as `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def _histogram(self, operation: str, text: str) -> Histogram:
        histogram = Histogram(
            f"dra_driver_{operation}_seconds", text, ["result"], registry=self._registry, buckets=_SECONDS
        )
        for result in RESULTS:  # series that begin at zero: rate() sees the first failure
            histogram.labels(result)
        return histogram
