"""What the agent answers to claims that no kubelet and no scheduler would bring."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dra_driver.model.claim import ClaimRef
from e2e.bench.agent import Kubelet
from e2e.installation import until
from e2e.tests.by_hand import NO_SUCH_DEVICE, allocated, kubelet_of, refused, some_device, waiting
from e2e.tests.space import Space

pytestmark = pytest.mark.once
NEW_POD = "if its pod is still there, delete the pod: a new one gets a claim of its own"


@pytest.fixture
def kubelet(space: Space) -> Iterator[Kubelet]:
    with kubelet_of(space, "node-b") as caller:
        yield caller


def test_a_claim_of_the_same_name_but_another_uid_is_not_taken_for_it(space: Space, kubelet: Kubelet) -> None:
    new = allocated(space, "again", some_device(space))
    old = ClaimRef(str(uuid.uuid4()), space.name, "again")
    assert f"it was replaced: the claim of this name now has UID {new.uid}; {NEW_POD}" in refused(kubelet, old)
    kubelet.prepare([new])
    kubelet.unprepare([old])
    assert len(space.records("node-b")) == 1, "what belongs to the new one stays"
    kubelet.unprepare([new])


def test_a_claim_that_does_not_exist_or_is_not_allocated_is_refused(space: Space, kubelet: Kubelet) -> None:
    gone = ClaimRef(str(uuid.uuid4()), space.name, "gone")
    assert f"it does not exist any more; {NEW_POD}" in refused(kubelet, gone)
    early, _ = waiting(space, "early")
    assert "it is not allocated" in refused(kubelet, early)
    kubelet.unprepare([gone, early])
    assert not space.leftovers()


@pytest.mark.parametrize(
    ("device", "pool", "words"),
    [
        (NO_SUCH_DEVICE, "node-b", "was allocated, but this node has no such device"),
        ("", "node-a", "was allocated from pool node-a, this node publishes pool node-b"),
    ],
    ids=["no-such-device", "another-pool"],
)
def test_a_device_that_is_not_this_nodes_is_refused_and_said_in_an_event(
    space: Space, kubelet: Kubelet, device: str, pool: str, words: str
) -> None:
    ref = allocated(space, "elsewhere", device or some_device(space), pool)
    assert words in refused(kubelet, ref)
    said = until("an Event on the claim", lambda: space.warnings("elsewhere"), 20)
    assert "PrepareRefused" in said
    assert words in said
    assert not space.leftovers()


def test_a_device_is_given_to_one_claim_only_whatever_is_allocated(space: Space, kubelet: Kubelet) -> None:
    device = some_device(space)
    first, second = (allocated(space, name, device) for name in ("first", "second"))
    kubelet.prepare([first])
    assert f"device {device} is still prepared for {first}" in refused(kubelet, second)
    kubelet.unprepare([first])
    kubelet.prepare([second])
    kubelet.unprepare([second])
    assert not space.leftovers()
