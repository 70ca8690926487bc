"""When to try again. Pure: the clock is handed in."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Waits that double from `first_s` to `cap_s`, each spread over half of itself so that nodes do not come in step.
    `spread` gives a number in 0..1."""

    def __init__(self, first_s: float, cap_s: float, spread: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._spread = spread
        self._failures = 0

    def failed(self) -> float:
        """Seconds until the next try."""
        wait = min(self._cap_s, self._first_s * float(2 ** min(self._failures, 16)))
        self._failures += 1
        return wait * (0.5 + 0.5 * self._spread())

    def succeeded(self) -> None:
        self._failures = 0


class Repairs:
    """How often what others changed is set right: at once, then after waits that double to `cap_s` while somebody keeps
    changing it. Twice the cap without a repair, and it is at once again."""

    def __init__(self, first_s: float, cap_s: float) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._last: float | None = None
        self._wait_s = 0.0

    def earliest(self, now: float) -> float:
        """When the next repair may happen."""
        if self._last is None or now - self._last > 2 * self._cap_s:
            self._last, self._wait_s = None, 0.0
            return now
        return self._last + self._wait_s

    def repaired(self, now: float) -> None:
        self._last = now
        self._wait_s = min(self._cap_s, max(self._first_s, 2 * self._wait_s))
