"""Strategy `Exclusive`: the devices belong to one claim, nothing about them is changed. The default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import LiveDevice
from dra_driver.model.record import Effect
from dra_driver.ports import Journal


class Exclusive:
    """Implements `ports.SharingMode`. Containers and pods of one claim see the same devices; the GPU arbitrates."""

    strategy = "Exclusive"

    def refusal(self, config: Any, kind: str) -> str | None:  # noqa: ARG002
        return None

    def apply(self, live: Sequence[LiveDevice], config: Any, ref: ClaimRef, journal: Journal) -> ContainerEdits:  # noqa: ARG002
        return ContainerEdits()

    def undo(self, effect: Effect) -> None:
        """Nothing was changed, so nothing is to be restored."""
