"""Command lines of etcd, API server, controller manager and scheduler. Values in, values out: nothing is started.

Each is alone in the control plane's network namespace, so all ports are the usual ones.
"""

from __future__ import annotations

from pathlib import Path

from e2e.cluster import Part
from e2e.cluster.build import Programs
from e2e.cluster.network import PODS, SERVICES, Addresses
from e2e.cluster.options import Options
from e2e.cluster.pki import Pki

ETCD_CLIENT = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
FIRST_SERVICE = "10.96.0.1"
RESOURCE_VERSIONS = ("v1", "v1beta1", "v1beta2")

# In the order of starting.
PARTS: tuple[Part, ...] = ("etcd", "apiserver", "controller-manager", "scheduler")
PROGRAM: dict[Part, str] = {
    "etcd": "etcd",
    "apiserver": "kube-apiserver",
    "controller-manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
}
PORT: dict[Part, int] = {"etcd": 2379, "apiserver": 6443, "controller-manager": 10257, "scheduler": 10259}


def parts(options: Options) -> tuple[Part, ...]:
    """What this cluster's control plane consists of, in the order of starting."""
    return PARTS if options.scheduled else PARTS[:3]


def readiness(options: Options) -> str:
    """Path that answers "ok" once the API server serves."""
    # The node authorizer of 1.37 waits for resource.k8s.io/v1, for ever where that is not served.
    return "/readyz" if options.served is None or "v1" in options.served else "/readyz?exclude=informer-sync"


def argv(
    part: Part, options: Options, programs: Programs, directory: Path, pki: Pki, addresses: Addresses
) -> list[str]:
    """The command line; `directory` is the control plane's own."""
    program = str(programs[PROGRAM[part]])
    match part:
        case "etcd":
            return [program, *_etcd(directory)]
        case "apiserver":
            return [program, *_apiserver(options, pki, addresses)]
        case "controller-manager":
            return [program, *_controller_manager(options, directory, pki)]
        case "scheduler":
            return [program, *_leaderless(directory, "scheduler"), *_release(options)]


def _etcd(directory: Path) -> list[str]:
    return [
        "--name=e2e",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={ETCD_CLIENT}",
        f"--advertise-client-urls={ETCD_CLIENT}",
        f"--listen-peer-urls={ETCD_PEER}",
        f"--initial-advertise-peer-urls={ETCD_PEER}",
        f"--initial-cluster=e2e={ETCD_PEER}",
        "--unsafe-no-fsync",  # a cluster that is thrown away need not survive a power cut
        "--log-level=warn",
    ]


def _apiserver(options: Options, pki: Pki, addresses: Addresses) -> list[str]:
    return [
        f"--etcd-servers={ETCD_CLIENT}",
        f"--advertise-address={addresses.control_plane}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--tls-cert-file={pki.server}",
        f"--tls-private-key-file={pki.server_key}",
        f"--token-auth-file={pki.tokens}",
        f"--client-ca-file={pki.ca}",
        # Nobody holds a certificate of that name: aggregated APIs are not served, but components log errors without.
        f"--requestheader-client-ca-file={pki.ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--kubelet-client-certificate={pki.client}",
        f"--kubelet-client-key={pki.client_key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki.service_accounts}",
        f"--service-account-signing-key-file={pki.service_accounts_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-aggregator-routing=true",  # webhooks go to pods directly: no kube-proxy runs here
        "--allow-privileged=true",
        "--v=2",
        *_release(options),
        *_served(options),
    ]


def _served(options: Options) -> list[str]:
    if options.served is None:
        return []
    settings = [f"resource.k8s.io/{v}={str(v in options.served).lower()}" for v in RESOURCE_VERSIONS]
    settings += [f"resource.k8s.io/{v}=true" for v in options.served if v not in RESOURCE_VERSIONS]
    return [f"--runtime-config={','.join(settings)}"]


def _controller_manager(options: Options, directory: Path, pki: Pki) -> list[str]:
    return [
        *_leaderless(directory, "controller-manager"),
        "--use-service-account-credentials=true",
        "--kube-api-qps=500",  # at the default of 20 its forty controllers take 5 s to get their tokens
        "--kube-api-burst=500",
        f"--root-ca-file={pki.ca}",
        f"--service-account-private-key-file={pki.service_accounts_key}",
        f"--cluster-signing-cert-file={pki.ca}",
        f"--cluster-signing-key-file={pki.ca_key}",
        f"--cluster-cidr={PODS}",
        "--node-monitor-period=1s",  # how often it looks whose NoExecute taint may go: nodes are usable sooner
        "--allocate-node-cidrs=false",  # each node's bridge has a range of its own from the start
        f"--flex-volume-plugin-dir={directory / 'flex'}",  # else it makes one in the host's /usr
        *_release(options),
    ]


def _leaderless(directory: Path, part: str) -> list[str]:
    kubeconfig = directory / f"{part}.kubeconfig"
    # Both look up who may read their metrics with the same credentials; without, /metrics refuses everybody.
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--v=2",
    ]


def _release(options: Options) -> list[str]:
    flags = [f"--emulated-version=kube={options.emulate}"] if options.emulate else []
    return flags + ([f"--feature-gates={options.gates}"] if options.gates else [])
