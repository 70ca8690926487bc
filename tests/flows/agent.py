"""A whole agent and a kubelet that calls it, on a node of the flows: in a thread of the test, or in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dra_driver import app
from dra_driver.model.claim import ClaimRef
from dra_driver.settings import load
from dra_driver.termination import Termination
from tests.flows.node import DRIVER, FlowNode
from tests.kubelet.fake_kubelet import FakeKubelet, eventually, running

ROOT = Path(__file__).parents[2]
# What a person at 3 a.m. cannot read.
_UGLY = ("Errno", "Traceback", "object at 0x", "bug in the driver", "None", "HTTPConnectionPool", "b'")


class Calls:
    """What the kubelet asks and is answered."""

    def __init__(self, kubelet: FakeKubelet) -> None:
        self.kubelet = kubelet

    def ask(self, verb: str, *refs: ClaimRef, timeout_s: float = 45.0) -> dict[str, Any]:
        claims = [(ref.uid, ref.namespace, ref.name) for ref in refs]
        return getattr(self.kubelet, verb)(DRIVER, claims, timeout_s)  # type: ignore[no-any-return]

    def prepare(self, ref: ClaimRef) -> list[Any]:
        """The devices; it succeeds."""
        answer = self.ask("prepare", ref)[ref.uid]
        assert not answer.error, answer.error
        return list(answer.devices)

    def unprepare(self, ref: ClaimRef) -> None:
        answer = self.ask("unprepare", ref)[ref.uid]
        assert not answer.error, answer.error

    def refused(self, ref: ClaimRef, verb: str = "prepare") -> str:
        """The error's text, which says what was done to what, and why."""
        text: str = self.ask(verb, ref)[ref.uid].error
        assert text, "it was not refused"
        if where := os.environ.get("FLOW_MESSAGES"):
            with open(where, "a", encoding="utf-8") as file:
                file.write(text + "\n")
        assert not [word for word in _UGLY if word in text], text
        assert str(ref) in text.partition(": ")[0], text
        return text


class Agent(Calls):
    """Runs in a thread until the end of the `with` block."""

    def __init__(self, node: FlowNode, **settings: str) -> None:
        super().__init__(FakeKubelet(node.directory / "kubelet/plugins_registry"))
        self._settings = load({**node.settings, **settings}, {})
        self._termination = Termination()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent")

    def __enter__(self) -> Agent:
        self.kubelet.start()
        self._thread.start()
        eventually(lambda: self.kubelet.plugins or self._failure, why="the agent has not registered")
        if self._failure:
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        self._termination.tell()
        self._thread.join()
        self._termination.close()
        self.kubelet.stop()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            app.run(self._settings, self._termination)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._failure = error


class Process:
    """An agent as it is run in production: `dra-driver agent`. Its log goes to `log`."""

    def __init__(self, node: FlowNode, name: str = "agent", settings: Mapping[str, str] | None = None) -> None:
        self.log = node.directory / f"{name}.log"
        every = {**node.settings, **(settings or {})}
        environment = {f"DRA_DRIVER_{key.upper()}": value for key, value in every.items()}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dra_driver.cli.main", "agent"],
                env={**os.environ, **environment},
                stderr=log,
                stdout=log,
                cwd=ROOT,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def is_serving(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return '"serving"' in self.log.read_text()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def exit_code(self, within_s: float = 15.0) -> int:
        return self._process.wait(within_s)


@contextmanager
def parts_of(node: FlowNode) -> Iterator[app.Parts]:
    """The parts of an agent that nobody has started."""
    parts = app.build(load({**node.settings, "keeper_s": "600"}, {}))
    try:
        yield parts
    finally:
        parts.host.hardware.stop()
        parts.events.stop()
        parts.api.close()


@contextmanager
def kubelet_of(node: FlowNode) -> Iterator[Calls]:
    with running(FakeKubelet(node.directory / "kubelet/plugins_registry")) as kubelet:
        yield Calls(kubelet)
