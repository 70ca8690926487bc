"""Carries out a plan: delete, update, create, each under the condition that nobody changed the object since it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from dra_driver.controller import semantics
from dra_driver.controller.diff import Plan, Pool, Slice, created, deletion, name_of, updated
from dra_driver.controller.semantics import Dropped, canonical, content_of
from dra_driver.controller.slices import Content
from dra_driver.controller.view import SliceView
from dra_driver.model.errors import DriverError, GiveUp, TellUser
from dra_driver.ports import ResourceApi, Telemetry


class Adoptions:
    """Contents that the API server stores otherwise than they are sent, because feature gates are off. For as long as the same
    is wanted, what it stored counts as wanted: anything else would be a loop of writes. One publisher's thread uses it."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[Any, Content]] = {}

    def instead_of(self, index: int, content: Content) -> Content:
        sent, stored = self._stored.get(index, (None, content))
        return stored if sent is not None and sent == canonical(content) else content

    def compare(self, index: int, sent: Content, answer: Slice) -> Dropped | None:
        """Remembers the difference between what was sent and what came back, and returns it."""
        stored = content_of(answer)
        lost = semantics.dropped(name_of(answer), sent, stored)
        if lost is not None:
            self._stored[index] = (canonical(sent), stored)
        return lost


def apply(
    plan: Plan,
    pool: Pool,
    api: ResourceApi,
    node_uid: Callable[[], str],
    view: SliceView,
    adoptions: Adoptions,
    telemetry: Telemetry,
    on_dropped: Callable[[Dropped], None],
) -> None:
    """Tells at once what the API server dropped of each slice. The first error ends it; a plan made from a new list goes on from there. But a
    delete that somebody forbids, or whose webhook is down, keeps no device from being published: it is raised last."""
    refused: list[DriverError] = []
    for item in plan.deletes:
        path = f"{pool.path}/{quote(name_of(item), safe='')}"
        try:
            with suppress(GiveUp):  # it was gone already
                _counted("delete", telemetry, partial(api.request, "DELETE", path, body=deletion(item)))
        except DriverError as error:
            refused.append(error)
        else:
            view.removed(item)
    if plan.updates or plan.creates:
        for index, content, answer in _written(plan, pool, api, node_uid, telemetry):
            view.wrote(answer)
            if (lost := adoptions.compare(index, content, answer)) is not None:
                on_dropped(lost)
    if refused:
        raise refused[0]


def _written(
    plan: Plan, pool: Pool, api: ResourceApi, node_uid: Callable[[], str], telemetry: Telemetry
) -> Iterator[tuple[int, Content, Slice]]:
    """Index and content of each slice as it is written, and what the API server made of it."""
    owner = node_uid()  # asked anew each time: slices owned by a Node that was replaced are garbage-collected
    for index, item, content in plan.updates:
        path = f"{pool.path}/{quote(name_of(item), safe='')}"
        body = updated(item, content, plan, pool, owner)
        yield index, content, _counted("update", telemetry, partial(api.request, "PUT", path, body=body))
    for index, content in plan.creates:
        body = created(index, content, plan, pool, owner)
        yield index, content, _counted("create", telemetry, partial(api.request, "POST", pool.path, body=body))


def _counted(verb: str, telemetry: Telemetry, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        answer = write()
    except DriverError as error:
        result = "give_up" if isinstance(error, GiveUp) else "tell_user" if isinstance(error, TellUser) else "retry"
        telemetry.slice_written(verb, result)
        raise
    telemetry.slice_written(verb, "ok")
    return answer
