from __future__ import annotations

from typing import Any

from dra_driver.controller.pace import Backoff, Repairs
from dra_driver.controller.view import SliceView


def item(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid or f"u-{name}", "resourceVersion": str(version), "managedFields": [1]}
    }


def view(*items: dict[str, Any], version: int = 10) -> SliceView:
    made = SliceView()
    made.listed(items, str(version), made.news)
    return made


def names(of: SliceView) -> list[str]:
    return [one["metadata"]["name"] for one in of.slices()]


def test_a_new_view_is_in_doubt_until_it_was_listed() -> None:
    made = SliceView()
    assert made.in_doubt
    made.listed([], "1", made.news)
    assert not made.in_doubt


def test_what_we_wrote_is_there_at_once_and_its_echo_is_no_news() -> None:
    made = view()
    made.wrote(item("a", 12))
    assert names(made) == ["a"]
    assert not made.event("ADDED", item("a", 12))


def test_an_older_event_than_our_write_changes_nothing_and_a_newer_one_is_news() -> None:
    made = view()
    made.wrote(item("a", 15))
    assert not made.event("MODIFIED", item("a", 12))
    assert made.event("MODIFIED", item("a", 16))
    assert made.slices()[0]["metadata"]["resourceVersion"] == "16"


def test_an_answer_that_comes_after_a_newer_event_does_not_turn_back_time() -> None:
    made = view()
    made.event("ADDED", item("a", 12))
    made.event("MODIFIED", item("a", 14))
    made.wrote(item("a", 12))
    assert made.slices()[0]["metadata"]["resourceVersion"] == "14"


def test_an_answer_that_comes_after_the_end_of_the_object_does_not_bring_it_back() -> None:
    made = view()
    assert made.event("ADDED", item("a", 12))
    assert made.event("DELETED", item("a", 13))
    made.wrote(item("a", 12))
    assert names(made) == []


def test_a_deletion_is_news_even_before_the_answer_and_the_echo() -> None:
    made = view()
    assert made.event("DELETED", item("a", 13))
    made.wrote(item("a", 12))
    assert names(made) == []


def test_a_list_that_comes_after_newer_events_leaves_a_doubt() -> None:
    made = view(item("a", 5))
    news = made.news
    made.event("DELETED", item("a", 12))
    made.listed([item("a", 5)], "11", news)
    assert made.in_doubt
    made.listed([], "12", made.news)
    assert not made.in_doubt
    assert names(made) == []


def test_events_from_before_the_list_are_old_news() -> None:
    made = view(version=20)
    assert not made.event("ADDED", item("gone", 15))
    assert names(made) == []


def test_what_we_deleted_stays_deleted_whatever_the_watch_still_tells() -> None:
    made = view(item("a", 5))
    made.removed(item("a", 5))
    assert not made.event("MODIFIED", item("a", 12))
    assert not made.event("DELETED", item("a", 13))
    assert names(made) == []


def test_a_deletion_by_somebody_else_is_news_once() -> None:
    made = view(item("a", 5))
    assert made.event("DELETED", item("a", 12))
    assert not made.event("DELETED", item("a", 12))


def test_the_end_of_an_object_is_not_the_end_of_its_successor() -> None:
    made = view()
    made.event("ADDED", item("a", 14, uid="second"))
    assert not made.event("DELETED", item("a", 13, uid="first"))
    assert names(made) == ["a"]


def test_a_relist_that_differs_is_a_reason_to_look_not_the_truth() -> None:
    made = view(item("a", 5))
    made.wrote(item("b", 12))
    assert not made.synced([item("b", 12), item("a", 5)])
    assert made.synced([item("a", 5)])
    assert made.in_doubt
    assert names(made) == ["a", "b"]


def test_managed_fields_are_not_kept() -> None:
    assert "managedFields" not in view(item("a", 5)).slices()[0]["metadata"]


def test_malformed_objects_are_passed_over() -> None:
    made = view({}, {"metadata": 5})
    assert not made.event("ADDED", {})
    assert names(made) == []


def test_a_backoff_doubles_to_its_cap_and_starts_again_after_success() -> None:
    backoff = Backoff(0.5, 30.0, lambda: 1.0)
    assert [backoff.failed() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    backoff.succeeded()
    assert backoff.failed() == 0.5
    assert [Backoff(1.0, 30.0, lambda: 0.0).failed()] == [0.5]


def test_repairs_are_at_once_then_ever_later_and_forgiven_after_a_quiet_minute() -> None:
    repairs, now, gaps = Repairs(1.0, 30.0), 100.0, []
    for _ in range(8):
        gaps.append(repairs.earliest(now) - now)
        now = repairs.earliest(now)
        repairs.repaired(now)
    assert gaps == [0, 1, 2, 4, 8, 16, 30, 30]
    assert repairs.earliest(now + 61) == now + 61
