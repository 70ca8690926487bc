"""Requests to the API server as raw JSON.

`dra_driver.kube.access` gives address, TLS, proxies and credentials; requests go straight to its urllib3 pool. `ApiClient.param_serialize` and `call_api` would cost 35 us more for each GET and 3 ms for each slice that is written,
and typed models drop the fields that they do not know.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.response import BaseHTTPResponse

from dra_driver import __version__, deep_json
from dra_driver.kube import errors
from dra_driver.kube.access import TOKEN_AGE_S, Access, from_service_account
from dra_driver.kube.asking import Answer, NoAnswerError, PendingGet, send
from dra_driver.kube.watch import ListWatch
from dra_driver.model.errors import DriverError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.05  # just over TCP's first retransmission after 3 s
READ_TIMEOUT_S = 30.0  # below the kubelet's 45 s for a whole prepare
# Credentials or certificates that stopped working are read anew, but not by every one of the requests that fail.
RENEW_EVERY_S = 10.0


def reach(kubeconfig: str | None, token_age_s: float = TOKEN_AGE_S) -> Access:
    """`kubeconfig` is a path (several with `:`); None means in-cluster. TellUser when neither can be used."""
    if kubeconfig is None:
        return from_service_account(token_age_s)
    from dra_driver.kube.kubeconfig import from_kubeconfig  # loads the kubernetes package

    return from_kubeconfig(kubeconfig, token_age_s)


class KubeApi:
    """`ports.ResourceApi` for one API server. No rate limit of its own; the server's 429 is handed to the caller.

    Nothing is read or connected before the first request. A token file is read again after `token_age_s` seconds;
    everything else about the way to the server when it refuses us, at most once in `renew_every_s` seconds.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        *,
        token_age_s: float = TOKEN_AGE_S,
        renew_every_s: float = RENEW_EVERY_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._token_age_s = token_age_s
        self._renew_every_s = renew_every_s
        self._lock = threading.Lock()
        self._access: Access | None = None
        self._renewed_at = 0.0
        self._watches: set[ListWatch] = set()
        self._closed = False
        self._read_timeout_s = read_timeout_s
        self._timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        self.paths_not_served = 0
        self.watch_events_skipped = 0

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """The decoded answer ({} if it is empty); `dra_driver.kube.errors` for everything else. A GET whose connection
        broke before an answer came is sent once more: the server closes idle connections, and that race is not news."""
        url = f"{path}?{urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        answer = self._send(method, url, payload, content_type, self._timeout, stream=False)
        return self._decoded(method, url, answer)

    def ask(self, paths: Sequence[str]) -> list[Callable[[], dict[str, Any]]]:
        """Sends a GET for each path, each on a connection of its own; what is returned waits for the answer, and gives or
        raises what `request` would. Call each once: the connection is free again after that."""
        answers: list[Callable[[], dict[str, Any]]] = []
        reachable = True
        for path in paths:
            sent = self._sent(path) if reachable else None
            # One that cannot be sent has waited for a connection; not one after the other.
            reachable = sent is not None
            answers.append(partial(self._answer, path, *sent) if sent else partial(self.request, "GET", path))
        return answers

    def _sent(self, path: str) -> tuple[Access, PendingGet] | None:
        try:
            access = self._connected()
            headers = self._headers(access)
        except DriverError:
            return None
        sent = send(access.pool, access.prefix + path, headers, CONNECT_TIMEOUT_S, self._read_timeout_s)
        return (access, sent) if sent is not None else None

    def _answer(self, path: str, access: Access, sent: PendingGet) -> dict[str, Any]:
        try:
            answer = sent.answer()
        except (NoAnswerError, ConnectionError):
            return self.request("GET", path)  # the server closes idle connections, and that race is not news
        except OSError as error:
            raise self._unreachable("GET", path, access, error) from error
        return self._decoded("GET", path, answer)

    def _decoded(self, method: str, url: str, answer: Answer | BaseHTTPResponse) -> dict[str, Any]:
        status, data = answer.status, answer.data
        if not 200 <= status < 300:
            raise self._refused(method, url, status, data, answer.headers)
        if not data:
            return {}
        try:
            decoded = deep_json.loads(data)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise errors.Unavailable(
                f"{method} {url.split('?', 1)[0]}",
                f"HTTP {status}, but the answer is no JSON object ({len(data)} bytes)",
                "check that the address leads to the API server and not to a proxy",
                status=status,
            )
        return decoded

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> BaseHTTPResponse:
        """A GET whose body is read as it comes; the caller closes it. Errors as in `request`."""
        url = f"{path}?{urlencode(query)}"
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        answer = self._send("GET", url, None, "", timeout, stream=True)
        if not 200 <= answer.status < 300:
            try:
                data = answer.read(65536)
            except (HTTPError, OSError):
                data = b""
            finally:
                answer.close()
            raise self._refused("GET", url, answer.status, data, answer.headers)
        return answer

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        on_event: Callable[[str, dict[str, Any]], None],
        on_sync: Callable[[Sequence[dict[str, Any]]], None],
        stopped: Callable[[], bool],
    ) -> None:
        """`ports.ResourceApi.watch`. To make it look at `stopped` at once, call `interrupt`."""
        watch = ListWatch(self, path, query, on_event, on_sync, lambda: self._closed or stopped())
        with self._lock:
            self._watches.add(watch)
        try:
            watch.run()
        finally:
            with self._lock:
                self._watches.discard(watch)

    def interrupt(self) -> None:
        """Makes every watch look at its `stopped` now; those that go on resume where they were."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.interrupt()

    def close(self) -> None:
        """Ends all watches and drops idle connections. Requests under way end by themselves."""
        self._closed = True
        self.interrupt()
        with self._lock:
            access, self._access = self._access, None
        if access is not None:
            access.close()

    def _send(
        self, method: str, url: str, payload: bytes | None, content_type: str, timeout: urllib3.Timeout, *, stream: bool
    ) -> BaseHTTPResponse:
        access = self._connected()
        headers = self._headers(access)
        if payload is not None:
            headers["Content-Type"] = content_type
        attempts = 2 if method == "GET" else 1
        while True:
            attempts -= 1
            try:
                return access.pool.urlopen(
                    method,
                    access.prefix + url,
                    body=payload,
                    headers=headers,
                    timeout=timeout,
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                    preload_content=not stream,
                )
            except (HTTPError, OSError) as error:
                if isinstance(error, ProtocolError) and attempts:
                    continue
                raise self._unreachable(method, url, access, error) from error

    @staticmethod
    def _headers(access: Access) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"dra-driver/{__version__}"}
        authorization = access.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def _connected(self) -> Access:
        access = self._access
        if access is None:
            with self._lock:
                access = self._access
                if access is None:
                    access = self._access = reach(self._kubeconfig, self._token_age_s)
                    self._renewed_at = time.monotonic()
        return access

    def _renew(self) -> None:
        with self._lock:
            if time.monotonic() - self._renewed_at >= self._renew_every_s:
                # Connections that other threads use stay open until they are done with them.
                self._access = None

    def _refused(self, method: str, url: str, status: int, data: bytes, headers: Mapping[str, str]) -> errors.ApiError:
        error = errors.from_answer(method, url, status, data, headers)
        if isinstance(error, errors.Unauthorized):
            self._renew()
        if isinstance(error, errors.NotServed):
            self.paths_not_served += 1
        return error

    def _unreachable(self, method: str, url: str, access: Access, error: Exception) -> errors.Unavailable:
        next_step = f"check that the API server {access.host} is up and reachable from this node"
        if isinstance(error, SSLError):
            self._renew()
            next_step = f"check that {access.host} shows a certificate of the cluster's CA and accepts ours"
        why = str(error) if isinstance(error, NewConnectionError) else f"{type(error).__name__}: {error}"
        return errors.Unavailable(f"{method} {url.split('?', 1)[0]}", why, next_step)
