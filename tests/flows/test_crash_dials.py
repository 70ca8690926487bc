"""The crash walk for devices that have to be made and unmade: effects on hardware, prior values, undo in reverse order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_driver.model.claim import ClaimRef
from tests.flows.crash import KEEP, START, CrashLab, Site, Walk, prepare, unprepare
from tests.flows.node import GPU_0
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually

DIALS = ("dial-0", "dial-1")


@pytest.fixture
def walk(lab: CrashLab, place: Path, api: StubApi) -> Walk:
    return Walk(lab, place, api, DIALS)


@pytest.fixture
def site(walk: Walk) -> Site:
    return walk.node("site")


@pytest.fixture
def ref(walk: Walk) -> ClaimRef:
    return walk.claims.claim("dial-0", GPU_0)


@pytest.fixture
def other(walk: Walk) -> ClaimRef:
    return walk.claims.claim("dial-0", GPU_0)


HELD = ("dial-0", GPU_0)


def made(site: Site) -> bool:
    assert site.hardware is not None
    state = site.hardware.state("dial-0")
    return state.get("mode") == "on" and state.get("clock") == "900" and "instance" in state


def stick(site: Site, name: str, times: int = 1) -> None:
    assert site.hardware is not None
    (site.hardware.directory / "dial-0/stuck").write_text(f"{name} {times}")


def test_killed_in_prepare_hardware_is_made_wholly_or_found_as_it_was(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    seen = set()
    effects = walk(prepare(ref), then=lambda site: seen.add(site.outlives(ref, other, *HELD)))
    assert seen == {True, False}
    assert sum("/dial-0/" in effect for effect in effects if "run/ledger" not in effect) == 3, "mode, clock, instance"


def test_killed_in_prepare_asked_again_before_recovery_prior_values_are_not_forgotten(
    walk: Walk, ref: ClaimRef
) -> None:
    """The second try must not take our own values for those that were there before us."""

    def then(site: Site) -> None:
        site.does(prepare(ref))
        assert site.node.wholly_prepared(ref, *HELD)
        assert made(site)
        site.does(unprepare(ref), START)
        assert site.is_clean()

    walk(prepare(ref), then=then)


def test_killed_in_unprepare_a_claim_half_taken_apart_is_made_again_or_gone(
    walk: Walk, ref: ClaimRef, other: ClaimRef
) -> None:
    def then(site: Site) -> None:
        if site.node.wholly_prepared(ref, *HELD):
            assert made(site), "answered as prepared, and the hardware is not"
        site.outlives(ref, other, *HELD)

    walk(unprepare(ref), first=lambda site: site.does(prepare(ref)), then=then)


def test_killed_in_unprepare_then_prepared_again_before_recovery(walk: Walk, ref: ClaimRef) -> None:
    """Another pod with the same claim comes to the node while the first one's end was interrupted."""

    def then(site: Site) -> None:
        site.does(prepare(ref))
        assert site.node.wholly_prepared(ref, *HELD)
        assert made(site)
        site.does(unprepare(ref), START)
        assert site.is_clean()

    walk(unprepare(ref), first=lambda site: site.does(prepare(ref)), then=then)


def test_killed_in_recovery_prior_values_come_back_all_the_same(walk: Walk, ref: ClaimRef, other: ClaimRef) -> None:
    walk(START, first=walk.interrupted(ref), then=lambda site: site.outlives(ref, other, *HELD))


def test_killed_in_prepare_over_what_an_interrupted_prepare_made(walk: Walk, ref: ClaimRef, other: ClaimRef) -> None:
    walk(prepare(ref), first=walk.interrupted(ref), then=lambda site: site.outlives(ref, other, *HELD))


