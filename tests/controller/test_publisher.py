from __future__ import annotations

import time
from typing import Any

from kubernetes.client.models.v1_resource_slice import V1ResourceSlice

from tests.controller.conftest import DRIVER, NODE, SLICES, Bench, device, until


def test_the_first_slice_is_what_kubernetes_expects(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    [item] = bench.slices()
    V1ResourceSlice.model_validate(item)
    assert item["metadata"]["name"].startswith(f"00000-{DRIVER}-{NODE}-")
    assert item["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid", "controller": True}
    ]
    assert item["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert item["spec"]["devices"][0] == {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-gpu-0"},
            "driverVersion": {"version": "580.65.6"},
            "ecc": {"bool": True},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    until(lambda: bench.counts.slices == [("create", "ok")])  # counted once the answer is there


def test_the_first_publish_does_not_wait_for_the_watch(bench: Bench) -> None:
    bench.stub.fail("GET", "watch=true", delay_s=30, times=None)
    bench.publisher.start()
    until(bench.settled, 1)


def test_publishing_twice_writes_nothing_the_second_time(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    writes = len(bench.stub.writes())
    for _ in range(3):
        bench.publish([*reversed(bench.devices)])
    time.sleep(0.7)
    assert len(bench.stub.writes()) == writes == 1


def test_a_restart_with_the_same_devices_writes_nothing(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.publisher.stop()
    before = bench.slices()
    looks = bench.looks
    bench.publisher = bench.new()
    bench.publisher.start()
    until(lambda: bench.looks > looks)
    bench.watching()
    assert bench.slices() == before
    assert len(bench.stub.writes()) == 1


def test_quantities_that_the_server_writes_another_way_are_no_difference(bench: Bench) -> None:
    def canonicalise(item: dict[str, Any]) -> None:
        for one in item["spec"]["devices"]:
            one["capacity"]["memory"]["value"] = "85520809984"

    bench.stub.mutate = canonicalise
    bench.publisher.start()
    until(bench.settled)
    bench.publish()
    assert len(bench.stub.writes()) == 1
    assert not bench.dropped


def test_one_changed_slice_is_one_put_of_the_same_generation(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.publish([device("gpu-0"), device("gpu-2")])
    [item] = bench.slices()
    assert item["spec"]["pool"]["generation"] == 1
    assert [r.method for r in bench.stub.writes()] == ["POST", "PUT"]


def test_no_devices_is_one_slice_without_devices(bench: Bench) -> None:
    bench.devices = []
    bench.publisher.start()
    until(lambda: len(bench.slices()) == 1)
    assert bench.slices()[0]["spec"]["devices"] == []


def test_deleted_slices_are_back_within_two_seconds(bench: Bench) -> None:
    bench.devices = [device(f"gpu-{n:03}") for n in range(200)]
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    for item in bench.slices():
        bench.stub.delete(SLICES, item["metadata"]["name"])
    until(bench.settled, 2)
    assert len(bench.slices()) == 2


def test_an_edit_by_somebody_else_is_set_right(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    [item] = bench.slices()
    item["spec"]["devices"][0]["attributes"]["type"] = {"string": "toaster"}
    bench.stub.put(SLICES, item)
    until(lambda: bench.slices()[0]["spec"]["devices"][0]["attributes"]["type"] == {"string": "gpu"}, 2)


def test_somebody_who_keeps_fighting_is_answered_ever_more_slowly(bench: Bench) -> None:
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        for item in bench.slices():
            bench.stub.delete(SLICES, item["metadata"]["name"])
        time.sleep(0.05)
    # At 0.5, 1.5 and 3.5 s after the first deletion; the next would be at 7.5 s.
    assert 2 <= bench.stub.count("POST") - 1 <= 4


def test_own_writes_are_seen_although_the_watch_lags(bench: Bench) -> None:
    bench.stub.watch_lag_s = 1.0
    bench.publisher.start()
    until(bench.settled)
    bench.watching()
    bench.publish([device("gpu-0")])
    bench.publish([device("gpu-0"), device("gpu-1"), device("gpu-2")])
    bench.publish([])
    bench.publish([device("gpu-0")])
    time.sleep(2.5)
    assert [r.method for r in bench.stub.writes()] == ["POST", "PUT", "PUT", "PUT", "PUT"]
    assert len(bench.slices()) == 1


def test_a_create_whose_answer_is_lost_is_not_done_twice(bench: Bench) -> None:
    bench.stub.fail("POST", "resourceslices", lose_answer=True)
    bench.publisher.start()
    until(lambda: bench.looks >= 2 and bench.settled())
    time.sleep(0.2)
    assert bench.stub.count("POST") == 1
    assert bench.counts.slices == [("create", "retry")]


def test_slices_of_older_generations_and_other_pools_of_this_driver_are_removed_and_only_those(bench: Bench) -> None:
    def slice_of(name: str, driver: str, node: str, pool: str, generation: int) -> dict[str, Any]:
        place = {"driver": driver, "nodeName": node, "devices": []}
        return {
            "metadata": {"name": name},
            "spec": {**place, "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1}},
        }

    foreign = {"00000-other-driver", "00000-other-node"}
    bench.stub.put(SLICES, slice_of("00000-other-driver", "nic.example.com", NODE, NODE, 1))
    bench.stub.put(SLICES, slice_of("00000-other-node", DRIVER, "node-2", "node-2", 1))
    bench.stub.put(SLICES, slice_of("00000-old", DRIVER, NODE, NODE, 1))
    bench.stub.put(SLICES, slice_of("node-1-gpu.nvidia.com-abcde", DRIVER, NODE, NODE, 3))
    bench.stub.put(SLICES, slice_of("00000-pool", DRIVER, NODE, "pool-of-yore", 9))
    bench.publisher.start()
    until(lambda: len(bench.slices()) == 3)
    [mine] = [item for item in bench.slices() if item["metadata"]["name"] not in foreign]
    assert mine["spec"]["pool"] == {"name": NODE, "generation": 4, "resourceSliceCount": 1}
    assert [r.method for r in bench.stub.writes()] == ["DELETE", "DELETE", "DELETE", "POST"]
