"""A process that imports the agent once and then forks a child for every line of JSON on its standard input.

The child does the steps of one run with real parts of the agent, and kills itself with SIGKILL before the effect on the
file system that it was told. An effect is whatever changes something below the watched directories; the interpreter
announces each by an audit event before it happens.

    {"settings": {...}, "watch": [directories], "hardware": directory or null, "steps": [...], "kill_before": N or null}
 -> {"killed": bool, "effects": [what was done, in order], "results": [one for each finished step]}
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from dra_driver.core.recovery import recover
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import DriverError
from dra_driver.settings import load
from tests.flows.dials import build

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Event -> how many of its first arguments are paths (or descriptors) that it changes.
_CHANGES = {
    "os.rename": 2,
    "os.remove": 1,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.utime": 1,
    "os.setxattr": 1,
}


class Effects:
    """Counts effects below `watch`, tells each to `out`, and ends the process before number `kill_before`."""

    def __init__(self, watch: list[str], kill_before: int | None, out: int) -> None:
        self._watch = tuple(os.path.realpath(directory) + "/" for directory in watch)
        self._kill_before = kill_before
        self._out = out
        self._count = 0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            changes = bool(flags & _WRITES) or (isinstance(mode, str) and not set("wax+").isdisjoint(mode))
            paths = [path] if changes else []
        else:
            paths = list(arguments[: _CHANGES.get(event, 0)])
        if ours := [text for path in paths if (text := _text(path)).startswith(self._watch)]:
            self._meet(f"{event} {' '.join(ours)}")

    def _meet(self, what: str) -> None:
        if self._count == self._kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1
        os.write(self._out, json.dumps({"effect": what}).encode() + b"\n")


def _text(path: object) -> str:
    if isinstance(path, int):
        try:
            return os.readlink(f"/proc/self/fd/{path}")
        except OSError:
            return ""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return os.path.abspath(text) if text else ""


class Run:
    def __init__(self, order: dict[str, Any]) -> None:
        hardware = order["hardware"]
        self._parts = build(load(order["settings"], {}), Path(hardware) if hardware else None)
        self._parts.host.hardware.start()

    def do(self, verb: str, *arguments: Any) -> Any:
        try:
            return ["ok", getattr(self, verb)(*arguments)]
        except DriverError as error:
            kinds = ("RetryLater", "GiveUp", "TellUser")
            return [next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in kinds), str(error)]
        except Exception:  # noqa: BLE001 - the test reads it
            return ["bug", traceback.format_exc()]

    def start(self) -> dict[str, list[str]]:
        """What the agent does before it serves."""
        self._parts.catalog.refresh()
        swept = recover(self._parts.driver, self._parts.rooms)
        return {"kept": list(swept.kept), "undone": list(swept.undone), "damaged": list(swept.damaged)}

    def prepare(self, *ref: str) -> list[list[str]]:
        (prepare,) = self._parts.driver.prepare_each([ClaimRef(*ref)])
        prepared = prepare()
        return [[device.request, device.device, device.uuid, *device.cdi_ids] for device in prepared]

    def unprepare(self, *ref: str) -> None:
        self._parts.driver.unprepare(ClaimRef(*ref))

    def keep(self) -> None:
        """One round of the keeper."""
        self._parts.keeper.put_back()
        self._parts.keeper.rebuild()

    def visit(self) -> None:
        self._parts.keeper.visit_one()


def _child(order: dict[str, Any], out: int) -> None:
    run = Run(order)
    sys.addaudithook(Effects(order["watch"], order["kill_before"], out).hook)
    for verb, *arguments in order["steps"]:
        os.write(out, json.dumps({"result": run.do(verb, *arguments)}).encode() + b"\n")
    os.write(out, json.dumps({"modules": sorted(sys.modules)}).encode() + b"\n")


def _forked(order: dict[str, Any]) -> dict[str, Any]:
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        status = 1
        try:
            _child(order, writable)
            status = 0
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable) as lines:
        said = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    for name in (name for line in said for name in line.get("modules", ()) if name not in sys.modules):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)  # what the agent imports when it needs it: the next child has it already
    return {
        "killed": code == -signal.SIGKILL,
        "code": code,
        "effects": [line["effect"] for line in said if "effect" in line],
        "results": [line["result"] for line in said if "result" in line],
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
