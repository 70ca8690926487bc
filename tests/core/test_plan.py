"""What would be done for a claim, or why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dra_driver.core.configs import DecodedConfig
from dra_driver.core.plan import Group, StillHeld, plan
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, OpaqueConfig
from dra_driver.model.device import Device
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser
from dra_driver.model.gpu import PciAddress
from dra_driver.sharing.exclusive import Exclusive

REF = ClaimRef("uid-1", "default", "claim")
DEVICES = {f"gpu-{n}": Device(f"gpu-{n}", "gpu", PciAddress(0, n, 0, 0), {}, {}) for n in range(4)}


def result(device: str, request: str = "gpu", pool: str = "node", *, admin: bool = False) -> AllocationResult:
    return AllocationResult(request, pool, device, admin_access=admin)


def planned(
    *results: AllocationResult,
    configs: Sequence[tuple[OpaqueConfig, DecodedConfig]] = (),
    holders: Mapping[str, Sequence[str]] | None = None,
    absent: Mapping[str, str] | None = None,
    taken: Mapping[str, str] | None = None,
) -> tuple[Group, ...]:
    claim = Claim(REF, results, tuple(config for config, _ in configs))
    decoded = [decoded for _, decoded in configs]
    modes = {"Exclusive": Exclusive()}
    return plan(claim, "node", DEVICES, decoded, modes, holders or {}, absent or {}, taken or {})


def test_devices_with_the_same_configuration_are_shared_together() -> None:
    only_a = OpaqueConfig("FromClaim", ("a",), {}), DecodedConfig("Exclusive", frozenset({"gpu"}))
    groups = planned(result("gpu-0", "a"), result("gpu-1", "b"), result("gpu-2", "a"), configs=[only_a])
    assert [[member.device.name for member in group.members] for group in groups] == [["gpu-0", "gpu-2"], ["gpu-1"]]


@pytest.mark.parametrize(
    ("results", "holders", "error", "words"),
    [
        ([], {}, GiveUp, "no device of this driver is allocated to it"),
        ([result("gpu-9")], {}, GiveUp, "this node has no such device"),
        ([result("gpu-0", pool="elsewhere")], {}, GiveUp, "was allocated from pool elsewhere"),
        ([result("gpu-0")], {"gpu-0": ["claim a/b (UID x)"]}, RetryLater, "still prepared for claim a/b"),
        ([result("gpu-0", admin=True), result("gpu-0")], {"gpu-0": ["x"]}, RetryLater, "still prepared"),
    ],
)
def test_what_cannot_be_prepared_is_refused_with_the_reason(
    results: list[AllocationResult], holders: dict[str, Sequence[str]], error: type[DriverError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        planned(*results, holders=holders)
    assert caught.value.next_step


def test_admin_access_looks_on_beside_a_holder() -> None:
    assert planned(result("gpu-0", admin=True), holders={"gpu-0": ["claim a/b (UID x)"]})


@pytest.mark.parametrize("strategy", ["TimeSlicing", "MPS"])
def test_sharing_that_is_not_offered_is_refused_before_anything_is_done(strategy: str) -> None:
    shared = OpaqueConfig("FromClaim", (), {}), DecodedConfig(strategy, frozenset({"gpu"}))
    with pytest.raises(TellUser, match=f"sharing strategy {strategy}, which this driver does not offer"):
        planned(result("gpu-0"), configs=[shared])


def test_a_device_in_trouble_is_waited_for_and_the_trouble_is_told() -> None:
    with pytest.raises(
        RetryLater, match="device gpu-9 was allocated, but cannot be used now: the driver is not loaded;"
    ):
        planned(result("gpu-9"), absent={"gpu-9": "the driver is not loaded"})


def test_a_device_that_others_gave_away_is_refused_but_not_to_those_who_look_on() -> None:
    taken = {"gpu-1": "was given to pod ml/train through nvidia.com/gpu by a device plugin"}
    with pytest.raises(RetryLater, match="device gpu-1 was given to pod ml/train") as caught:
        planned(result("gpu-0"), result("gpu-1"), taken=taken)
    assert not isinstance(caught.value, StillHeld), "nobody waits for it with a call open"
    assert "dra-driver migrate" in caught.value.next_step
    assert planned(result("gpu-1", admin=True), taken=taken)
    assert planned(result("gpu-0"), taken=taken)
