"""On request only (`DRA_E2E_LIVE=1`, root, about 60 s): the webhook's certificates from elsewhere, on a real cluster. Given in a
Secret, or by cert-manager, which issues, renews and injects as it does for users.
"""

from __future__ import annotations

import base64
import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.cert_manager import CertManager
from e2e.cluster import ClusterError, Options, processes
from e2e.driver_image import driver_image
from e2e.installation import until
from e2e.objects import claim, config
from tests.deploy.installed import NAMESPACE, WEBHOOK, Installed

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.timeout(300, func_only=True),  # the cluster and cert-manager may have to be built
]
IMAGE = "dra-driver-e2e:certificates"
NODE = "node-a"
SERVICE = f"{WEBHOOK}.{NAMESPACE}.svc"
WRONG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategi": "MPS"}}
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CERTIFICATES = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates"
BY_CERT_MANAGER = {"mode": "cert-manager"}


@pytest.fixture(scope="module")
def cert_manager(helm: Path) -> CertManager:
    return CertManager.made(helm)


@pytest.fixture(scope="module")
def installed(helm: Path) -> Iterator[Installed]:
    cluster = processes(Options(name="certificates", nodes=(NODE,)))
    cluster.down()
    cluster.up()
    try:
        cluster.load(driver_image(IMAGE))
        yield Installed(cluster, helm, IMAGE)
    finally:
        cluster.down()


def values(tls: dict[str, Any]) -> dict[str, Any]:
    """One replica: what is shown by one is what all show, and it is sooner there."""
    return {"webhook": {"replicas": 1, "tls": tls}}


def answer(installed: Installed) -> str:
    """What is said of a claim with a mistake in its configuration."""
    with pytest.raises(ClusterError) as said:
        installed.apply(claim("wrong", configs=[config(WRONG)]))
    return str(said.value)


def answers(installed: Installed) -> bool:
    return "sharing.strategi: unknown field" in answer(installed)


def pod(installed: Installed) -> dict[str, Any]:
    selector = "labelSelector=app.kubernetes.io/component%3Dwebhook"
    (found,) = (
        item
        for item in (installed.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}") or {})["items"]
        if "deletionTimestamp" not in item["metadata"]
    )
    pod: dict[str, Any] = found
    return pod


def shown(installed: Installed) -> x509.Certificate:
    """The certificate by which the webhook's pod is who it is."""
    program = (
        f"import ssl; print(ssl.get_server_certificate(({pod(installed)['status']['podIP']!r}, 8443), timeout=10))"
    )
    done = installed.cluster.nodes[NODE].run([sys.executable, "-BISc", program])
    assert done.returncode == 0, done.stderr
    return x509.load_pem_x509_certificate(done.stdout.encode())


def data(installed: Installed, secret: str) -> dict[str, bytes]:
    found = installed.get(f"{SECRETS}/{secret}") or {}
    return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}


class Authority:
    """Somebody's own: an authority, an intermediate one that signs, and RSA keys."""

    def __init__(self) -> None:
        self._now = datetime.datetime.now(datetime.UTC)
        root_key, self._key = _rsa(), _rsa()
        self.root = self._sign("root", root_key.public_key(), "root", root_key, 3650, signs=True)
        self.signing = self._sign("signing", self._key.public_key(), "root", root_key, 3650, signs=True)

    def issue(self, days: int) -> tuple[x509.Certificate, dict[str, Any]]:
        """A serving certificate, and the Secret that it is given in."""
        key = _rsa()
        made = self._sign("webhook", key.public_key(), "signing", self._key, days, signs=False)
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        chain = _pem(made) + _pem(self.signing)
        return made, {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "given", "namespace": NAMESPACE},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(plain).decode()},
        }

    def _sign(
        self, name: str, key: rsa.RSAPublicKey, issuer: str, by: rsa.RSAPrivateKey, days: int, *, signs: bool
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(issuer))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(hours=1))
            .not_valid_after(self._now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVICE)]), critical=False)
            .sign(by, hashes.SHA256())
        )


