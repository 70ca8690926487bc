"""Certificates made with openssl, and a webhook's server in this process."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dra_driver.admission.door import Door
from dra_driver.admission.server import Server
from dra_driver.admission.tls import server_context
from tests.admission.reviews import DRIVER

Connect = Callable[..., "Client"]


@dataclass(frozen=True)
class Pair:
    """A self-signed certificate for 127.0.0.1 and its key, as files."""

    certificate: Path
    key: Path

    @property
    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


def make_pair(directory: Path, name: str = "webhook") -> Pair:
    directory.mkdir(parents=True, exist_ok=True)
    pair = Pair(directory / "tls.crt", directory / "tls.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return pair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("certificate"))


class Client:
    """One connection to a port of this machine, made when it is first used."""

    def __init__(self, port: int | None, context: ssl.SSLContext) -> None:
        assert port is not None
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)

    def ask(
        self, data: bytes, method: str = "POST", path: str = "/validate?timeout=5s", **headers: str
    ) -> tuple[int, bytes]:
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        self.connection.request(method, path, data, sent)
        with self.connection.getresponse() as response:
            return response.status, response.read()

    def shown(self) -> dict[str, Any]:
        """The certificate that the server shows."""
        if self.connection.sock is None:
            self.connection.connect()
        assert isinstance(self.connection.sock, ssl.SSLSocket)
        return dict(self.connection.sock.getpeercert() or {})


@pytest.fixture
def connect(pair: Pair) -> Iterator[Connect]:
    """Clients of a server, or of a port with the authority of `context`; closed in the end."""
    made: list[Client] = []

    def client(server: Server | int, context: ssl.SSLContext | None = None) -> Client:
        port = server if isinstance(server, int) else server.port
        made.append(Client(port, context or pair.client))
        return made[-1]

    yield client
    for one in made:
        one.connection.close()


@pytest.fixture
def counted() -> list[str]:
    """Results of the reviews, as metrics get them."""
    return []


@pytest.fixture
def serve(pair: Pair, counted: list[str]) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []
    context = server_context(pair.certificate.read_bytes(), pair.key.read_bytes())

    def start(**more: Any) -> Server:
        door = Door(DRIVER, lambda result, _: counted.append(result))
        server = Server(
            **{"address": "127.0.0.1", "port": 0, "context": lambda: context, "answer": door.answer, **more}
        )
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
