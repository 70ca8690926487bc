"""The agent is killed before and after every effect on the file system, in everything that it does to claims.

A walk repeats its steps, killed one effect later each time: so "before the next one" is "after this one". What follows
each time is what follows a real crash: the agent starts again, and the node goes on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dra_driver.model.claim import ClaimRef
from tests.flows.crash import KEEP, START, CrashLab, Site, Walk, prepare, unprepare
from tests.flows.node import CLAIMS, GPU_0, GPU_1
from tests.kube.stub_api import StubApi

BOTH = (GPU_0, GPU_1)


@pytest.fixture
def walk(lab: CrashLab, place: Path, api: StubApi) -> Walk:
    return Walk(lab, place, api)


@pytest.fixture
def ref(walk: Walk) -> ClaimRef:
    return walk.claims.claim(*BOTH)


@pytest.fixture
def other(walk: Walk) -> ClaimRef:
    return walk.claims.claim(*BOTH)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_killed_in_prepare_the_claim_is_whole_or_nothing_of_it_is_left(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    seen = set()
    effects = walk(prepare(ref), then=lambda site: seen.add(site.outlives(ref, other, *BOTH)))
    assert seen == {True, False}
    renamed = [effect for effect in effects if "os.rename" in effect and ref.uid in effect]
    assert len(renamed) == 3, "started, spec, ready"


def test_killed_in_prepare_the_kubelet_may_ask_again_before_anybody_recovered(walk: Walk, ref: ClaimRef) -> None:
    def then(site: Site) -> None:
        site.does(prepare(ref))
        assert site.node.wholly_prepared(ref, *BOTH)
        site.does(unprepare(ref), START)
        assert site.is_clean()

    walk(prepare(ref), then=then)


def test_killed_in_prepare_it_may_be_unprepared_before_anybody_recovered(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    def then(site: Site) -> None:
        site.does(unprepare(ref))
        assert site.node.records() == site.node.specs() == []
        site.does(prepare(other), unprepare(other), START)
        assert site.is_clean()

    walk(prepare(ref), then=then)


def test_killed_while_preparing_again_a_ready_claim_stays_ready_all_the_time(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    def then(site: Site) -> None:
        assert site.node.wholly_prepared(ref, *BOTH)
        assert site.outlives(ref, other, *BOTH)

    walk(prepare(ref), first=lambda site: site.does(prepare(ref)), then=then)


def test_killed_in_unprepare_the_claim_is_whole_or_nothing_of_it_is_left(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    seen = set()
    walk(
        unprepare(ref),
        first=lambda site: site.does(prepare(ref)),
        then=lambda site: seen.add(site.outlives(ref, other, *BOTH)),
    )
    assert seen == {True, False}


def test_killed_in_unprepare_the_kubelet_asks_again(walk: Walk, ref: ClaimRef) -> None:
    def then(site: Site) -> None:
        site.does(unprepare(ref), START)
        assert site.is_clean()

    walk(unprepare(ref), first=lambda site: site.does(prepare(ref)), then=then)


def test_killed_in_prepare_over_what_an_interrupted_prepare_left(walk: Walk, ref: ClaimRef, other: ClaimRef) -> None:
    seen = set()
    effects = walk(
        prepare(ref), first=walk.interrupted(ref), then=lambda site: seen.add(site.outlives(ref, other, *BOTH))
    )
    assert seen == {True, False}
    assert any("os.remove" in effect for effect in effects), "it was undone first"


def test_killed_in_recovery_the_next_one_finishes_it(walk: Walk, ref: ClaimRef, other: ClaimRef) -> None:
    walk(
        START,
        first=walk.interrupted(ref),
        then=lambda site: site.outlives(ref, other, *BOTH),
    )


def test_killed_in_recovery_of_a_node_with_a_bit_of_everything(walk: Walk) -> None:
    ready, started, stray = (walk.claims.claim(device) for device in (GPU_0, GPU_1, GPU_0))
    damaged = walk.claims.claim(GPU_1, admin=True)
    interrupt = walk.interrupted(started)

    def first(site: Site) -> None:
        interrupt(site)
        walk.claims.claim(GPU_0, uid=stray.uid, name=stray.name)
        site.does(prepare(stray))
        site.node.record_path(stray).unlink()
        site.node.api.delete(CLAIMS, stray.name, stray.namespace)
        site.does(prepare(ready), prepare(damaged))
        cut_off(site.node.record_path(damaged))
        site.node.spec_path(ready).unlink()

    def then(site: Site) -> None:
        site.does(START, KEEP)
        assert site.node.wholly_prepared(ready, GPU_0)
        assert site.node.wholly_prepared(damaged), "rebuilt from the API server"
        assert site.node.records() == sorted([ready.uid, damaged.uid])
        assert len(site.node.specs()) == 2
        assert site.node.holders() == {GPU_0: [ready.uid]}
        assert site.node.litter() == []
        site.does(*map(unprepare, (ready, started, damaged, stray)))
        assert site.is_clean(), (site.node.records(), site.node.specs(), site.node.holders())

    walk(START, KEEP, first=first, then=then)


@pytest.mark.parametrize("again", [False, True])
def test_killed_while_a_damaged_record_is_rebuilt_its_devices_are_never_given_away(
    walk: Walk, ref: ClaimRef, other: ClaimRef, again: bool
) -> None:
    """`again`: the rebuilding was killed once before, when all was done but the last step."""

    def damage(site: Site) -> None:
        site.does(prepare(ref))
        cut_off(site.node.record_path(ref))

    twin = walk.node("rebuilt")
    damage(twin)
    ready = [number for number, effect in enumerate(twin.run(START, KEEP).effects) if "os.rename" in effect][-2]

    def first(site: Site) -> None:
        damage(site)
        if again:
            assert site.run(START, KEEP, kill_before=ready).killed
            assert site.node.record(ref)["phase"] == "started"

    def then(site: Site) -> None:
        assert site.refuses(prepare(other))[0] == "RetryLater"
        site.does(START, KEEP)
        assert site.outlives(ref, other, *BOTH)

    walk(START, KEEP, first=first, then=then)


def test_killed_while_a_ledger_that_was_wiped_is_rebuilt_the_next_one_finishes_it(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    def first(site: Site) -> None:
        site.does(prepare(ref))
        shutil.rmtree(site.node.directory / "run")

    def then(site: Site) -> None:
        site.does(START, KEEP)
        assert site.node.wholly_prepared(ref, *BOTH)
        assert site.outlives(ref, other, *BOTH)

    walk(START, KEEP, first=first, then=then)


def test_killed_when_a_claim_was_given_another_device_it_holds_the_old_or_the_new_one(walk: Walk) -> None:
    """The scheduler may allocate a claim anew; it keeps its UID."""
    moved = walk.claims.claim(GPU_0)

    def first(site: Site) -> None:
        walk.claims.claim(GPU_0, uid=moved.uid, name=moved.name)
        site.does(prepare(moved))
        walk.claims.claim(GPU_1, uid=moved.uid, name=moved.name)

    def then(site: Site) -> None:
        site.does(START, prepare(moved))
        assert site.node.wholly_prepared(moved, GPU_1)
        assert site.node.holders() == {GPU_1: [moved.uid]}
        site.does(unprepare(moved))
        assert site.is_clean()

    walk(prepare(moved), first=first, then=then)


def test_killed_anywhere_in_the_lives_of_three_claims_no_device_is_given_twice(walk: Walk) -> None:
    left, right, next_left = (walk.claims.claim(device) for device in (GPU_0, GPU_1, GPU_0))

    def then(site: Site) -> None:
        site.does(START)
        places = ((left, GPU_0), (right, GPU_1), (next_left, GPU_0))
        whole = [ref for ref, device in places if site.node.wholly_prepared(ref, device)]
        assert site.node.records() == [ref.uid for ref in whole]
        assert len(site.node.specs()) == len(whole)
        assert site.node.litter() == []
        assert not {left, next_left} <= set(whole)
        site.does(unprepare(left), unprepare(right), unprepare(next_left))
        assert site.is_clean()

    walk(
        prepare(left), prepare(right), unprepare(left), prepare(next_left), prepare(right), unprepare(right), then=then
    )
