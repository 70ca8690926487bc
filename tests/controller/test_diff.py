from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_resource_slice import V1ResourceSlice

from dra_driver.controller.diff import Plan, Pool, created, deletion, difference, updated
from dra_driver.controller.semantics import canonical, content_of, dropped, with_taint_times
from dra_driver.controller.slices import Content, desired
from dra_driver.model.device import Device, Taint
from tests.controller.conftest import DRIVER, NODE, device

POOL = Pool(DRIVER, NODE, "v1")
_serial = itertools.count(1)


def contents(*groups: str) -> tuple[Content, ...]:
    """One slice for each group of device names: `contents("ab", "c")`."""
    return tuple(
        {"devices": [{"name": name, "capacity": {"m": {"value": "1Gi"}}} for name in group]} for group in groups
    )


def stored(body: dict[str, Any]) -> dict[str, Any]:
    """As the API server would store it."""
    item = copy.deepcopy(body)
    serial = next(_serial)
    metadata = item["metadata"]
    metadata.setdefault("name", f"{metadata.get('generateName', '')[:58]}{serial:05}")
    metadata.setdefault("uid", f"uid-{serial}")
    metadata["resourceVersion"] = str(serial)
    return item


def carried_out(plan: Plan, existing: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gone = {item["metadata"]["name"] for item in plan.deletes}
    after = {item["metadata"]["name"]: item for item in existing if item["metadata"]["name"] not in gone}
    for _, item, content in plan.updates:
        after[item["metadata"]["name"]] = stored(updated(item, content, plan, POOL, "n"))
    fresh = [stored(created(index, content, plan, POOL, "n")) for index, content in plan.creates]
    return [*after.values(), *fresh]


def published(*groups: str) -> list[dict[str, Any]]:
    return carried_out(difference([], contents(*groups), POOL), [])


def test_the_first_publish_is_generation_one() -> None:
    plan = difference([], contents("ab", "c"), POOL)
    assert (plan.generation, plan.count, len(plan.creates)) == (1, 2, 2)
    assert not plan.deletes
    assert not plan.updates


def test_what_is_there_is_not_written_again() -> None:
    assert not difference(published("ab", "c"), contents("ab", "c"), POOL)


def test_one_changed_slice_keeps_the_generation() -> None:
    plan = difference(published("ab", "c"), contents("ab", "d"), POOL)
    assert plan.generation == 1
    assert [index for index, _, _ in plan.updates] == [1]
    assert not plan.creates


def test_two_changed_slices_or_a_new_one_make_a_new_generation_of_all() -> None:
    for wanted in (("x", "y", "c"), ("a", "b", "c", "d")):
        plan = difference(published("a", "b", "c"), contents(*wanted), POOL)
        assert plan.generation == 2
        assert [index for index, _, _ in plan.updates] == [0, 1, 2]


def test_one_slice_less_is_a_delete_and_one_put_where_one_remains() -> None:
    plan = difference(published("a", "b"), contents("a"), POOL)
    assert plan.generation == 1
    assert len(plan.deletes) == len(plan.updates) == 1


def test_old_generations_strangers_without_index_and_seconds_of_an_index_go() -> None:
    [good] = published("a")
    good["spec"]["pool"]["generation"] = 5
    old, nameless, second, beyond = (copy.deepcopy(good) for _ in range(4))
    for item, name in (
        (old, "00000-old"),
        (nameless, "node-1-gpu.nvidia.com-x"),
        (second, "00000-a-second"),
        (beyond, "0000f-x"),
    ):
        item["metadata"]["name"] = name
    old["spec"]["pool"]["generation"] = 4
    second["spec"]["devices"] = []
    plan = difference([old, nameless, second, beyond, good], contents("a"), POOL)
    assert {item["metadata"]["name"] for item in plan.deletes} == {
        "00000-old",
        "00000-a-second",
        "node-1-gpu.nvidia.com-x",
        "0000f-x",
    }
    assert plan.generation == 5
    assert not plan.updates


def test_slices_of_others_are_never_touched_even_if_the_server_lists_them() -> None:
    others = published("a") + published("a")
    others[0]["spec"]["driver"] = "nic.example.com"
    others[1]["spec"]["nodeName"] = "node-2"
    malformed: list[dict[str, Any]] = [{}, {"metadata": None, "spec": []}, {"metadata": {"name": "x"}}, {"spec": {}}]
    plan = difference([*others, *malformed], contents("a"), POOL)
    assert not plan.deletes
    assert not plan.updates


@pytest.mark.parametrize("pool", [None, {}, {"name": NODE, "generation": "x"}, []])
def test_a_slice_of_ours_with_a_broken_pool_is_replaced_not_tripped_over(pool: Any) -> None:
    [item] = published("a")
    item["spec"]["pool"] = pool
    after = carried_out(difference([item], contents("a"), POOL), [item])
    assert not difference(after, contents("a"), POOL)


def test_the_name_of_a_slice_starts_with_its_index_in_hex() -> None:
    plan = Plan(1, 17)
    assert created(16, {}, plan, POOL, "n")["metadata"]["generateName"] == f"00010-{DRIVER}-{NODE}-"
    assert len(created(0, {}, plan, Pool(DRIVER, "n" * 253, "v1"), "n")["metadata"]["generateName"]) <= 253


def test_an_update_carries_what_the_object_has_and_its_version_and_the_owner_of_today() -> None:
    [item] = published("a")
    item["metadata"]["labels"] = {"kept": "yes"}
    item["metadata"]["managedFields"] = [{}]
    body = updated(item, contents("b")[0], Plan(3, 1), POOL, "uid-of-today")
    V1ResourceSlice.model_validate(body)
    assert body["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
    assert body["metadata"]["labels"] == {"kept": "yes"}
    assert "managedFields" not in body["metadata"]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-of-today"


def test_a_deletion_means_this_object_and_no_other() -> None:
    [item] = published("a")
    metadata = item["metadata"]
    assert deletion(item)["preconditions"] == {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


_groups = st.lists(st.text("abcdef", max_size=3), max_size=4)


@settings(max_examples=200)
@given(
    _groups, _groups, st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["delete", "edit", "bump"])), max_size=3)
)
def test_whatever_is_there_one_plan_makes_it_right_and_a_second_has_nothing_to_do(
    before: list[str], after: list[str], vandalism: list[tuple[int, str]]
) -> None:
    existing = published(*before)
    for position, deed in vandalism:
        if not existing:
            break
        item = existing[position % len(existing)]
        if deed == "delete":
            existing.remove(item)
        elif deed == "edit":
            item["spec"]["devices"] = [{"name": "vandal"}]
        else:
            item["spec"]["pool"]["generation"] += 3
    wanted = contents(*after)
    plan = difference(existing, wanted, POOL)
    result = carried_out(plan, existing)
    assert not difference(result, wanted, POOL)
    assert sorted(str(content_of(item)) for item in result) == sorted(map(str, wanted))
    assert len({item["spec"]["pool"]["generation"] for item in result}) <= 1
    assert all(item["spec"]["pool"]["resourceSliceCount"] == len(wanted) for item in result)
    assert plan.generation >= max((item["spec"]["pool"]["generation"] for item in existing), default=0)


