"""Sharing strategies by name: which of those that configuration can ask for are offered, and what is said of the others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

# What an agent has a sharing mode for; `app` wires them.
OFFERED: Final = frozenset({"Exclusive"})
DO_WITHOUT: Final = "remove `sharing` from the configuration of the claim or DeviceClass"


def not_offered(strategy: str, offered: Collection[str]) -> str:
    """What is wrong with a request, a configuration: `it asks for ...`, without the `it`."""
    return f"asks for sharing strategy {strategy}, which this driver does not offer (it offers: {', '.join(sorted(offered))})"


def warning(strategy: str | None) -> str | None:
    """What prepare will say of this strategy, for who can be told before; None when it is offered, or none is asked for."""
    if strategy is None or strategy in OFFERED:
        return None
    return f"{not_offered(strategy, OFFERED)}; {DO_WITHOUT}"
