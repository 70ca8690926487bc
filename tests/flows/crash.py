"""The test's side of `crash_child`: runs of the agent's parts in processes that die where they are told."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dra_driver.model.claim import ClaimRef
from tests.flows.dials import Hardware
from tests.flows.node import FlowNode
from tests.kube.stub_api import StubApi

ROOT = Path(__file__).parents[2]
Step = tuple[Any, ...]


@dataclass(frozen=True)
class Ran:
    """`results` are (`ok`, value) or (error class, text), one for each step that was finished."""

    killed: bool
    effects: list[str]
    results: list[tuple[str, Any]]

    @property
    def last(self) -> tuple[str, Any]:
        return self.results[-1]


def prepare(ref: ClaimRef) -> Step:
    return ("prepare", ref.uid, ref.namespace, ref.name)


def unprepare(ref: ClaimRef) -> Step:
    return ("unprepare", ref.uid, ref.namespace, ref.name)


START: Step = ("start",)
KEEP: Step = ("keep",)
VISIT: Step = ("visit",)


class CrashLab:
    """One process that forks a child for each run, so that a run costs a few hundredths of a second."""

    def __enter__(self) -> CrashLab:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.flows.crash_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def send(self, node: FlowNode, *steps: Step, kill_before: int | None = None, hardware: Path | None = None) -> None:
        """Starts a run without waiting for it; one at a time."""
        watch = [f"{node.directory}/{name}" for name in ("run", "cdi")]
        order = {
            "settings": node.settings,
            "watch": [*watch, str(hardware)] if hardware else watch,
            "hardware": str(hardware) if hardware else None,
            "steps": steps,
            "kill_before": kill_before,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Ran:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert answer["killed"] or answer["code"] == 0, answer
        ran = Ran(answer["killed"], answer["effects"], [tuple(result) for result in answer["results"]])
        for word, text in ran.results:
            assert word != "bug", text
        return ran

    def run(self, node: FlowNode, *steps: Step, kill_before: int | None = None, hardware: Path | None = None) -> Ran:
        self.send(node, *steps, kill_before=kill_before, hardware=hardware)
        return self.receive()


def a_minute_later(node: FlowNode) -> None:
    """What a killed writer left is now older than any write of a live one can be."""
    past = time.time() - 61
    for path in node.litter():
        os.utime(path, (past, past))


class Walk:
    """Does steps again and again on a node of its own each time, killed one effect later each time, until they are finished."""

    def __init__(self, lab: CrashLab, place: Path, api: StubApi, dials: Sequence[str] = ()) -> None:
        self.lab = lab
        self._place = place
        self._api = api
        self._dials = dials
        self._simulation = place / "simulation"
        self.claims = self.node("claims").node  # only to put claims on the API server
        assert self.claims.machine  # made before anything is counted

    def node(self, name: str) -> Site:
        node = FlowNode(self._place / name, self._api, self._simulation)
        hardware = Hardware.create(node.directory / "dials", *self._dials) if self._dials else None
        return Site(self.lab, node, hardware)

    def interrupted(self, ref: ClaimRef) -> Callable[[Site], None]:
        """Prepares the ground: the claim's prepare was killed when all was done but the last step, the record that says so."""
        last = len(self.node("twin").run(prepare(ref)).effects) - 1

        def kill(site: Site) -> None:
            assert site.run(prepare(ref), kill_before=last).killed

        return kill

    def __call__(
        self,
        *steps: Step,
        then: Callable[[Site], None],
        first: Callable[[Site], None] = lambda _: None,
    ) -> list[str]:
        """`first` prepares the ground, `then` checks what is there after each kill. The effects of the whole, in order."""
        for number in itertools.count():
            site = self.node(f"kill-{number}")
            first(site)
            ran = site.run(*steps, kill_before=number)
            a_minute_later(site.node)
            if not ran.killed:
                assert all(word == "ok" for word, _ in ran.results), ran.results
            try:
                then(site)
            except AssertionError as error:
                following = "nothing" if not ran.killed else "the next effect"
                error.add_note(f"killed after {number} effects: {ran.effects[-3:]}, before {following}")
                raise
            if not ran.killed:
                return ran.effects
            shutil.rmtree(site.node.directory)
        raise AssertionError("unreachable")


@dataclass(frozen=True)
class Site:
    """A node, its dials if it has some, and the processes that work on both."""

    lab: CrashLab
    node: FlowNode
    hardware: Hardware | None

    def run(self, *steps: Step, kill_before: int | None = None) -> Ran:
        directory = self.hardware.directory if self.hardware else None
        return self.lab.run(self.node, *steps, kill_before=kill_before, hardware=directory)

    def does(self, *steps: Step) -> list[Any]:
        """The values; every step succeeds."""
        ran = self.run(*steps)
        assert all(word == "ok" for word, _ in ran.results), ran.results
        return [value for _, value in ran.results]

    def refuses(self, step: Step) -> tuple[str, str]:
        word, text = self.run(step).last
        assert word != "ok", text
        return word, text

    def is_clean(self) -> bool:
        return self.node.nothing_left() and (self.hardware is None or self.hardware.is_as_before())

    def outlives(self, ref: ClaimRef, other: ClaimRef, *devices: str) -> bool:
        """The agent starts again: claim `ref` is wholly there or not at all; of two claims for the same device one is
        refused until the other is gone; and at the end nothing is left. True when the claim was there."""
        node = self.node
        self.does(START)
        assert node.litter() == []
        whole = node.wholly_prepared(ref, *devices)
        if not whole:
            assert self.is_clean(), (node.records(), node.specs(), node.holders())
        one, two = (ref, other) if whole else (other, ref)
        results = self.run(prepare(one), prepare(two), prepare(one), unprepare(one)).results
        assert [word for word, _ in results] == ["ok", "RetryLater", "ok", "ok"], results
        assert f"is still prepared for {one}" in results[1][1]
        assert results[0] == results[2], "prepared twice, and the answers differ"
        assert self.is_clean(), (node.records(), node.specs(), node.holders())
        self.does(prepare(two))
        assert node.wholly_prepared(two, *devices)
        self.does(unprepare(two), unprepare(one))
        assert self.is_clean(), (node.records(), node.specs(), node.holders())
        return whole
