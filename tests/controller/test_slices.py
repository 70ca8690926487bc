from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_resource_slice_spec import V1ResourceSliceSpec
from kubernetes.client.models.v1beta1_resource_slice_spec import V1beta1ResourceSliceSpec
from kubernetes.client.models.v1beta2_resource_slice_spec import V1beta2ResourceSliceSpec

from dra_driver.controller.quantity import quantity, value
from dra_driver.controller.slices import attribute, desired, split
from dra_driver.model.device import Device, Taint, Version
from dra_driver.model.gpu import PciAddress
from tests.controller.conftest import device

TAINT = Taint("gpu.nvidia.com/xid", "79", "NoSchedule")
MODELS: dict[str, Any] = {
    "v1": V1ResourceSliceSpec,
    "v1beta2": V1beta2ResourceSliceSpec,
    "v1beta1": V1beta1ResourceSliceSpec,
}


def names(contents: tuple[dict[str, Any], ...]) -> list[list[str]]:
    return [[one["name"] for one in content.get("devices", [])] for content in contents]


def many(count: int, tainted: tuple[int, ...] = ()) -> list[Device]:
    return [device(f"gpu-{n:03}", taints=(TAINT,) if n in tainted else ()) for n in range(count)]


@pytest.mark.parametrize("version", sorted(MODELS))
def test_every_version_is_rendered_as_its_typed_model_wants_it(version: str) -> None:
    partition = Device(
        "mig-0",
        "mig",
        PciAddress.parse("0000:1b:00.0"),
        {"profile": "1g.5gb", "resource.kubernetes.io/numaNode": 0, "v": Version("1.2.3"), "on": False},
        {"memory": 5 * 2**30, "multiprocessors": 14},
        {"gpu-0-counter-set": {"memory": 5 * 2**30, "memory-slice-0": 1}},
        (TAINT,),
    )
    sets = {"gpu-0-counter-set": {"memory": 40 * 2**30, "memory-slice-0": 1}}
    contents, problems = desired([partition], sets, version)
    assert problems == ()
    assert [list(content) for content in contents] == [["sharedCounters"], ["devices"]]
    for content in contents:
        place = {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}}
        MODELS[version].model_validate({**place, **content})
    [body] = contents[1]["devices"]
    assert body["name"] == "mig-0"
    assert (body["basic"] if version == "v1beta1" else body) == {
        **({} if version == "v1beta1" else {"name": "mig-0"}),
        "attributes": {
            "on": {"bool": False},
            "profile": {"string": "1g.5gb"},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "v": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "5Gi"}, "multiprocessors": {"value": "14"}},
        "consumesCounters": [
            {
                "counterSet": "gpu-0-counter-set",
                "counters": {"memory": {"value": "5Gi"}, "memory-slice-0": {"value": "1"}},
            }
        ],
        "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}],
    }


def test_a_bool_is_not_an_int() -> None:
    assert attribute(True) == {"bool": True}
    assert attribute(1) == {"int": 1}


@pytest.mark.parametrize(
    ("count", "tainted", "sizes"),
    [
        (0, (), [0]),
        (128, (), [128]),
        (129, (), [128, 1]),
        (64, (0,), [64]),
        (65, (0,), [64, 1]),
        (65, (64,), [64, 1]),
        (128, (100,), [100, 28]),
        (200, (199,), [128, 71, 1]),
    ],
)
def test_slices_are_filled_up_to_the_limit(count: int, tainted: tuple[int, ...], sizes: list[int]) -> None:
    contents, _ = desired(many(count, tainted), {}, "v1")
    assert [len(names) for names in names(contents)] == sizes


@given(st.lists(st.booleans(), max_size=400))
def test_no_split_exceeds_a_limit_loses_a_device_or_changes_the_order(tainted: list[bool]) -> None:
    devices = [device(f"gpu-{n:03}", taints=(TAINT,) if bad else ()) for n, bad in enumerate(tainted)]
    chunks = list(split(devices))
    assert [one for chunk in chunks for one in chunk] == devices
    for chunk in chunks:
        assert 0 < len(chunk) <= (64 if any(one.taints for one in chunk) else 128)


def test_the_same_devices_in_any_order_give_the_same_slices() -> None:
    devices = many(140, (3, 70))
    assert desired(devices, {}, "v1") == desired(reversed(devices), {}, "v1")


