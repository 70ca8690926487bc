"""The slices of this node as far as they are known: a list of our own, kept up by the watch and by what we write.

What we wrote is visible here at once, although the watch tells it later: otherwise the next look would create it a second time.
Events older than the list or than our own write are old news and change nothing. Answers may come after events that are newer
than they are: somebody has deleted what we have just created, or changed what was being listed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.controller.diff import Slice, name_of

_TOMBSTONES = 512


class SliceView:
    """Written by the publisher's thread and the watch's. `in_doubt` says that only a new list can tell what is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: dict[str, Slice] = {}
        self._deleted: dict[str, None] = {}  # UIDs of what is gone for good, oldest first
        self._floor = -1  # resourceVersion of the last list
        self._in_doubt = True
        self._news = 0

    @property
    def news(self) -> int:
        """How many changes by others the watch has told so far."""
        with self._lock:
            return self._news

    @property
    def in_doubt(self) -> bool:
        with self._lock:
            return self._in_doubt

    def doubt(self) -> None:
        with self._lock:
            self._in_doubt = True

    def slices(self) -> tuple[Slice, ...]:
        with self._lock:
            return tuple(self._slices[name] for name in sorted(self._slices))

    def listed(self, items: Iterable[Slice], version: str, news: int) -> None:
        """A list that was asked for after our last write, when `news` was this: whatever it says is so, unless the watch has
        told more since."""
        with self._lock:
            self._slices = {name_of(item): _slim(item) for item in items if name_of(item)}
            self._floor = _version(version) or -1
            self._in_doubt = news != self._news

    def wrote(self, item: Slice) -> None:
        """The answer to our own create or update."""
        with self._lock:
            known = self._slices.get(name_of(item))
            if _uid(item) not in self._deleted and (known is None or _newer(item, known)):
                self._slices[name_of(item)] = _slim(item)

    def removed(self, item: Slice) -> None:
        """We deleted it."""
        with self._lock:
            known = self._slices.get(name_of(item))
            if known is not None and _uid(known) == _uid(item):
                del self._slices[name_of(item)]
            self._bury(item)

    def event(self, kind: str, item: Slice) -> bool:
        """What the watch says. True when it is news: somebody else did this."""
        with self._lock:
            is_news = self._event(kind, item)
            self._news += is_news
            return is_news

    def _event(self, kind: str, item: Slice) -> bool:
        name = name_of(item)
        version = _version(_metadata(item).get("resourceVersion"))
        if not name or _uid(item) in self._deleted or (version is not None and version <= self._floor):
            return False
        known = self._slices.get(name)
        if kind == "DELETED":
            self._bury(item)
            if known is not None and _uid(known) != _uid(item):
                return False
            self._slices.pop(name, None)
            return True
        if known is not None and not _newer(item, known):
            return False
        self._slices[name] = _slim(item)
        return True

    def _bury(self, item: Slice) -> None:
        self._deleted[_uid(item)] = None
        if len(self._deleted) > _TOMBSTONES:
            del self._deleted[next(iter(self._deleted))]

    def synced(self, items: Iterable[Slice]) -> bool:
        """The watch began again with this list. It may be older than our last write, so where it differs it is no more than
        a reason to doubt. True when it differs."""
        theirs = {(name_of(item), _metadata(item).get("resourceVersion")) for item in items}
        with self._lock:
            ours = {(name, _metadata(item).get("resourceVersion")) for name, item in self._slices.items()}
            if theirs == ours:
                return False
            self._in_doubt = True
            return True


def _newer(item: Slice, known: Slice) -> bool:
    if _uid(item) != _uid(known):
        return True
    versions = [_version(_metadata(one).get("resourceVersion")) for one in (item, known)]
    # Comparable as integers by contract since 1.35 (KEP-5504), in fact since ever.
    return versions[0] is None or versions[1] is None or versions[0] > versions[1]


def _version(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _metadata(item: Slice) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _uid(item: Slice) -> str:
    return str(_metadata(item).get("uid") or "")


def _slim(item: Slice) -> Slice:
    """Without managedFields, which are larger than the devices they are about."""
    metadata = {key: part for key, part in _metadata(item).items() if key != "managedFields"}
    return {**item, "metadata": metadata}
