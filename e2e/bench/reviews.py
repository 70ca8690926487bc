"""The admission webhook under load: its own process, its certificate in the Secret and its authority in the configuration, as
the manifests install it; this process is the API servers."""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.cluster import Cluster, ClusterError
from e2e.installation import View
from e2e.objects import claim, config
from e2e.webhook import PORT, Webhook

RATE = 200  # reviews a second
CONNECTIONS = 8
BAR = 3.0  # times what a server that has nothing to do takes, written in Go
ANSWERS = {True: "TimeSlicing", False: "TimeSlice"}  # a strategy for each

Row = tuple[str, str, str, bool | None]
Ask = Callable[[], None]


def reviews(cluster: Cluster, seconds: float = 10) -> Iterator[Row]:
    """Rows of the bench: how many reviews a second there are, and how long they take when there are 200."""
    with tempfile.TemporaryDirectory(prefix="dra-bench-") as directory:
        webhook = Webhook(View(cluster), Path(directory))
        webhook.install()
        try:
            with _review_calls(webhook) as asks, _floor_calls(cluster) as floor:
                for calls in (asks, floor):
                    _all_at_once(calls, 1)  # whatever is done once
                done = _all_at_once(asks, seconds) / seconds
                yield "webhook: reviews a second", f"{done:.0f}", f"{RATE}", done >= RATE
                (p50, p99), (beside50, beside99) = _at_a_rate(list(zip(asks, floor, strict=True)), seconds)
                yield f"floor: /version at {RATE}/s, p50, p99", f"{beside50:.1f}, {beside99:.1f} ms", "", None
                ratio = p99 / beside99
                figure = f"{p50:.1f}, {p99:.1f} ms = {ratio:.1f} x floor"
                yield f"reviews at {RATE}/s, p50, p99", figure, f"p99 {BAR:.0f} x floor", ratio <= BAR
        finally:
            webhook.remove()


@contextmanager
def _review_calls(webhook: Webhook) -> Iterator[list[Ask]]:
    with _connections(webhook.address, PORT, webhook.secret()["ca.crt"].decode()) as connections:
        yield [_ask(connection) for connection in connections]


@contextmanager
def _floor_calls(cluster: Cluster) -> Iterator[list[Ask]]:
    """What any call over HTTPS takes here, by the same client and to a server that has nothing to do."""
    server = urlsplit(cluster.server)
    assert server.hostname is not None
    with _connections(server.hostname, server.port or 443, cluster.ca.read_text()) as connections:
        yield [_read(connection, cluster.token("admin")) for connection in connections]


@contextmanager
def _connections(host: str, port: int, authority: str) -> Iterator[list[http.client.HTTPSConnection]]:
    """They stay open, as those of API servers do."""
    context = ssl.create_default_context(cadata=authority)
    made = [http.client.HTTPSConnection(host, port, timeout=10, context=context) for _ in range(CONNECTIONS)]
    try:
        yield made
    finally:
        for connection in made:
            connection.close()


def _read(connection: http.client.HTTPSConnection, token: str) -> Ask:
    def ask() -> None:
        connection.request("GET", "/version", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise ClusterError(f"asking the API server for its version: {answer.status}; see its log")

    return ask


def _ask(connection: http.client.HTTPSConnection) -> Ask:
    """Right and wrong configuration by turns; ClusterError on any other answer than that."""
    bodies = itertools.cycle([(allowed, _review(strategy)) for allowed, strategy in ANSWERS.items()])

    def ask() -> None:
        allowed, body = next(bodies)
        connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200 or json.loads(text)["response"]["allowed"] is not allowed:
            raise ClusterError(f"asking the webhook for a review: {answer.status} {text[:300]!r}; see its log")

    return ask


def _review(strategy: str) -> bytes:
    sharing = {"strategy": strategy}
    parameters: dict[str, Any] = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "operation": "CREATE",
        "name": "bench",
        "namespace": "bench",
        "object": claim("bench", configs=[config(parameters)]),
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def _all_at_once(asks: list[Ask], seconds: float) -> int:
    """Every connection asks again as soon as it is answered; how many answers came in this time."""
    end = time.monotonic() + seconds
    counts = [0] * len(asks)

    def run(number: int) -> None:
        while time.monotonic() < end:
            asks[number]()
            counts[number] += 1

    _in_threads(run, len(asks))
    return sum(counts)


def _at_a_rate(both: list[tuple[Ask, Ask]], seconds: float) -> list[tuple[float, float]]:
    """(p50, p99) in ms of the one and of the other, each at the rate, from the moment at which a call was due: one that had to
    wait for another has waited."""
    begin, numbers = time.monotonic() + 0.1, itertools.count()
    took: tuple[list[float], list[float]] = ([], [])

    def run(connection: int) -> None:
        number = next(numbers)
        while (due := begin + number / RATE / 2) < begin + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            both[connection][number % 2]()
            took[number % 2].append(time.monotonic() - due)
            number = next(numbers)

    _in_threads(run, len(both))
    centiles = [statistics.quantiles(each, n=100) for each in took]
    return [(each[49] * 1000, each[98] * 1000) for each in centiles]


def _in_threads(run: Callable[[int], None], count: int) -> None:
    trouble: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            run(number)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            trouble.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
