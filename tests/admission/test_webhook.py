"""The webhook as it is run: a process, its settings, certificates that are replaced under it, its log and its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.errors import TellUser
from dra_driver.termination import Termination
from dra_driver.webhook import run
from dra_driver.webhook_settings import WEBHOOK_TABLE, load
from tests.admission.conftest import Connect, Pair, make_pair
from tests.admission.reviews import BAD, body, entry, manifest, review
from tests.cli.conftest import environment
from tests.kubelet.fake_kubelet import eventually

ROOT = Path(__file__).parents[2]
REVIEW = body(review(manifest(entry(BAD))))


class Process:
    """`dra-driver webhook` on free ports."""

    def __init__(self, log: Path, *flags: str) -> None:
        self.log = log
        self.http = free_port()
        argv = [sys.executable, "-m", "dra_driver.cli.main", "webhook", "--listen=127.0.0.1:0", *flags]
        argv.append(f"--http-address=127.0.0.1:{self.http}")
        with log.open("w") as file:
            self.process = subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=file, stderr=file)
        eventually(lambda: self.said("serving"), 60, "it does not serve")
        self.port = int(self.said("serving")[0]["port"])

    def said(self, word: str) -> list[dict[str, Any]]:
        assert self.process.poll() is None, self.log.read_text()
        lines = self.log.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, lines) if line["msg"].startswith(word)]

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def webhook(log: Path, *flags: str) -> Iterator[Process]:
    made = Process(log, *flags)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def with_files(pair: Pair) -> tuple[str, str]:
    return f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}"


def test_it_answers_reports_logs_and_ends(tmp_path: Path, pair: Pair, connect: Connect) -> None:
    with webhook(tmp_path / "log", *with_files(pair)) as process:
        client = connect(process.port)
        status, answer = client.ask(REVIEW)
        assert (status, json.loads(answer)["response"]["allowed"]) == (200, False)
        assert client.ask(b"x")[0] == 400
        (line,) = process.said("refused: ")
        assert (line["kind"], line["object"], line["user"]) == ("ResourceClaim", "default/mine", "jane")
        assert process.page("/healthz") == (200, "ok\n")
        assert process.page("/readyz") == (200, "ok\n")
        metrics = process.page("/metrics")[1]
        assert 'dra_driver_webhook_reviews_total{result="refused"} 1.0' in metrics
        assert 'dra_driver_webhook_reviews_total{result="malformed"} 1.0' in metrics
        assert "dra_driver_webhook_review_seconds_count 2.0" in metrics
        expires = re.search(r"^dra_driver_webhook_certificate_expires_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
        assert expires is not None
        assert float(expires[1]) == ssl.cert_time_to_seconds(client.shown()["notAfter"])
        assert process.end() == 0
        assert "stopped" in process.log.read_text()


def test_a_certificate_is_replaced_while_it_serves(tmp_path: Path, connect: Connect) -> None:
    first, second = make_pair(tmp_path / "1", "first"), make_pair(tmp_path / "2", "second")
    mounted = tmp_path / "mounted"
    mounted.symlink_to(
        first.certificate.parent
    )  # as the kubelet mounts Secrets: one link changes, and all files with it
    pair = Pair(mounted / "tls.crt", mounted / "tls.key")
    with webhook(tmp_path / "log", *with_files(pair)) as process:
        old = connect(process.port, first.client)
        assert old.ask(REVIEW)[0] == 200
        (tmp_path / "new").symlink_to(second.certificate.parent)
        os.replace(tmp_path / "new", mounted)
        assert connect(process.port, second.client).ask(REVIEW)[0] == 200
        assert old.ask(REVIEW)[0] == 200, "connections that are open stay"
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(process.port, first.client).ask(REVIEW)


def test_half_of_a_rotation_shows_the_old_certificate_until_the_rest_is_there(tmp_path: Path, connect: Connect) -> None:
    first, second = make_pair(tmp_path / "1", "first"), make_pair(tmp_path / "2", "second")
    with webhook(tmp_path / "log", *with_files(first)) as process:
        shutil.copy(second.certificate, tmp_path / "1" / "tls.crt")
        (authority := tmp_path / "first.crt").write_text(
            ssl.DER_cert_to_PEM_cert(shown(process.port))  # the file has been replaced: what is shown is the old one
        )
        assert connect(process.port, ssl.create_default_context(cafile=str(authority))).ask(REVIEW)[0] == 200
        assert process.page("/readyz")[0] == 200
        eventually(lambda: process.said("loading "), why="it does not say that the two do not go together")
        shutil.copy(second.key, first.key)
        assert connect(process.port, second.client).ask(REVIEW)[0] == 200


def shown(port: int) -> bytes:
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


def test_files_that_come_later_are_waited_for(tmp_path: Path, connect: Connect) -> None:
    pair = Pair(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
    with webhook(tmp_path / "log", *with_files(pair)) as process:
        assert process.page("/healthz")[0] == 200
        assert process.page("/readyz") == (503, f"looking at {pair.certificate}: No such file or directory\n")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect(process.port, ssl.create_default_context()).ask(REVIEW)
        make_pair(tmp_path / "tls")
        assert process.page("/readyz") == (200, "ok\n")
        assert connect(process.port, pair.client).ask(REVIEW)[0] == 200


def test_an_expired_certificate_is_not_ready_and_the_new_one_is(tmp_path: Path, connect: Connect) -> None:
    pair = make_pair(tmp_path / "tls")
    command = ["openssl", "x509", "-req", "-days", "-1", "-in", str(tmp_path / "csr"), "-signkey", str(pair.key)]
    request = ["openssl", "req", "-new", "-key", str(pair.key), "-subj", "/CN=old", "-out", str(tmp_path / "csr")]
    subprocess.run(request, check=True, capture_output=True)
    expired = subprocess.run(command, check=False, capture_output=True)
    if expired.returncode:
        pytest.skip(f"this openssl makes no certificates of the past: {expired.stderr.decode().strip()}")
    pair.certificate.write_bytes(expired.stdout)
    with webhook(tmp_path / "log", *with_files(pair)) as process:
        status, words = process.page("/readyz")
        assert status == 503
        assert f"the certificate {pair.certificate} expired at " in words
        make_pair(tmp_path / "tls")
        assert process.page("/readyz") == (200, "ok\n")
        assert connect(process.port, pair.client).ask(REVIEW)[0] == 200


def test_run_ends_when_it_is_told_and_twice_on_one_port_is_a_clear_error(pair: Pair) -> None:
    stop = Termination()
    port = free_port()
    settings = load(
        {"listen": f"127.0.0.1:{port}", "tls_cert": str(pair.certificate), "tls_key": str(pair.key)}, environment={}
    )
    thread = threading.Thread(target=run, args=(settings, stop))
    thread.start()
    try:
        eventually(lambda: answers(port), 30)
        with pytest.raises(TellUser, match=f"listening on 127.0.0.1:{port} for reviews"):
            run(settings, stop)
    finally:
        stop.tell()
        thread.join()
        stop.close()


def answers(port: int) -> bool:
    try:
        shown(port)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, "give either --tls-cert and --tls-key, or --tls-secret and --tls-names"),
        ({"tls_cert": "/a", "tls_secret": "a/b"}, "give either"),
        ({"tls_cert": "/a"}, "--tls-cert and --tls-key go together"),
        ({"tls_secret": "a/b"}, "--tls-secret needs --tls-names"),
        (
            {"tls_cert": "/a", "tls_key": "/b", "webhook_configuration": "x"},
            "--webhook-configuration needs --tls-secret",
        ),
        ({"tls_cert": "a"}, "--tls-cert 'a': must be an absolute path"),
        ({"tls_secret": "a"}, "--tls-secret 'a': must be NAMESPACE/NAME"),
        ({"tls_secret": "A/b"}, "must be NAMESPACE/NAME"),
        ({"tls_names": "a.svc,UP"}, "'UP' is neither a DNS name nor an IP address"),
        ({"listen": "8443"}, "must be ADDRESS:PORT or :PORT"),
        ({"listen": ":70000"}, "must be ADDRESS:PORT or :PORT"),
        ({"tls_life_s": "1"}, "must be 3 to"),
        ({"listen": "x", "check_s": "often"}, r"--listen 'x'.*--check-s 'often'.*see `dra-driver webhook --help`"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(flags: dict[str, str], why: str) -> None:
    with pytest.raises(TellUser, match=why):
        load(flags, environment={})


def test_settings_come_from_flags_variables_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("tls-secret: gpu/webhook\ntls-names: a.gpu.svc, ::1\nlisten: ':1'\nlog-level: debug\n")
    settings = load(
        {"listen": "[::1]:9443"}, {"DRA_DRIVER_WEBHOOK_CONFIGURATION": "hook", "DRA_DRIVER_LISTEN": ":2"}, file
    )
    assert settings.listen == ("::1", 9443)
    assert settings.tls_secret == ("gpu", "webhook")
    assert settings.tls_names == ("a.gpu.svc", "::1")
    assert (settings.webhook_configuration, settings.log_level) == ("hook", "debug")
    file.write_text("node-name: a\n")
    with pytest.raises(TellUser, match="'node-name' is not a setting"):
        load({}, {}, file)


def test_help_names_every_setting() -> None:
    argv = [sys.executable, "-m", "dra_driver.cli.main", "webhook", "--help"]
    words = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    assert all(row.flag in words for row in WEBHOOK_TABLE)
