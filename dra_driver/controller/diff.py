"""What there is against what there should be -> what to write. Pure.

The rules are those of the Go ResourceSlice controller (k8s.io/dynamic-resource-allocation resourceslice, since 1.36;
upstream-dra.md section 3), so that either can take over from the other without rewriting anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.controller.semantics import canonical, content_of, with_taint_times
from dra_driver.controller.slices import Content

_INDEX = re.compile(r"([0-9a-f]{5,})-")
_NAME_LIMIT = 253

Slice = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """Whose slices: those of one driver on one node. The pool has the node's name."""

    driver: str
    node: str
    api_version: str

    @property
    def path(self) -> str:
        return f"/apis/resource.k8s.io/{self.api_version}/resourceslices"

    @property
    def query(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.driver={self.driver},spec.nodeName={self.node}"}


@dataclass(frozen=True, slots=True)
class Plan:
    """In the order in which it is carried out. `updates` are (index, existing slice, its content to be), `creates` (index, content).
    In between the pool is incomplete, and the scheduler leaves it alone."""

    generation: int
    count: int
    deletes: tuple[Slice, ...] = ()
    updates: tuple[tuple[int, Slice, Content], ...] = ()
    creates: tuple[tuple[int, Content], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.updates or self.creates)


def difference(existing: Iterable[Slice], contents: Sequence[Content], pool: Pool) -> Plan:
    """Slices of other drivers and nodes are never touched, whatever the API server was asked for and answered. Slices of ours
    in another pool, of an older generation, without an index in their name, or second of their index are deleted."""
    ours = sorted((item for item in existing if _belongs(item, pool)), key=name_of)
    in_pool = [item for item in ours if _pool(item).get("name") == pool.node]
    start = max((_generation(item) for item in in_pool), default=0)
    matched: dict[int, Slice] = {}
    for item in in_pool:
        index = _index(item)
        if _generation(item) < start or index is None or index >= len(contents):
            continue
        if index not in matched or (same(item, contents[index]) and not same(matched[index], contents[index])):
            matched[index] = item
    kept = {name_of(item) for item in matched.values()}
    deletes = tuple(item for item in ours if name_of(item) not in kept)
    missing = [index for index in range(len(contents)) if index not in matched]
    changed = [
        index
        for index, item in sorted(matched.items())
        if not same(item, contents[index]) or _pool(item).get("resourceSliceCount") != len(contents)
    ]
    # One PUT is atomic by itself. Anything more needs a new generation, so that the scheduler never takes half of the
    # old and half of the new for a complete pool.
    if missing or len(changed) > 1:
        start += 1
        changed = sorted(matched)
    return Plan(
        start,
        len(contents),
        deletes,
        tuple((index, matched[index], with_taint_times(contents[index], ours)) for index in changed),
        tuple((index, with_taint_times(contents[index], ours)) for index in missing),
    )


def same(existing: Slice, content: Content) -> bool:
    return bool(canonical(content_of(existing)) == canonical(content))


def updated(existing: Slice, content: Content, plan: Plan, pool: Pool, node_uid: str) -> dict[str, Any]:
    """The body that replaces `existing`, only if nobody changed it since: it carries the resourceVersion."""
    metadata = {key: part for key, part in existing["metadata"].items() if key != "managedFields"}
    metadata["ownerReferences"] = [_owner(pool, node_uid)]
    return _body(metadata, content, plan, pool)


def created(index: int, content: Content, plan: Plan, pool: Pool, node_uid: str) -> dict[str, Any]:
    """The body of a new slice. The scheduler goes through slices by name, so the name starts with the index."""
    digits = max(5, len(f"{plan.count - 1:x}"))
    prefix = f"{index:0{digits}x}-{pool.driver}-{pool.node}"[: _NAME_LIMIT - 1].rstrip("-.")
    return _body({"generateName": f"{prefix}-", "ownerReferences": [_owner(pool, node_uid)]}, content, plan, pool)


def deletion(existing: Slice) -> dict[str, Any]:
    """DeleteOptions for exactly this version of this object."""
    metadata = existing["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)},
    }


def _body(metadata: dict[str, Any], content: Content, plan: Plan, pool: Pool) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{pool.api_version}",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": pool.driver,
            "nodeName": pool.node,
            "pool": {"name": pool.node, "generation": plan.generation, "resourceSliceCount": plan.count},
            **content,
        },
    }


def _owner(pool: Pool, node_uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": pool.node, "uid": node_uid, "controller": True}


def name_of(item: Slice) -> str:
    """The name, or "" where there is none."""
    metadata = item.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def _belongs(item: Slice, pool: Pool) -> bool:
    spec = item.get("spec")
    return (
        isinstance(spec, Mapping)
        and spec.get("driver") == pool.driver
        and spec.get("nodeName") == pool.node
        and bool(name_of(item))
    )


def _pool(item: Slice) -> Mapping[str, Any]:
    pool = item["spec"].get("pool")
    return pool if isinstance(pool, Mapping) else {}


def _generation(item: Slice) -> int:
    generation = _pool(item).get("generation")
    return generation if isinstance(generation, int) else 0


def _index(item: Slice) -> int | None:
    match = _INDEX.match(name_of(item))
    return int(match[1], 16) if match else None
