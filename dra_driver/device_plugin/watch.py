"""Which GPUs to keep claims away from because of a device plugin, and saying so once. Looked at when devices are published and
before a claim is prepared; between looks it does nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dra_driver.device_plugin.identifiers import by_uuid, uuid_of
from dra_driver.device_plugin.podresources import PodResources
from dra_driver.device_plugin.traces import Stamp, Traces
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import Inventory
from dra_driver.ports import Events, Telemetry

log = logging.getLogger(__name__)

GUIDE = "leave the node to one of the two: `dra-driver migrate` says how"


@dataclass(frozen=True, slots=True)
class Known:
    """`offered` is resource -> UUIDs, `held` UUID -> pod and resource in words."""

    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.offered or self.held)


NOTHING = Known()


class DevicePluginWatch:
    """Implements `ports.Neighbours`. `yields`: claims also get no GPU that a device plugin merely offers. `prepared` tells
    which claims have which GPUs, by UUID; it is asked only where a pod has a GPU through a device plugin."""

    def __init__(
        self,
        kubelet_dir: Path,
        events: Events,
        telemetry: Telemetry,
        prepared: Callable[[], Mapping[str, ClaimRef]],
        *,
        yields: bool = False,
    ) -> None:
        self._traces = Traces(kubelet_dir / "device-plugins")
        self._kubelet = PodResources(kubelet_dir / "pod-resources" / "kubelet.sock")
        self._events = events
        self._telemetry = telemetry
        self._prepared = prepared
        self._yields = yields
        self._nothing_at: Stamp = None  # what the traces were when there was no GPU of a device plugin
        self._looking = threading.Lock()
        self._last = NOTHING
        self._told: frozenset[str] = frozenset()

    def holders(self, inventory: Inventory) -> Mapping[str, str]:
        return self._kept(self._ask(inventory))

    def look(self, inventory: Inventory) -> Mapping[str, str]:
        with self._looking:
            trouble = []
            try:
                self._last = self._ask(inventory)
            except RetryLater as error:  # what was known last goes on being so
                trouble.append(f"{error}; until it answers no claim is prepared on this node")
            notices = [self._notice(self._last)] if self._last.offered else []
            doubly = self._doubly(self._last)
            self._tell(trouble, notices, doubly)
            offered = frozenset(uuid for uuids in self._last.offered.values() for uuid in uuids)
            self._telemetry.device_plugin(len(offered), len(self._last.held), len(doubly))
            return self._kept(self._last)

    def _ask(self, inventory: Inventory) -> Known:
        stamp = self._traces.stamp()
        if stamp is not None and stamp == self._nothing_at:
            return NOTHING
        known = self._asked(inventory) if self._traces.any() else NOTHING
        self._nothing_at = None if known else stamp
        return known

    def _asked(self, inventory: Inventory) -> Known:
        held: dict[str, list[str]] = {}
        for given in self._kubelet.given():
            if uuid := uuid_of(given.device, inventory.gpus):
                held.setdefault(uuid, []).append(f"pod {given.pod} through {given.resource}")
        words = {uuid: " and ".join(sorted(set(pods))) for uuid, pods in sorted(held.items())}
        return Known(by_uuid(self._kubelet.offered(), inventory.gpus), words)

    def _kept(self, known: Known) -> Mapping[str, str]:
        kept = {uuid: f"was given to {words} by a device plugin" for uuid, words in known.held.items()}
        if self._yields:
            for resource, uuids in known.offered.items():
                for uuid in uuids:
                    kept.setdefault(uuid, f"is offered as {resource} by a device plugin, to which this node is left")
        return kept

    def _notice(self, known: Known) -> str:
        resources = " and ".join(known.offered)
        if self._yields:
            return f"a device plugin offers GPUs of this node as {resources}: claims get none of these; {GUIDE}"
        return (
            f"a device plugin offers GPUs of this node as {resources}: it knows nothing of claims, and may give a pod a GPU "
            f"that a claim has; {GUIDE}; until then the setting device-plugin: yield keeps claims away"
        )

    def _doubly(self, known: Known) -> dict[str, ClaimRef]:
        """What to say of each GPU that a claim and a pod have at once, and to whom."""
        if not known.held:
            return {}
        prepared = self._prepared()
        return {
            f"{uuid} is prepared for {ref} and was given to {known.held[uuid]} by a device plugin, too: "
            f"both use it; delete one of the two pods; {GUIDE}": ref
            for uuid, ref in prepared.items()
            if uuid in known.held
        }

    def _tell(self, trouble: Sequence[str], notices: Sequence[str], doubly: Mapping[str, ClaimRef]) -> None:
        """What is new, and what is over."""
        now = frozenset((*trouble, *notices, *doubly))
        for sentence in sorted(now - self._told):
            log.warning("%s", sentence)
            if sentence in doubly:
                self._events.warn(doubly[sentence], "GPUGivenTwice", sentence)
            elif sentence in notices:
                self._events.warn_node("DevicePluginBeside", sentence)
        for sentence in sorted(self._told - now):
            log.info("over: %s", sentence.partition(": ")[0])
        self._told = now


class NobodyElse:
    """Implements `ports.Neighbours` where device plugins are to be ignored."""

    def holders(self, inventory: Inventory) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def look(self, inventory: Inventory) -> Mapping[str, str]:  # noqa: ARG002
        return {}
