"""Keys, certificates and tokens of one throwaway cluster, made with openssl. They authenticate nothing else."""

from __future__ import annotations

import csv
import secrets
import subprocess
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster import ClusterError

DAYS = "3650"
CURVE = "ec_paramgen_curve:prime256v1"
ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
PROXY = "system:kube-proxy"

# A configuration of our own: what distributions put into theirs differs.
CONFIGURATION = """
[req]
distinguished_name = name
x509_extensions = ca
prompt = no
[name]
CN = unused
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
"""


def node_identity(node: str) -> str:
    return f"system:node:{node}"


class Pki:
    """Files below one directory, readable by root alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / "ca.crt"
        self.ca_key = directory / "ca.key"
        self.server = directory / "apiserver.crt"
        self.server_key = directory / "apiserver.key"
        self.client = directory / "apiserver-kubelet-client.crt"
        self.client_key = directory / "apiserver-kubelet-client.key"
        self.service_accounts = directory / "service-accounts.pub"
        self.service_accounts_key = directory / "service-accounts.key"
        self.tokens = directory / "tokens.csv"

    def create(self, cluster: str, addresses: Iterable[str], nodes: Iterable[str]) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._directory / "openssl.cnf").write_text(CONFIGURATION)
        new = ("req", "-config", "openssl.cnf", "-newkey", "ec", "-pkeyopt", CURVE, "-nodes")
        subject = ("-subj", f"/CN=dra-e2e {cluster}")
        self._openssl(*new, "-x509", "-days", DAYS, *subject, "-keyout", "ca.key", "-out", "ca.crt")
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        alternatives = [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
        self._sign("apiserver", "/CN=kube-apiserver", "serverAuth", alternatives)
        # Logs and exec: kubelets give system:masters whatever it asks for.
        self._sign("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver", "clientAuth", ())
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", CURVE, "-out", "service-accounts.key")
        self._openssl("pkey", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub")
        self._write_tokens(nodes)

    def token(self, identity: str) -> str:
        with self.tokens.open(newline="") as file:
            tokens = {user: token for token, user, *_ in csv.reader(file)}
        if identity not in tokens:
            raise ClusterError(f"looking up the token of {identity}: there are {', '.join(tokens)}")
        return tokens[identity]

    def _write_tokens(self, nodes: Iterable[str]) -> None:
        identities = {ADMIN: "system:masters", CONTROLLER_MANAGER: "", SCHEDULER: "", PROXY: ""}
        identities |= {node_identity(node): "system:nodes" for node in nodes}
        self.tokens.touch(mode=0o600)
        with self.tokens.open("w", newline="") as file:
            for user, group in identities.items():
                csv.writer(file).writerow([secrets.token_hex(16), user, user, group])

    def _sign(self, name: str, subject: str, usage: str, alternatives: Iterable[str]) -> None:
        extensions = [f"extendedKeyUsage = {usage}"]
        if names := ",".join(alternatives):
            extensions.append(f"subjectAltName = {names}")
        (self._directory / f"{name}.ext").write_text("\n".join(extensions) + "\n")
        new = ("req", "-config", "openssl.cnf", "-new", "-newkey", "ec", "-pkeyopt", CURVE, "-nodes")
        self._openssl(*new, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS)
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", *authority, "-extfile", f"{name}.ext", "-out", f"{name}.crt"
        )

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self._directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"making certificates with `openssl {' '.join(arguments)}`: {done.stderr.strip()}")
