"""Keeps the labels of this Node as its GPUs are. One thread; without labels it ends as soon as those of before are gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from dra_driver.model.errors import DriverError, RetryLater
from dra_driver.model.gpu import Inventory
from dra_driver.node_labels.places import Place
from dra_driver.node_labels.table import Machine, labels

log = logging.getLogger(__name__)

_FIRST_LOOK_S = 0.2  # until the hardware has been read for the first time


class LabelKeeper:
    """`chosen` is a word of `places`, or any other for no labels. Labels that an agent with another setting put elsewhere are
    removed at the start. `inventory` is what was read last, None before that."""

    def __init__(
        self,
        chosen: str,
        places: Mapping[str, Place],
        inventory: Callable[[], Inventory | None],
        machine: Callable[[Inventory], Machine],
        interval_s: float,
    ) -> None:
        self._chosen = places.get(chosen)
        self._others = {word: place for word, place in places.items() if word != chosen}
        self._inventory = inventory
        self._machine = machine
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._labels: Mapping[str, str] | None = None
        self._told = ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="labels", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The labels stay: an agent that comes again finds them as they were."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while (self._others or self._chosen is not None) and not self._stopping.is_set():
            self._clear()
            if self._chosen is not None:
                self._look(self._chosen)
            self._stopping.wait(_FIRST_LOOK_S if self._inventory() is None else self._interval_s)

    def _clear(self) -> None:
        """Removes what an agent with another setting left, once for each place."""
        for word, place in list(self._others.items()):
            try:
                if place.remove():
                    log.info("removed the labels of this node that node-labels: %s had put there", word)
            except RetryLater as error:
                log.debug("removing labels of this node: %s", error)
                continue
            except DriverError as error:
                log.warning("labels of this node that node-labels: %s had put there may be left: %s", word, error)
            del self._others[word]

    def _look(self, place: Place) -> None:
        inventory = self._inventory()
        if inventory is None:
            return
        # They say what is built in, not how it is: a GPU in trouble does not take labels away under those that rely on them.
        if self._labels is None or not (inventory.driver_problem or inventory.problems):
            self._labels = labels(inventory.gpus, self._machine(inventory))
        if inventory.driver_problem and not self._labels:
            return  # nothing is known yet, and what an agent before us knew stays
        try:
            left = place.put(self._labels)
        except DriverError as error:
            self._tell(f"labelling this node: {error}")
        except Exception:
            log.exception("labelling this node: bug in the driver")
        else:
            kept = ", ".join(left)
            self._tell(f"labels of this node that somebody else keeps otherwise are left alone: {kept}" if left else "")

    def _tell(self, trouble: str) -> None:
        if trouble != self._told:
            if trouble:
                log.warning("%s", trouble)
            else:
                log.info("over: %s", self._told)
            self._told = trouble
