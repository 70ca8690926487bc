"""What is made anew when: one table of lives, with times chosen by the test."""

from __future__ import annotations

import dataclasses
import datetime
import socket
import ssl
import threading
from typing import Any

import pytest
from cryptography import x509

from dra_driver.admission.certificates import Material, expiry, renewal_due, renewed
from dra_driver.admission.tls import server_context

NAMES = ("webhook.gpu.svc", "127.0.0.1")
NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
LIFE = 90 * DAY


def after(
    found: Material | None, now: datetime.datetime = NOW, known: bool = True, names: tuple[str, ...] = NAMES
) -> tuple[Material, str]:
    return renewed(found, names, now, LIFE, known)


@pytest.fixture(scope="module")
def first() -> Material:
    made, why = after(None)
    assert why == "there are none yet"
    return made


def certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def test_what_is_made_is_what_tls_clients_want(first: Material) -> None:
    (authority,) = certificates(first.authorities)
    (serving,) = certificates(first.certificate)
    serving.verify_directly_issued_by(authority)
    assert expiry(first.certificate) == NOW + LIFE
    assert authority.not_valid_after_utc == NOW + 3650 * DAY
    assert serving.not_valid_before_utc < NOW, "clocks differ"
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["webhook.gpu.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert b"PRIVATE" not in first.authorities + first.certificate


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_knows_the_authority_believes_it(name: str) -> None:
    made, _ = renewed(None, NAMES, datetime.datetime.now(datetime.UTC), LIFE, True)
    server, client = socket.socketpair()
    accepted: list[Any] = []

    def accept() -> None:
        with server_context(made.certificate, made.key).wrap_socket(server, server_side=True) as secure:
            accepted.append(secure.version())
            secure.recv(1)

    thread = threading.Thread(target=accept)
    thread.start()
    context = ssl.create_default_context(cadata=made.authorities.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with context.wrap_socket(client, server_hostname=name) as secure:
        secure.sendall(b"x")
    thread.join()
    assert accepted == ["TLSv1.3"]


def test_what_is_good_stays(first: Material) -> None:
    assert after(first, NOW + 59 * DAY) == (first, "")
    assert renewal_due(first) == NOW + 60 * DAY


def test_at_two_thirds_of_its_life_only_the_serving_certificate_is_made_anew(first: Material) -> None:
    again, why = after(first, NOW + 60 * DAY)
    assert why == "the certificate is past two thirds of its life"
    assert (again.authorities, again.authority_key) == (first.authorities, first.authority_key)
    assert again.key != first.key
    assert expiry(again.certificate) == NOW + 150 * DAY


def test_an_expired_one_is_made_anew(first: Material) -> None:
    again, why = after(first, NOW + 91 * DAY)
    assert why == "the certificate has expired"
    assert again.authorities == first.authorities


def test_other_names_need_another_certificate(first: Material) -> None:
    again, why = after(first, names=("other.gpu.svc",))
    assert why == "the certificate is for other names"
    assert after(again, names=("other.gpu.svc",)) == (again, "")


def test_an_old_authority_is_followed_in_two_steps_that_no_client_notices(first: Material) -> None:
    later = NOW + 2434 * DAY
    aged, _ = after(first, later - 10 * DAY)  # its serving certificate is young
    step, why = after(aged, later)
    assert why == "the authority is past two thirds of its life"
    new, old = certificates(step.authorities)
    assert old == certificates(first.authorities)[0]
    assert step.certificate == aged.certificate, "who knows only the old authority must go on believing us"
    assert after(step, later, known=False) == (step, ""), "API servers do not know it yet"
    done, why = after(step, later, known=True)
    assert why == "the certificate is of another authority"
    certificates(done.certificate)[0].verify_directly_issued_by(new)
    assert after(done, later) == (done, "")


def test_an_authority_that_has_expired_leaves_the_bundle(first: Material) -> None:
    again, _ = after(first, NOW + 3651 * DAY)
    assert len(certificates(again.authorities)) == 1
    assert again.authorities != first.authorities
    certificates(again.certificate)[0].verify_directly_issued_by(certificates(again.authorities)[0])


def test_a_certificate_never_outlives_its_authority() -> None:
    short, _ = renewed(None, NAMES, NOW, LIFE, True, authority_life=30 * DAY)
    assert expiry(short.certificate) == NOW + 30 * DAY


@pytest.mark.parametrize("part", ["authorities", "authority_key"])
@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_an_authority_that_is_damaged_is_made_anew_with_all_that_hangs_on_it(
    first: Material, part: str, content: bytes
) -> None:
    again, why = after(dataclasses.replace(first, **{part: content}))
    assert why.startswith("the authority cannot be used")
    assert after(again) == (again, "")


@pytest.mark.parametrize("part", ["certificate", "key"])
@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_serving_certificate_that_is_damaged_is_made_anew(first: Material, part: str, content: bytes) -> None:
    again, why = after(dataclasses.replace(first, **{part: content}))
    assert why.startswith("the certificate cannot be used")
    assert again.authorities == first.authorities
    assert after(again) == (again, "")


def test_parts_of_two_installations_do_not_go_together(first: Material) -> None:
    other, _ = after(None)
    again, why = after(dataclasses.replace(first, authorities=other.authorities, authority_key=other.authority_key))
    assert why == "the certificate is of another authority"
    assert again.authorities == other.authorities
    assert "do not belong together" in after(dataclasses.replace(first, key=other.key))[1]
    assert "do not belong together" in after(dataclasses.replace(first, authority_key=other.authority_key))[1]


def test_a_serving_certificate_is_no_authority(first: Material) -> None:
    mixed = dataclasses.replace(first, authorities=first.certificate, authority_key=first.key)
    assert after(mixed)[1] == "the authority is no authority"


def test_a_clock_that_was_wrong_when_they_were_made(first: Material) -> None:
    again, why = after(first, NOW - 10 * DAY)
    assert why == "the authority is past two thirds of its life"
    assert expiry(again.certificate) == NOW + 80 * DAY