def test_meaning_is_compared_not_spelling() -> None:
    one = {"devices": [{"name": "a", "capacity": {"m": {"value": "1024Mi"}}, "taints": []}]}
    other = {"devices": [{"name": "a", "capacity": {"m": {"value": "1Gi"}}, "attributes": {}}], "sharedCounters": None}
    assert canonical(one) == canonical(other)
    assert canonical({"devices": []}) == canonical({})


@pytest.mark.parametrize(
    "other",
    [
        {"devices": [{"name": "b"}, {"name": "a"}]},
        {"devices": [{"name": "a"}, {"name": "b", "attributes": {"capacity": {"string": "1Gi"}}}]},
        {"devices": [{"name": "a"}, {"name": "b", "bindsToNode": False}]},
    ],
)
def test_order_and_every_field_count(other: Content) -> None:
    assert canonical({"devices": [{"name": "a"}, {"name": "b"}]}) != canonical(other)


def test_attributes_are_compared_as_text_even_if_they_look_like_quantities() -> None:
    one, other = ({"devices": [{"attributes": {"capacity": {"string": text}}}]} for text in ("1Gi", "1024Mi"))
    assert canonical(one) != canonical(other)


def tainted(version: str = "v1", *, time: str | None = None) -> Content:
    made: Device = device("gpu-0", taints=(Taint("k", "v", "NoSchedule"), Taint("l", "", "NoExecute")))
    [content], _ = desired([made], {}, version)
    if time is not None:
        body = content["devices"][0]
        for taint in body.get("basic", body)["taints"]:
            taint["timeAdded"] = time
    return content


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_time_of_a_taint_is_no_difference_and_is_kept(version: str) -> None:
    server = tainted(version, time="2026-11-20T08:00:00Z")
    assert canonical(tainted(version)) == canonical(server)
    assert with_taint_times(tainted(version), [{"spec": server}]) == server


@pytest.mark.parametrize(
    ("field", "gate"),
    [
        ("taints", "DRADeviceTaints"),
        ("consumesCounters", "DRAPartitionableDevices"),
        ("bindsToNode", "DRADeviceBindingConditions"),
        ("allowMultipleAllocations", "DRAConsumableCapacity"),
        ("nodeAllocatableResources", "DRANodeAllocatableResources"),
    ],
)
@pytest.mark.parametrize("basic", [False, True])
def test_a_dropped_field_names_its_gate(field: str, gate: str, basic: bool) -> None:
    body: dict[str, Any] = {"capacity": {"m": {"value": "1"}}, field: [{"x": 1}]}
    less = {key: part for key, part in body.items() if key != field}
    sent, back = ({"devices": [{"name": "a", "basic": b} if basic else {"name": "a", **b}]} for b in (body, less))
    lost = dropped("s", sent, back)
    assert lost is not None
    assert lost.fields == (f"devices.{field}",)
    assert lost.gates == (gate,)
    assert gate in str(lost)


def test_nested_and_whole_slice_fields_name_their_gate_too() -> None:
    policy = {"devices": [{"name": "a", "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}}}]}
    without = {"devices": [{"name": "a", "capacity": {"m": {"value": "1"}}}]}
    assert (lost := dropped("s", policy, without)) is not None
    assert lost.gates == ("DRAConsumableCapacity",)
    assert (lost := dropped("s", {"sharedCounters": [{"name": "x"}]}, {})) is not None
    assert lost.gates == ("DRAPartitionableDevices",)
    assert (lost := dropped("s", without, {"devices": [{"name": "b", "capacity": {"m": {"value": "1"}}}]})) is not None
    assert lost.gates == ()
    assert dropped("s", without, without) is None
