from __future__ import annotations

import re

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from dra_driver.ports import Telemetry
from dra_driver.telemetry.metrics import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_what_was_told_is_on_the_page() -> None:
    metrics = Metrics("1.2.3", "gpu.nvidia.com")
    telemetry: Telemetry = metrics
    telemetry.claim_done("prepare", "ok", 0.02)
    telemetry.claim_done("prepare", "retry", 41.0)
    telemetry.claim_done("unprepare", "ok", 0.001)
    telemetry.devices_seen(8, 1)
    telemetry.claims_prepared(3)
    telemetry.records_damaged(2)
    telemetry.device_plugin(8, 2, 1)
    telemetry.slice_written("create", "ok")
    telemetry.slice_written("create", "ok")
    found = samples(metrics)
    assert found["dra_driver_prepare_seconds_count", (("result", "ok"),)] == 1
    assert found["dra_driver_prepare_seconds_bucket", (("le", "0.025"), ("result", "ok"))] == 1
    assert found["dra_driver_prepare_seconds_bucket", (("le", "0.01"), ("result", "ok"))] == 0
    assert found["dra_driver_prepare_seconds_sum", (("result", "retry"),)] == 41.0
    assert found["dra_driver_unprepare_seconds_count", (("result", "ok"),)] == 1
    assert found["dra_driver_devices_published", ()] == 8
    assert found["dra_driver_device_problems", ()] == 1
    assert found["dra_driver_claims_prepared", ()] == 3
    assert found["dra_driver_damaged_records", ()] == 2
    assert found["dra_driver_device_plugin_gpus", (("state", "offered"),)] == 8
    assert found["dra_driver_device_plugin_gpus", (("state", "held"),)] == 2
    assert found["dra_driver_device_plugin_gpus", (("state", "given_twice"),)] == 1
    assert found["dra_driver_resourceslice_writes_total", (("result", "ok"), ("verb", "create"))] == 2
    assert found["dra_driver_build_info", (("driver", "gpu.nvidia.com"), ("version", "1.2.3"))] == 1
    assert found["process_resident_memory_bytes", ()] > 0


def test_results_that_have_not_happened_are_zero_not_absent() -> None:
    found = samples(Metrics("1", "d"))
    for result in ("ok", "retry", "give_up", "tell_user"):
        assert found["dra_driver_prepare_seconds_count", (("result", result),)] == 0


def test_every_metric_has_help_and_none_has_a_created_time() -> None:
    page = Metrics("1", "d").render().decode()
    families = set(re.findall(r"^# TYPE (\S+)", page, re.M))
    assert families == set(re.findall(r"^# HELP (\S+) \S+", page, re.M))
    assert "_created" not in page


def test_two_agents_in_one_process_count_apart_and_leave_the_global_registry_alone() -> None:
    before = {metric.name for metric in REGISTRY.collect()}
    one, two = Metrics("1", "a"), Metrics("1", "b")
    one.claims_prepared(5)
    assert samples(two)["dra_driver_claims_prepared", ()] == 0
    assert {metric.name for metric in REGISTRY.collect()} == before


def test_an_operation_that_is_not_known_raises_nothing() -> None:
    Metrics("1", "d").claim_done("dance", "ok", 1.0)
