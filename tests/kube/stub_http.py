"""The HTTP side of the stub API server: one request in, one answer or stream out."""

from __future__ import annotations

import json
import random
import string
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from tests.kube.stub_api import StubApi

Object = dict[str, Any]


class StubServer(ThreadingHTTPServer):
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


class StubHandler(BaseHTTPRequestHandler):
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
            fault = api.seen(self.command, self.path, dict(self.headers), body)
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
            self._answer(201, api.store(collection, key, body, "ADDED"))

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
                self._answer(200, api.store(collection, key, body, "MODIFIED"))
            elif self.command == "PATCH":
                self._answer(200, api.store(collection, key, {**item, **body}, "MODIFIED"))
            else:
                preconditions = (body or {}).get("preconditions") or {}
                if any(metadata[name] != value for name, value in preconditions.items()):
                    self._status(409, "precondition failed", "Conflict", name=key[1])
                    return
                self._answer(200, api.remove(collection, key))

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
                    if api.stopping or now >= end or since < api.compacted:
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


def _selected(item: Object, query: dict[str, str]) -> bool:
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, wanted = term.partition("=")
        value: Any = item
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if (value or "") != wanted:
            return False
    return True
