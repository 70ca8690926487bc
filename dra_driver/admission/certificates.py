"""What the webhook's own certificates must be, and when they are made anew. Pure but for the random numbers in keys.

One authority that lives long and signs nothing but a serving certificate that lives short: that one is replaced without
anybody else's noticing. An authority that is replaced stays in the bundle, and the serving certificate moves to the new one
only when API servers know it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = datetime.timedelta(days=3650)
# The API server's clock may be behind the one of this node.
BACKDATED = datetime.timedelta(hours=1)

# What the package raises for bytes that are not what they should be.
_UNUSABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion),
    *(x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)


@dataclass(frozen=True, slots=True)
class Material:
    """PEM. `authorities` are certificates, the one that signs now first; `authority_key` is that one's."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def renewed(
    found: Material | None,
    names: Sequence[str],
    now: datetime.datetime,
    life: datetime.timedelta,
    authorities_known: bool,
    authority_life: datetime.timedelta = AUTHORITY_LIFE,
) -> tuple[Material, str]:
    """What shall be used from now on, and why it is not `found` ("" if it is). `names` are DNS names and IP addresses;
    `authorities_known` says that API servers have been told all of `found.authorities`."""
    if found is None:
        return _all_new(names, now, life, authority_life), "there are none yet"
    try:
        authorities = x509.load_pem_x509_certificates(found.authorities)
        authority = _Authority(authorities[0], _key(found.authority_key, authorities[0]))
    except _UNUSABLE as error:
        return _all_new(names, now, life, authority_life), f"the authority cannot be used ({error})"
    if not _is_ours(authority.certificate):
        return _all_new(names, now, life, authority_life), "the authority is no authority"
    if now < authority.certificate.not_valid_before_utc or now >= _two_thirds(authority.certificate):
        new = _new_authority(now, authority_life)
        kept = [former for former in authorities if former.not_valid_after_utc > now]
        bundle = b"".join(_pem(certificate) for certificate in (new.certificate, *kept))
        moved = Material(bundle, _pem_key(new.key), found.certificate, found.key)
        # Who comes next finds the new authority in place; until API servers know it, the old certificate goes on.
        return renewed(moved, names, now, life, False, authority_life)[
            0
        ], "the authority is past two thirds of its life"
    why = _why_not(found, authority.certificate, authorities[1:], names, now, authorities_known)
    if not why:
        return found, ""
    certificate, key = _issue(authority, names, now, life)
    return Material(found.authorities, found.authority_key, certificate, key), why


def renewal_due(material: Material) -> datetime.datetime:
    """When the serving certificate is to be replaced."""
    return _two_thirds(x509.load_pem_x509_certificate(material.certificate))


def expiry(certificate: bytes) -> datetime.datetime:
    """Of the first certificate of a PEM chain; ValueError when there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _why_not(
    found: Material,
    authority: x509.Certificate,
    former: Sequence[x509.Certificate],
    names: Sequence[str],
    now: datetime.datetime,
    authorities_known: bool,
) -> str:
    """Why the serving certificate cannot stay, "" if it can."""
    try:
        serving = x509.load_pem_x509_certificate(found.certificate)
        _key(found.key, serving)
        shown = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except _UNUSABLE as error:
        return f"the certificate cannot be used ({error})"
    if set(shown) != set(_alternatives(names)):
        return "the certificate is for other names"
    if now >= serving.not_valid_after_utc:
        return "the certificate has expired"
    if now < serving.not_valid_before_utc or now >= _two_thirds(serving):
        return "the certificate is past two thirds of its life"
    if _signed(serving, authority):
        return ""
    if not authorities_known and any(_signed(serving, one) for one in former):
        return ""
    return "the certificate is of another authority"


def _all_new(
    names: Sequence[str], now: datetime.datetime, life: datetime.timedelta, authority_life: datetime.timedelta
) -> Material:
    authority = _new_authority(now, authority_life)
    certificate, key = _issue(authority, names, now, life)
    return Material(_pem(authority.certificate), _pem_key(authority.key), certificate, key)


def _new_authority(now: datetime.datetime, life: datetime.timedelta) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: clients that know two authorities of one name may try the wrong one only.
    name = _name(f"dra-driver webhook authority {x509.random_serial_number() % 16**8:08x}")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signing certificates and CRLs
    made = (
        _builder(name, name, key, now, now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Authority(made, key)


def _issue(
    authority: _Authority, names: Sequence[str], now: datetime.datetime, life: datetime.timedelta
) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + life, authority.certificate.not_valid_after_utc)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # signatures
    made = (
        _builder(_name("dra-driver webhook"), authority.certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _pem(made), _pem_key(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except _UNUSABLE:
        return False
    return True


def _is_ours(authority: x509.Certificate) -> bool:
    try:
        return bool(authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except _UNUSABLE:
        return False


def _key(pem: bytes, certificate: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("key and certificate do not belong together")
    return key


def _two_thirds(certificate: x509.Certificate) -> datetime.datetime:
    begin = certificate.not_valid_before_utc + BACKDATED
    return begin + (certificate.not_valid_after_utc - begin) * 2 / 3


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
