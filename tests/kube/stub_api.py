"""A small API server over real sockets: resourceVersions, conflicts, preconditions, watches with bookmarks, and faults on command.

It knows no schema. Objects of one group and resource are one collection, whatever version they are asked for in.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kube.stub_http import StubHandler, StubServer

Object = dict[str, Any]


@dataclass
class Fault:
    """What happens instead of an answer. `times` is how often (None: always)."""

    method: str
    path: str  # regular expression, searched in path and query
    status: int = 0
    times: int | None = 1
    message: str = "injected"
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_s: float = 0.0
    drop: bool = False  # the connection is closed without an answer
    lose_answer: bool = False  # the request is carried out, the answer never comes


@dataclass(frozen=True)
class Seen:
    method: str
    url: str
    at: float
    headers: dict[str, str]
    body: Any


class StubApi:
    """`with StubApi() as api:`; `api.kubeconfig(tmp_path)` is how a client gets there."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 100
        self.compacted = 0  # watches from before this resourceVersion get 410
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.history: list[tuple[int, str, str, Object]] = []  # resourceVersion, collection, type, object
        self.requests: list[Seen] = []
        self.faults: list[Fault] = []
        self.served = ["v1", "v1beta2", "v1beta1"]
        self.release = ("1", "37")
        self.bookmark_s = 60.0
        self.watch_lag_s = 0.0
        self.close_watches_at_once = False
        self.silent_watches = False
        self.raw_lines: list[bytes] = []  # sent once at the start of the next watch
        self.mutate: Callable[[Object], None] | None = None  # runs on every write, before it is stored
        self.open_watches = 0
        self.stopping = False
        stub = self

        class Handler(StubHandler):
            api = stub

        self._server = StubServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> StubApi:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self.stopping = True
            self.lock.notify_all()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join(5)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def kubeconfig(self, directory: Path, user: Object | None = None) -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stub",
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "stub", "user": user if user is not None else {"token": "secret"}}],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    # What tests do to the server ------------------------------------------------------------------------------

    def fail(self, method: str, path: str, status: int = 0, **kwargs: Any) -> Fault:
        fault = Fault(method, path, status, **kwargs)
        with self.lock:
            self.faults.append(fault)
        return fault

    def put(self, collection: str, item: Object) -> Object:
        """Creates or replaces an object as somebody else would: `put("resource.k8s.io/resourceclaims", {...})`."""
        with self.lock:
            metadata = item["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            kind = "MODIFIED" if key in self.objects.get(collection, {}) else "ADDED"
            metadata.setdefault("uid", f"uid-{self.version}")
            return copy.deepcopy(self.store(collection, key, item, kind))

    def delete(self, collection: str, name: str, namespace: str = "") -> None:
        with self.lock:
            self.remove(collection, (namespace, name))

    def list(self, collection: str) -> list[Object]:
        with self.lock:
            found = self.objects.get(collection, {})
            return copy.deepcopy([found[key] for key in sorted(found)])

    def compact(self) -> None:
        """Every resourceVersion up to now is too old to watch from; open watches end."""
        with self.lock:
            self.version += 10
            self.compacted = self.version
            self.history.clear()
            self.lock.notify_all()

    def count(self, method: str, path: str = "", since: float = 0.0) -> int:
        with self.lock:
            return sum(1 for r in self.requests if r.method == method and re.search(path, r.url) and r.at >= since)

    def writes(self) -> list[Seen]:
        with self.lock:
            return [r for r in self.requests if r.method != "GET"]

    # Storage ----------------------------------------------------------------------------------------------------

    def store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
        item = copy.deepcopy(item)
        if self.mutate is not None:
            self.mutate(item)
        before = self.objects.get(collection, {}).get(key)
        if before is not None and _bare(before) == _bare(item):
            return before  # a write that changes nothing is no write, as in the real one
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.objects.setdefault(collection, {})[key] = item
        self.history.append((self.version, collection, kind, copy.deepcopy(item)))
        self.lock.notify_all()
        return item

    def remove(self, collection: str, key: tuple[str, str]) -> Object:
        item = self.objects[collection].pop(key)
        self.version += 1
        gone = copy.deepcopy(item)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, collection, "DELETED", gone))
        self.lock.notify_all()
        return item

    def seen(self, method: str, url: str, headers: dict[str, str], body: Any) -> Fault | None:
        """Remembers a request and says what is to go wrong with it."""
        self.requests.append(Seen(method, url, time.monotonic(), headers, body))
        for fault in self.faults:
            if fault.method == method and re.search(fault.path, url):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self.faults.remove(fault)
                return fault
        return None


def _bare(item: Object) -> Object:
    item = copy.deepcopy(item)
    item["metadata"].pop("resourceVersion", None)
    return item
