"""A container registry of our own: as much of the OCI distribution API over plain HTTP as it takes to pull an image, and a
connection that breaks when told."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from e2e.cluster import Node

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ROUTE = re.compile(r"/v2/(?P<name>.+)/(?P<what>manifests|blobs)/(?P<which>[^/]+)")
CHUNK = 1 << 20
CERTS, SECTION = "/etc/containerd/certs.d", '[plugins."io.containerd.cri.v1.images".registry]'


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a layer."""

    offset: int  # where it was to go on
    sent: int  # bytes


class Registry:
    """Serves one image under any name that holds no other; `directory` gets its layers."""

    def __init__(self, archive: Path, directory: Path, address: str) -> None:
        self._torn = False
        self.asked: list[Asked] = []
        self._directory = directory
        self._documents: dict[str, tuple[str, bytes]] = {}  # digest -> media type, content
        self._manifest = self._unpack(archive)
        self._server = ThreadingHTTPServer((address, 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="registry")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def tear(self) -> None:
        """From now on every connection breaks in the middle of a layer, wherever it began."""
        self._torn = True

    def mend(self) -> None:
        self._torn = False

    def tell(self, node: Node, host: str) -> None:
        """Lets containerd on a node find here what images call `host`, until the node reboots.

        containerd 2 says that its default for config_path is two directories, joined by a colon, and looks into neither when
        it pulls by its transfer service (core/transfer/registry takes the whole for one path): so one is named.
        """
        address, port = self._server.server_address[:2]
        hosts = node.path(f"{CERTS}/{host}/hosts.toml")
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text(f'server = "http://{address!s}:{port}"\n')
        configuration = node.path("/etc/e2e/containerd.toml")
        if CERTS not in (text := configuration.read_text()):
            configuration.write_text(f'{text}\n{SECTION}\n  config_path = "{CERTS}"\n')
            node.restart_containerd()

    def _unpack(self, archive: Path) -> str:
        """The manifest's digest."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            (image,) = json.loads(_read(tar, "manifest.json"))
            config = self._put(CONFIG, _read(tar, image["Config"]))
            layers = [self._put_layer(tar, name) for name in image["Layers"]]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        digest: str = self._put(MANIFEST, json.dumps(manifest).encode())["digest"]
        return digest

    def _put(self, kind: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._documents[digest] = (kind, content)
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def _put_layer(self, tar: tarfile.TarFile, name: str) -> dict[str, Any]:
        unnamed = self._directory / "unnamed"
        source = tar.extractfile(name)
        assert source is not None
        with source, unnamed.open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK)
        with unnamed.open("rb") as written:
            digest = f"sha256:{hashlib.file_digest(written, 'sha256').hexdigest()}"
        layer = unnamed.rename(self._directory / digest)
        return {"mediaType": LAYER, "digest": digest, "size": layer.stat().st_size}

    def document(self, which: str) -> tuple[str, str, bytes] | None:
        """(digest, media type, content) of a manifest or a configuration, by digest or tag."""
        digest = which if which.startswith("sha256:") else self._manifest
        found = self._documents.get(digest)
        return None if found is None else (digest, *found)

    def layer(self, digest: str) -> Path | None:
        path = self._directory / digest
        return path if path.is_file() else None

    def readable(self, size: int) -> int:
        """How many bytes of a layer get through."""
        return size // 2 if self._torn else size


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    source = tar.extractfile(name)
    assert source is not None
    return source.read()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            route = ROUTE.fullmatch(self.path.partition("?")[0])
            which = route["which"] if route else ""
            if route and (layer := registry.layer(which)):
                self._send_layer(layer, body=body)
            elif route and (found := registry.document(which)):
                digest, kind, content = found
                self._begin(200, [("Content-Type", kind), ("Docker-Content-Digest", digest)], len(content))
                self.wfile.write(content if body else b"")
            else:
                self._begin(200 if self.path == "/v2/" else 404, [], 0)

        def _send_layer(self, layer: Path, *, body: bool) -> None:
            size = layer.stat().st_size
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            begin, last = (int(match[1]), int(match[2] or size - 1)) if match else (0, size - 1)
            end = min(last + 1, size)
            headers = [("Content-Type", "application/octet-stream")]
            if match:
                headers.append(("Content-Range", f"bytes {begin}-{end - 1}/{size}"))
            readable = registry.readable(size)
            sent = 0
            if begin < readable:
                self._begin(206 if match else 200, headers, end - begin)
                sent = self._copy(layer, begin, min(end, readable)) if body else 0
            if body:
                registry.asked.append(Asked(begin, sent))
            self.close_connection = end > readable

        def _copy(self, layer: Path, begin: int, end: int) -> int:
            position = begin
            with layer.open("rb") as source:
                source.seek(begin)
                while position < end:
                    position += self.wfile.write(source.read(min(CHUNK, end - position)))
            return position - begin

        def _begin(self, status: int, headers: Sequence[tuple[str, str]], length: int) -> None:
            self.send_response(status)
            for name, value in (*headers, ("Content-Length", str(length))):
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Says nothing: tests ask `asked`."""

    return Handler
