"""Keeps this node's slices in the API server as they should be. One thread and one path for every reason to look: start, a wake,
a change by somebody else, an error."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from dra_driver.controller import slices
from dra_driver.controller.apply import Adoptions, apply
from dra_driver.controller.checks import CounterSets
from dra_driver.controller.diff import Plan, Pool, difference
from dra_driver.controller.pace import Backoff, Repairs
from dra_driver.controller.semantics import Dropped, canonical
from dra_driver.controller.view import SliceView
from dra_driver.model.device import Device
from dra_driver.model.errors import DriverError
from dra_driver.ports import ResourceApi, Telemetry

log = logging.getLogger(__name__)

SETTLE_S = 0.5  # the kubelet deletes all slices of a node one by one: wait for the others before setting it right
RETRY_S = (0.5, 30.0)
REPAIR_S = (1.0, 30.0)
PAGE = "500"
JOIN_S = 2.0  # for both threads; one that still waits for the API server then ends by itself, and changes nothing more


class SlicePublisher:
    """`ports.Publisher`, level-triggered: nothing is written when the API server already has what `desired` says.

    `desired` returns the node's devices (any order), `counter_sets` what they draw from. `node_uid` and `api_version` are asked
    whenever they are needed; any of these may raise DriverError and is asked again later. `on_dropped` hears about fields that
    the API server does not store, once for each set of fields. `interrupt` makes the API's watch look at its `stopped`.
    """

    def __init__(
        self,
        api: ResourceApi,
        driver: str,
        node: str,
        desired: Callable[[], Sequence[Device]],
        node_uid: Callable[[], str],
        api_version: Callable[[], str],
        telemetry: Telemetry,
        *,
        counter_sets: Callable[[], CounterSets] = dict,
        on_dropped: Callable[[Dropped], None] | None = None,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._desired = desired
        self._node_uid = node_uid
        self._api_version = api_version
        self._telemetry = telemetry
        self._counter_sets = counter_sets
        self._on_dropped = on_dropped
        self._interrupt = interrupt
        self._changed = threading.Condition()
        self._due = math.inf  # monotonic time of the next look
        self._session: _Session | None = None

    def wake(self) -> None:
        """Look again soon. Before `start` it does nothing: the start looks by itself."""
        self._look_at(time.monotonic())

    def start(self) -> None:
        """Publishes at once, without waiting for the watch."""
        with self._changed:
            if self._session is not None:
                return
            session = self._session = _Session()
            self._due = time.monotonic()
        session.threads.append(_thread("publisher", lambda: self._run(session)))

    def stop(self) -> None:
        """Ends both threads. The slices stay: a driver that is back within 30 s finds them as they were."""
        with self._changed:
            session, self._session = self._session, None
            if session is None:
                return
            session.stopped.set()
            self._changed.notify_all()
        self._interrupt()
        end = time.monotonic() + JOIN_S
        for thread in list(session.threads):
            thread.join(max(0.0, end - time.monotonic()))

    def _look_at(self, when: float) -> None:
        with self._changed:
            if when < self._due:
                self._due = when
                self._changed.notify_all()

    def _run(self, session: _Session) -> None:
        backoff = Backoff(*RETRY_S, random.random)
        while self._wait(session):
            try:
                self._look(session)
                backoff.succeeded()
                continue
            except DriverError as error:
                asked = getattr(
                    error, "retry_after", None
                )  # what a 429 asks for; the rooms share no error class that has it
                wait = max(backoff.failed(), asked or 0.0)
                log.warning("%s; next try in %.1f s", error, wait)
            except Exception:
                # The thread is the only way to publish: it outlives whatever a caller's function raises.
                wait = backoff.failed()
                log.exception("publishing slices of node %s; next try in %.1f s", self._node, wait)
            session.view.doubt()
            session.not_before = time.monotonic() + wait
            self._look_at(session.not_before)

    def _wait(self, session: _Session) -> bool:
        """Until the next look is due; False when stopped."""
        with self._changed:
            while not session.stopped.is_set():
                wait = max(self._due, session.not_before) - time.monotonic()
                if wait <= 0:
                    self._due = math.inf
                    return True
                self._changed.wait(None if math.isinf(wait) else wait)
        return False

    def _look(self, session: _Session) -> None:
        """Compares what there should be with what there is, and writes the difference."""
        pool = Pool(self._driver, self._node, self._api_version())
        if session.pool != pool:
            session.pool = pool
            session.view.doubt()
        contents, problems = slices.desired(self._desired(), self._counter_sets(), pool.api_version)
        for problem in problems:
            if problem not in session.told:
                log.warning("%s", problem)
        session.told = frozenset(problems)
        if session.view.in_doubt:
            self._list(session, pool)
        wanted = [session.adoptions.instead_of(index, content) for index, content in enumerate(contents)]
        plan = difference(session.view.slices(), wanted, pool)
        form = canonical(list(contents))
        if plan:
            if form == session.published:
                now = time.monotonic()
                earliest = session.repairs.earliest(now)
                if earliest > now:
                    self._look_at(earliest)
                    return
                session.repairs.repaired(now)
                log.info("slices of node %s were changed by somebody else: setting them right", self._node)
            self._write(session, pool, plan)
        session.published = form
        self._follow(session, pool)

    def _list(self, session: _Session, pool: Pool) -> None:
        items: list[dict[str, Any]] = []
        news = session.view.news
        query = {**pool.query, "limit": PAGE}
        while True:
            page = self._api.request("GET", pool.path, query=query)
            metadata = page.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            items += [item for item in page.get("items") or () if isinstance(item, dict)]
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        session.view.listed(items, str(metadata.get("resourceVersion") or ""), news)

    def _write(self, session: _Session, pool: Pool, plan: Plan) -> None:
        def on_dropped(dropped: Dropped) -> None:
            if dropped.fields not in session.reported:
                session.reported.add(dropped.fields)
                log.warning("%s", dropped)
                if self._on_dropped is not None:
                    self._on_dropped(dropped)

        apply(plan, pool, self._api, self._node_uid, session.view, session.adoptions, self._telemetry, on_dropped)
        log.info(
            "published the slices of node %s, %d in generation %d: %d deleted, %d updated, %d created",
            self._node,
            plan.count,
            plan.generation,
            len(plan.deletes),
            len(plan.updates),
            len(plan.creates),
        )

    def _follow(self, session: _Session, pool: Pool) -> None:
        """Starts the watch, after the first publish and when the API version has changed."""
        if session.followed == pool:
            return
        session.followed = pool

        def stopped() -> bool:
            return session.stopped.is_set() or session.followed != pool

        def on_event(kind: str, item: dict[str, Any]) -> None:
            if not stopped() and session.view.event(kind, item):
                self._look_at(time.monotonic() + SETTLE_S)

        def on_sync(items: Sequence[dict[str, Any]]) -> None:
            if not stopped() and session.view.synced(items):
                self._look_at(time.monotonic() + SETTLE_S)

        session.threads.append(
            _thread("slices", lambda: self._api.watch(pool.path, pool.query, on_event, on_sync, stopped))
        )
        if len(session.threads) > 2:
            self._interrupt()


class _Session:
    """All that is known between one start and its stop; only the publisher's thread writes it, except the view."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.threads: list[threading.Thread] = []
        self.view = SliceView()
        self.adoptions = Adoptions()
        self.repairs = Repairs(*REPAIR_S)
        self.not_before = 0.0
        self.pool: Pool | None = None
        self.followed: Pool | None = None
        self.published: Any = None  # canonical contents of the last look that left nothing to do
        self.told: frozenset[str] = frozenset()
        self.reported: set[tuple[str, ...]] = set()


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
