"""Where the time of one prepare goes: the driver built in this process, every port of it behind a stopwatch."""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dra_driver.app import Parts, build
from dra_driver.core.driver import Driver
from dra_driver.hardware.sysfs import boot_id
from dra_driver.model.claim import ClaimRef
from dra_driver.settings import load
from e2e.cluster import Cluster


class Stopwatch:
    """Stands in front of a port and notes how long each call took."""

    def __init__(self, name: str, inner: Any, notes: dict[str, list[float]]) -> None:
        self._name = name
        self._inner = inner
        self._notes = notes

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._inner, attribute)
        if not callable(value):
            return value

        def timed(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            answer = value(*arguments, **named)
            self._note(attribute, begin)
            return self._held(answer, attribute) if attribute == "lock" else answer

        return timed

    def _note(self, attribute: str, begin: float) -> None:
        self._notes[f"{self._name}.{attribute}"].append(time.perf_counter() - begin)

    @contextmanager
    def _held(self, lock: Any, attribute: str) -> Iterator[None]:
        begin = time.perf_counter()
        with lock:
            self._note(attribute, begin)
            yield


def where_the_time_goes(cluster: Cluster, node: str, ref: ClaimRef, rounds: int) -> list[tuple[str, float, float]]:
    """(port call, times per prepare, milliseconds per prepare), the costliest first; the last row is the whole."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="dra-bench-", dir=place) as directory:
        values = {
            "node_name": node,
            "machine": "dgx-h100",
            "kubeconfig": str(cluster.kubeconfig),
            **{name: f"{directory}/{name}" for name in ("simulation_dir", "kubelet_dir", "cdi_dir", "run_dir")},
        }
        return _timed(build(load(values, {})), node, ref, rounds)


def _timed(parts: Parts, node: str, ref: ClaimRef, rounds: int) -> list[tuple[str, float, float]]:
    parts.host.hardware.start()
    notes: dict[str, list[float]] = defaultdict(list)
    names = ("claims", "ledger", "cdi", "files", "telemetry")
    watched: dict[str, Any] = {name: Stopwatch(name, getattr(parts.rooms, name), notes) for name in names}
    kinds = {name: Stopwatch(f"kind {name}", kind, notes) for name, kind in parts.rooms.kinds.items()}
    rooms = dataclasses.replace(parts.rooms, **watched, kinds=kinds)
    parts.catalog.refresh()
    driver = Driver(node, boot_id(parts.host.roots), parts.catalog, rooms)
    whole = []
    for _ in range(rounds):
        begin = time.perf_counter()
        (prepare,) = driver.prepare_each([ref])
        prepare()
        whole.append(time.perf_counter() - begin)
        kept = {name: list(seconds) for name, seconds in notes.items()}
        driver.unprepare(ref)
        notes.clear()
        notes.update(kept)
    parts.host.hardware.stop()
    rows = [
        (name, len(seconds) / rounds, statistics.median(seconds) * len(seconds) / rounds * 1000)
        for name, seconds in notes.items()
    ]
    rows.sort(key=lambda row: -row[2])
    return [*rows, ("whole prepare, in this process", 1.0, statistics.median(whole) * 1000)]