@pytest.mark.parametrize("name", ["instance", "clock", "mode"])
def test_unprepare_that_fails_half_way_is_finished_by_the_next_one(site: Site, ref: ClaimRef, name: str) -> None:
    site.does(prepare(ref))
    stick(site, name)
    word, text = site.refuses(unprepare(ref))
    assert (word, text) == ("RetryLater", f"unpreparing {ref}: undoing {name} of dial-0: it is stuck")
    assert site.node.holders() == {"dial-0": [ref.uid], GPU_0: [ref.uid]}, "held until it is as it was"
    site.does(unprepare(ref))
    assert site.is_clean()


@pytest.mark.parametrize("name", ["instance", "clock", "mode"])
def test_unprepare_that_fails_half_way_and_the_claim_is_wanted_again(site: Site, ref: ClaimRef, name: str) -> None:
    site.does(prepare(ref))
    stick(site, name)
    site.refuses(unprepare(ref))
    site.does(prepare(ref))
    assert made(site)
    assert site.node.wholly_prepared(ref, *HELD)
    site.does(unprepare(ref))
    assert site.is_clean()


@pytest.mark.parametrize("name", ["instance", "clock", "mode"])
def test_unprepare_that_fails_half_way_and_then_the_agent_starts_again(site: Site, ref: ClaimRef, name: str) -> None:
    """It was no longer whole, so there is nothing to keep: start-up takes the rest apart."""
    site.does(prepare(ref))
    stick(site, name)
    site.refuses(unprepare(ref))
    site.does(START)
    assert site.is_clean()
    site.does(prepare(ref), unprepare(ref))
    assert site.is_clean()


def test_what_recovery_could_not_undo_is_tried_again_while_serving(walk: Walk, site: Site, ref: ClaimRef) -> None:
    walk.interrupted(ref)(site)
    stick(site, "mode", times=1)
    site.does(START)
    assert site.node.records() == [ref.uid], "left for later"
    site.run(("visit",))
    assert site.is_clean()


def test_a_prepare_that_fails_is_taken_back_and_if_that_fails_too_by_the_next_one(
    walk: Walk, site: Site, ref: ClaimRef
) -> None:
    both = walk.claims.claim(*DIALS)
    broken = site.hardware.directory / "dial-1/broken"
    broken.touch()
    word, text = site.refuses(prepare(both))
    assert (word, text) == ("RetryLater", f"preparing {both}: making an instance on dial-1: it is broken")
    assert site.is_clean(), "taken back at once"

    stick(site, "mode")
    assert "it is broken" in site.refuses(prepare(both))[1]
    assert site.node.record(both)["phase"] == "started"
    assert site.hardware.read("dial-0", "mode") == "on"
    assert "still prepared" in site.refuses(prepare(ref))[1]
    broken.unlink()
    site.does(prepare(both), unprepare(both))
    assert site.is_clean()


def waits_for_a_lock(site: Site) -> bool:
    """Two processes have the device's lock file open: one holds it, the other wants it."""
    path = str(site.node.directory / "run/ledger/locks/dial-0")
    return len({link.parts[2] for link in Path("/proc").glob("[0-9]*/fd/*") if target(link) == path}) > 1


def target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def test_recovery_waits_for_a_claim_in_flight_in_an_older_instance_and_keeps_what_it_finished(
    walk: Walk, site: Site, ref: ClaimRef, lab: CrashLab
) -> None:
    assert site.hardware is not None
    hold = site.hardware.directory / "dial-0/hold"
    hold.touch()
    with CrashLab() as older:
        older.send(site.node, START, prepare(ref), hardware=site.hardware.directory)
        eventually((site.hardware.directory / "dial-0/inside").exists)
        lab.send(site.node, START, KEEP, hardware=site.hardware.directory)
        eventually(lambda: waits_for_a_lock(site))
        hold.unlink()
        assert [word for word, _ in older.receive().results] == ["ok", "ok"]
        assert [word for word, _ in lab.receive().results] == ["ok", "ok"]
    (site.hardware.directory / "dial-0/inside").unlink()
    assert site.node.wholly_prepared(ref, *HELD)
    assert made(site)
    site.does(unprepare(ref))
    assert site.is_clean()
