"""The configuration that users write: everything that exists decodes, and every mistake is told with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.resource.quantity import parse_quantity
from api.resource.v1beta1 import API_VERSION, ConfigMistakesError, GpuConfig, MigDeviceConfig, decode, json_schema


def config(kind: str = "GpuConfig", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def mistakes(parameters: object) -> list[str]:
    with pytest.raises(ConfigMistakesError) as caught:
        decode(parameters)
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    "sharing",
    [
        None,
        {"strategy": "TimeSlicing"},
        {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
        {"strategy": "TimeSlicing", "timeSlicingConfig": {}},
        {"strategy": "MPS"},
        {
            "strategy": "MPS",
            "mpsConfig": {
                "defaultActiveThreadPercentage": 50,
                "defaultPinnedDeviceMemoryLimit": "10Gi",
                "defaultPerDevicePinnedMemoryLimit": {"0": "5Gi", "GPU-1": 6442450944},
                "multiUser": True,
            },
        },
    ],
)
def test_every_field_of_a_gpu_config_decodes(sharing: dict[str, Any] | None) -> None:
    decoded = decode(config(sharing=sharing) if sharing else config())
    assert isinstance(decoded, GpuConfig)
    assert (decoded.sharing.strategy if decoded.sharing else None) == (sharing and sharing["strategy"])


def test_a_mig_config_takes_time_slicing_but_no_interval() -> None:
    assert isinstance(decode(config("MigDeviceConfig", sharing={"strategy": "TimeSlicing"})), MigDeviceConfig)
    wrong = config("MigDeviceConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}})
    assert mistakes(wrong) == ["sharing.timeSlicingConfig: unknown field; check its spelling and where it stands"]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {},
            [
                "apiVersion: is required; use resource.nvidia.com/v1beta1",
                "kind: is required; use GpuConfig or MigDeviceConfig",
            ],
        ),
        (config(kind="GpuConfg"), ["kind: 'GpuConfg' is not known to this driver; use GpuConfig or MigDeviceConfig"]),
        ([], ["must be an object, not a list"]),
        (None, ["must be an object, not null"]),
        (config(sharing={}), ["sharing.strategy: is required"]),
        (
            config(
                sharing={"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101, "multiUser": "yes"}}
            ),
            [
                "sharing.mpsConfig.defaultActiveThreadPercentage: should be less than or equal to 100, not 101",
                "sharing.mpsConfig.multiUser: should be a valid boolean, not 'yes'",
            ],
        ),
        (
            config(sharing={"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "512Ki"}}),
            [
                "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: '512Ki' is less than 1Mi, the least that MPS can limit to"
            ],
        ),
        (
            config(sharing={"strategy": "TimeSlicing", "mpsConfig": {}}),
            ["sharing: mpsConfig is given, but strategy is TimeSlicing: use strategy MPS or drop mpsConfig"],
        ),
    ],
)
def test_every_mistake_is_told_with_its_path(parameters: object, expected: list[str]) -> None:
    assert mistakes(parameters) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["strategy", "timeSlicingConfig", "mpsConfig", "interval", "multiUser", "defaultPinnedDeviceMemoryLimit", "x"]
)


@given(JSON)
def test_no_json_value_does_anything_but_decode_or_be_refused(value: object) -> None:
    with pytest.raises(ConfigMistakesError):
        decode(value)


@given(st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON)))
def test_no_sharing_does_anything_but_decode_or_be_refused(sharing: dict[str, Any]) -> None:
    try:
        decode(config(sharing=sharing))
    except ConfigMistakesError as error:
        assert all(str(mistake) for mistake in error.mistakes)


def test_a_configuration_of_46_kib_is_read_and_its_mistakes_stay_readable() -> None:
    found = mistakes(config(sharing={"strategy": "x" * 46 * 1024}))
    assert len(found) == 1
    assert len(found[0]) < 200


@pytest.mark.parametrize(
    ("text", "amount"), [("1Mi", 1 << 20), ("1.5Gi", 3 << 29), ("10k", 10000), ("1e3", 1000), ("512", 512)]
)
def test_quantities_mean_what_kubernetes_means(text: str, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["", "1K", "1 Gi", "NaN", "Infinity", "-1Gi", "1GiB", "١Gi", "1e999"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_the_json_schema_is_json_and_names_both_kinds() -> None:
    text = json.dumps(json_schema())
    assert "GpuConfig" in text
    assert "MigDeviceConfig" in text
