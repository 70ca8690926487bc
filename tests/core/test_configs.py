"""Which configuration applies to which result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dra_driver.core.configs import DEFAULT, ConfigRefusal, DecodedConfig, config_for, decode_all
from dra_driver.model.claim import AllocationResult, ClaimRef, OpaqueConfig
from dra_driver.model.errors import TellUser

REF = ClaimRef("uid-1", "default", "claim")
GPU, MIG = frozenset({"gpu"}), frozenset({"mig"})


def decode(parameters: Mapping[str, Any]) -> DecodedConfig:
    if "wrong" in parameters:
        raise ConfigRefusal([parameters["wrong"]])
    return DecodedConfig(parameters["name"], MIG if parameters.get("mig") else GPU)


def chosen(request: str, *configs: OpaqueConfig, kind: str = "gpu") -> str:
    decoded = decode_all(REF, configs, decode)
    return config_for(REF, AllocationResult(request, "node", "gpu-0"), kind, configs, decoded).strategy


def opaque(name: str, *requests: str, source: str = "FromClaim", **more: Any) -> OpaqueConfig:
    return OpaqueConfig(source, requests, {"name": name, **more})


@pytest.mark.parametrize(
    ("request_name", "configs", "expected"),
    [
        ("gpu", [], DEFAULT.strategy),
        ("gpu", [opaque("all")], "all"),
        ("gpu", [opaque("other", "big")], DEFAULT.strategy),
        ("gpu/small", [opaque("parent", "gpu")], "parent"),
        ("gpu/small", [opaque("exact", "gpu/small")], "exact"),
        ("gpu/small", [opaque("sibling", "gpu/large")], DEFAULT.strategy),
        ("gpu", [opaque("class", source="FromClass"), opaque("claim")], "claim"),
        ("gpu", [opaque("first"), opaque("second")], "second"),
        ("gpu", [opaque("gpu-config"), opaque("for-mig", mig=True)], "gpu-config"),
    ],
)
def test_the_last_entry_that_applies_wins(request_name: str, configs: list[OpaqueConfig], expected: str) -> None:
    assert chosen(request_name, *configs) == expected


def test_an_entry_that_names_the_request_must_fit_its_device() -> None:
    with pytest.raises(TellUser, match="the configuration is for mig devices, but gpu-0 is a gpu device"):
        chosen("gpu", opaque("for-mig", "gpu", mig=True))


def test_the_mistakes_of_all_entries_are_told_at_once() -> None:
    configs = [
        OpaqueConfig("FromClass", (), {"wrong": "kind: is required"}),
        OpaqueConfig("FromClaim", ("gpu",), {"wrong": "sharing: no"}),
    ]
    with pytest.raises(TellUser) as caught:
        decode_all(REF, configs, decode)
    assert "configuration 1 (from the DeviceClass): kind: is required" in str(caught.value)
    assert "configuration 2 (from the claim for request gpu): sharing: no" in str(caught.value)