def test_counter_sets_are_eight_to_a_slice_and_never_beside_devices() -> None:
    sets = {f"set-{n:02}": {"memory": n} for n in range(17)}
    contents, _ = desired(many(1), sets, "v1")
    assert [len(content.get("sharedCounters", [])) for content in contents] == [8, 8, 1, 0]
    assert all(len(content) == 1 for content in contents)


@pytest.mark.parametrize(
    ("attributes", "left_out"),
    [
        ({"long": "x" * 65}, "longer than 64 bytes"),
        ({"umlaut": "ü" * 33}, "longer than 64 bytes"),
        ({"broken": "\ud800"}, "not UTF-8"),
        ({"big": 2**63}, "does not fit 64 bits"),
        ({"semver": Version("570.124.06")}, "not a semantic version"),
        ({"semver": Version("v1.2.3")}, "not a semantic version"),
        ({"bad-name": 1}, "not a C identifier"),
        ({"x" * 33: 1}, "not a C identifier"),
        ({"Not A Domain/x": 1}, "not a DNS subdomain"),
        ({"/x": 1}, "not a DNS subdomain"),
    ],
)
def test_an_attribute_that_the_server_would_refuse_is_left_out_alone(attributes: dict[str, Any], left_out: str) -> None:
    contents, problems = desired([device("gpu-0", **attributes)], {}, "v1")
    [body] = contents[0]["devices"]
    assert sorted(body["attributes"]) == ["driverVersion", "ecc", "type", "uuid"]
    [problem] = problems
    assert left_out in problem
    assert "gpu-0" in problem


def test_64_bytes_are_fine() -> None:
    contents, problems = desired([device("gpu-0", exact="x" * 64, tiny=-(2**63))], {}, "v1")
    assert problems == ()
    assert contents[0]["devices"][0]["attributes"]["exact"] == {"string": "x" * 64}


def test_more_than_32_attributes_and_capacities_are_cut_and_said() -> None:
    contents, problems = desired([device("gpu-0", **{f"a{n:02}": n for n in range(40)})], {}, "v1")
    [body] = contents[0]["devices"]
    assert len(body["attributes"]) + len(body["capacity"]) == 32
    assert len(problems) == 40 + 4 + 1 - 32


@pytest.mark.parametrize("name", ["", "Gpu", "gpu_0", "-gpu", "gpu-", "g" * 64, "gpu.0"])
def test_a_device_with_an_impossible_name_is_left_out(name: str) -> None:
    contents, problems = desired([device(name), device("gpu-1")], {}, "v1")
    assert names(contents) == [["gpu-1"]]
    assert "DNS label" in problems[0]


def test_of_two_devices_with_one_name_the_pool_keeps_one() -> None:
    contents, problems = desired([device("gpu-0"), device("gpu-0")], {}, "v1")
    assert names(contents) == [["gpu-0"]]
    assert "same name" in problems[0]


def test_a_device_that_draws_from_unknown_counters_is_not_published_as_if_it_were_independent() -> None:
    orphan = Device("mig-0", "mig", PciAddress.parse("0000:1b:00.0"), {}, {}, {"set": {"memory": 1}})
    contents, problems = desired([orphan], {"set": {"other": 1}}, "v1")
    assert names(contents) == [[], []]
    assert "counter set 'set' of this pool has no counter memory" in problems[0]


@pytest.mark.parametrize(
    "taint", [Taint("no key", "", "NoSchedule"), Taint("k", "no value", "NoExecute"), Taint("k", "", "Maybe")]
)
def test_a_taint_that_the_server_would_refuse_is_left_out(taint: Taint) -> None:
    contents, problems = desired([device("gpu-0", taints=(taint, TAINT))], {}, "v1")
    assert [one["key"] for one in contents[0]["devices"][0]["taints"]] == ["gpu.nvidia.com/xid"]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("81559Mi", Fraction(85520809984)),
        ("1k", Fraction(1000)),
        ("1500m", Fraction(3, 2)),
        ("1e3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        (".5Gi", Fraction(2**29)),
        ("-1", Fraction(-1)),
        ("1K", None),
        ("1 Gi", None),
        ("NaN", None),
        ("Infinity", None),
        ("", None),
        ("٣", None),
    ],
)
def test_quantities_are_read_exactly_or_not_at_all(text: str, amount: Fraction | None) -> None:
    assert value(text) == amount


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_quantity_keeps_its_value(amount: int) -> None:
    assert value(quantity(amount)) == amount
