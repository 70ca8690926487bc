"""Progress on the terminal: one line per step with its seconds. Decides nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def step(what: str, done: str = "") -> Iterator[None]:
    """Say what is being done, then that it is `done` and its seconds; a failure is left to the caller to report."""
    started = time.monotonic()
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr, flush=True)
        raise
    print(f" {done} {time.monotonic() - started:.1f} s".replace("  ", " "), file=sys.stderr, flush=True)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