def _rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def test_a_given_secret_is_used_and_a_new_one_without_a_restart(installed: Installed) -> None:
    authority = Authority()
    first, secret = authority.issue(days=1)
    installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, secret)
    bundle = base64.b64encode(_pem(authority.root)).decode()
    installed.install(**values({"mode": "secret", "secret": {"name": "given", "caBundle": bundle}}))
    assert shown(installed) == first
    assert answers(installed)
    before = pod(installed)
    assert before["spec"]["automountServiceAccountToken"] is False
    second, secret = authority.issue(days=90)
    installed.apply(secret)
    # The kubelet looks at a pod that changes at once, at others within the minute.
    installed.kubectl("annotate", "pod", before["metadata"]["name"], "-n", NAMESPACE, "look=now")

    def still_first() -> bool:
        assert answers(installed)
        return shown(installed) == first

    until("the new certificate", lambda: not still_first(), 60)
    assert shown(installed) == second
    assert answers(installed)
    after = pod(installed)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    metrics = installed.kubectl(
        "get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{after['metadata']['name']}:8080/proxy/metrics"
    )
    (line,) = (
        line
        for line in metrics.splitlines()
        if line.startswith("dra_driver_webhook_certificate_expires_timestamp_seconds")
    )
    assert float(line.split()[-1]) == second.not_valid_after_utc.timestamp()


def test_without_cert_manager_a_release_is_left_as_it_is(installed: Installed) -> None:
    with pytest.raises(AssertionError, match="this cluster has no cert-manager; install it first"):
        installed.upgrade(**values(BY_CERT_MANAGER))
    assert answers(installed)


def test_cert_manager_takes_over(installed: Installed, cert_manager: CertManager) -> None:
    cert_manager.install(installed, NODE)
    installed.upgrade(**values(BY_CERT_MANAGER))
    until("the authority in the configuration", lambda: answers(installed), 30)
    assert shown(installed) == x509.load_pem_x509_certificate(data(installed, secret_of(installed))["tls.crt"])
    assert pod(installed)["spec"]["automountServiceAccountToken"] is False
    events = (installed.get(f"/api/v1/namespaces/{NAMESPACE}/events") or {})["items"]
    of_cert_manager = [item for item in events if item["source"].get("component", "").startswith("cert-manager")]
    assert of_cert_manager
    assert [item["message"] for item in of_cert_manager if item["type"] != "Normal"] == []


def secret_of(installed: Installed) -> str:
    """Where cert-manager puts the certificate that is served."""
    found: str = (installed.get(f"{CERTIFICATES}/{WEBHOOK}") or {})["spec"]["secretName"]
    return found


def test_nobody_notices_that_cert_manager_renews(installed: Installed) -> None:
    before, uid = shown(installed), pod(installed)["metadata"]["uid"]
    certificate = installed.get(f"{CERTIFICATES}/{WEBHOOK}") or {}
    # As `cmctl renew` does it.
    conditions = [item for item in certificate["status"]["conditions"] if item["type"] != "Issuing"]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    issuing = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "",
        "lastTransitionTime": now,
    }
    certificate["status"]["conditions"] = [*conditions, issuing]
    installed.cluster.request("PUT", f"{CERTIFICATES}/{WEBHOOK}/status", certificate)

    def renewed() -> bool:
        assert answers(installed), answer(installed)
        return shown(installed) != before

    until("the renewed certificate", renewed, 60)
    assert answers(installed)
    assert pod(installed)["metadata"]["uid"] == uid


def test_a_secret_of_cert_manager_that_somebody_deletes_comes_back(installed: Installed) -> None:
    name = secret_of(installed)
    before = data(installed, name)["tls.crt"]
    installed.cluster.request("DELETE", f"{SECRETS}/{name}")
    until("the Secret", lambda: data(installed, name).get("tls.crt") not in {None, before}, 30)
    until("the webhook to be trusted", lambda: answers(installed), 30)


def test_it_can_take_over_again_itself(installed: Installed) -> None:
    """What cert-manager leaves behind is not in the way: it never deletes a Secret."""
    installed.upgrade(**values({"mode": "own"}))
    until("the webhook to be trusted", lambda: answers(installed), 30)
    assert shown(installed) == x509.load_pem_x509_certificate(data(installed, f"{WEBHOOK}-tls")["tls.crt"])
    assert "dra-driver webhook authority" in shown(installed).issuer.rfc4514_string()
