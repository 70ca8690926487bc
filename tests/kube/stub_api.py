"""A small API server over real sockets: resourceVersions, conflicts, preconditions, watches with bookmarks, and faults on command.

It knows no schema. Objects of one group and resource are one collection, whatever version they are asked for in.
"""

from __future__ import annotations

import copy
import json
import random
import re
import string
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

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
        self._stopping = False
        stub = self

        class Handler(_Handler):
            api = stub

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> StubApi:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self._stopping = True
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
            return copy.deepcopy(self._store(collection, key, item, kind))

    def delete(self, collection: str, name: str, namespace: str = "") -> None:
        with self.lock:
            self._remove(collection, (namespace, name))

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

    def _store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
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

    def _remove(self, collection: str, key: tuple[str, str]) -> Object:
        item = self.objects[collection].pop(key)
        self.version += 1
        gone = copy.deepcopy(item)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, collection, "DELETED", gone))
        self.lock.notify_all()
        return item

    def _take_fault(self, method: str, url: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and re.search(fault.path, url):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self.faults.remove(fault)
                return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        self.connections: set[Any] = set()
        super().__init__(*args)

    def close_connections(self) -> None:
        for connection in list(self.connections):
            try:
                connection.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # broken connections are what the tests are about


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # without it every answer waits 40 ms for a delayed ACK
    wbufsize = -1
    api: StubApi
    lose_answer = False

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self.server.connections.discard(self.connection)  # type: ignore[attr-defined]
        super().finish()

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _serve(self) -> None:
        api = self.api
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length) if length else b""
        body = json.loads(data) if data else None
        with api.lock:
            api.requests.append(Seen(self.command, self.path, time.monotonic(), dict(self.headers), body))
            fault = api._take_fault(self.command, self.path)
        self.lose_answer = False
        if fault is not None:
            if fault.delay_s:
                time.sleep(fault.delay_s)
            if fault.drop:
                self.close_connection = True
                return
            if fault.status:
                self._status(fault.status, fault.message, fault.reason, headers=fault.headers, raw=fault.body)
                return
            self.lose_answer = fault.lose_answer
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        parts = [unquote(part) for part in url.path.split("/") if part]
        if parts == ["version"]:
            self._answer(200, {"major": api.release[0], "minor": api.release[1]})
        elif parts == ["apis", "resource.k8s.io"]:
            versions = [{"groupVersion": f"resource.k8s.io/{v}", "version": v} for v in api.served]
            if versions:
                self._answer(200, {"kind": "APIGroup", "versions": versions})
            else:
                self._not_served()
        else:
            self._resource(parts, query, body)

    def _resource(self, parts: list[str], query: dict[str, str], body: Any) -> None:
        group = parts[1] if parts[0] == "apis" else ""
        version, rest = (parts[2], parts[3:]) if group else (parts[1], parts[2:])
        if group == "resource.k8s.io" and version not in self.api.served:
            self._not_served()
            return
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        collection = f"{group}/{rest[0]}" if group else rest[0]
        if len(rest) == 1:
            if self.command == "POST":
                self._create(collection, namespace, body)
            elif query.get("watch") == "true":
                self._watch(collection, query)
            else:
                self._list(collection, namespace, query)
        else:
            self._one(collection, (namespace, rest[1]), body)

    def _list(self, collection: str, namespace: str, query: dict[str, str]) -> None:
        with self.api.lock:
            found = [o for o in self.api.objects.get(collection, {}).values() if _selected(o, query)]
            found = [o for o in found if not namespace or o["metadata"].get("namespace") == namespace]
            start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0) or len(found) + 1
            metadata = {"resourceVersion": str(self.api.version)}
            if start + limit < len(found):
                metadata["continue"] = str(start + limit)
            self._answer(200, {"kind": "List", "metadata": metadata, "items": found[start : start + limit]})

    def _create(self, collection: str, namespace: str, body: Object) -> None:
        api = self.api
        with api.lock:
            metadata = body["metadata"]
            if not metadata.get("name"):
                suffix = "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
                metadata["name"] = metadata["generateName"][:58] + suffix
            key = (namespace, metadata["name"])
            if key in api.objects.get(collection, {}):
                self._status(409, "already exists", "AlreadyExists", name=key[1])
                return
            metadata["uid"] = f"uid-{api.version}-{metadata['name']}"
            metadata["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["managedFields"] = [{"manager": "stub"}]
            self._answer(201, api._store(collection, key, body, "ADDED"))

    def _one(self, collection: str, key: tuple[str, str], body: Any) -> None:
        api = self.api
        with api.lock:
            item = api.objects.get(collection, {}).get(key)
            if item is None:
                self._status(404, f"{collection} {key[1]!r} not found", "NotFound", name=key[1])
                return
            metadata = item["metadata"]
            if self.command == "GET":
                self._answer(200, item)
            elif self.command == "PUT":
                if body["metadata"].get("resourceVersion") not in (None, "", metadata["resourceVersion"]):
                    self._status(409, "the object has been modified", "Conflict", name=key[1])
                    return
                self._answer(200, api._store(collection, key, body, "MODIFIED"))
            elif self.command == "PATCH":
                self._answer(200, api._store(collection, key, {**item, **body}, "MODIFIED"))
            else:
                preconditions = (body or {}).get("preconditions") or {}
                if any(metadata[name] != value for name, value in preconditions.items()):
                    self._status(409, "precondition failed", "Conflict", name=key[1])
                    return
                self._answer(200, api._remove(collection, key))

    def _watch(self, collection: str, query: dict[str, str]) -> None:
        api = self.api
        since = int(query.get("resourceVersion") or 0)
        with api.lock:
            expired = since < api.compacted
            lines, api.raw_lines = api.raw_lines, []
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if expired:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        elif not api.close_watches_at_once:
            for line in lines:
                self._chunk(line + b"\n")
            with api.lock:
                api.open_watches += 1
            try:
                self._follow(collection, query, since)
            finally:
                with api.lock:
                    api.open_watches -= 1
                    api.lock.notify_all()
        self._chunk(b"")

    def _follow(self, collection: str, query: dict[str, str], since: int) -> None:
        api = self.api
        end = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        bookmark = time.monotonic() + api.bookmark_s
        while True:
            with api.lock:
                fresh = [h for h in api.history if h[0] > since and h[1] == collection and _selected(h[3], query)]
                if not fresh:
                    now = time.monotonic()
                    if api._stopping or now >= end or since < api.compacted:
                        return
                    if now < bookmark:
                        api.lock.wait(max(0.001, min(end, bookmark) - now))
                        continue
                version = str(api.version)
            if api.silent_watches:
                time.sleep(0.05)
                continue
            if api.watch_lag_s:
                time.sleep(api.watch_lag_s)
            for _, _, kind, item in fresh:
                self._chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")
            if fresh:
                since = fresh[-1][0]
            else:
                mark = {"kind": "Bookmark", "metadata": {"resourceVersion": version}}
                self._chunk(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
                since = max(since, int(version))
                bookmark = time.monotonic() + api.bookmark_s

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _not_served(self) -> None:
        self._status(404, "", raw=b"404 page not found\n")

    def _status(
        self,
        code: int,
        message: str,
        reason: str = "",
        *,
        name: str = "",
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> None:
        details = {"name": name} if name else {}
        status = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "details": details}
        self._answer(code, {**status, "code": code}, headers, raw)

    def _answer(self, code: int, body: Any, headers: dict[str, str] | None = None, raw: bytes | None = None) -> None:
        if self.lose_answer:
            self.close_connection = True
            return
        data = raw if raw is not None else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json" if raw is None else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _bare(item: Object) -> Object:
    item = copy.deepcopy(item)
    item["metadata"].pop("resourceVersion", None)
    return item


def _selected(item: Object, query: dict[str, str]) -> bool:
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, wanted = term.partition("=")
        value: Any = item
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if (value or "") != wanted:
            return False
    return True
