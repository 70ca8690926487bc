"""What a node's kubelet, kube-proxy, containerd and network plugins are told. Values in, text out: nothing is written.

Paths are as the node sees them; each node has its own /run, /etc and /var/lib, so most are the usual ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from e2e.cluster.build import Programs
from e2e.cluster.network import PODS

RUNTIME = "unix:///run/containerd/containerd.sock"
PAUSE_IMAGE = "docker.io/e2e/pause:1"
# What kubelets want to find, and would otherwise set for the whole machine (pkg/kubelet/cm, setupKernelTunables).
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def kubelet(address: str, cgroup: str, authority: str, gates: Mapping[str, bool]) -> str:
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": RUNTIME,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,  # since 1.35 kubelets refuse version 1 unless told
        "failSwapOn": False,
        "clusterDNS": ["10.96.0.10"],  # nobody answers there; without it every pod gets a warning Event
        "clusterDomain": "cluster.local",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # the default is the host's /usr
        # The disk is shared with everything else on this machine: how full it is says nothing about the node.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "10s",
        "nodeStatusReportFrequency": "1m",
        "featureGates": dict(sorted(gates.items())),
    }
    return json.dumps(configuration, indent=1)


def kube_proxy(node: str, kubeconfig: str) -> str:
    configuration: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": node,
        "clusterCIDR": PODS,
        "clientConnection": {"kubeconfig": kubeconfig},
        # Table sizes are the whole machine's; time-outs stay as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return json.dumps(configuration, indent=1)


def containerd(programs: Programs, *, restrict_oom_score_adj: bool) -> str:
    plugins = programs["bridge"].parent
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE nobody may lower a score, and runc fails on trying.
  restrict_oom_score_adj = {str(restrict_oom_score_adj).lower()}

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{programs["runc"]}"
  SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""


def containerd17(programs: Programs, *, cdi: bool, restrict_oom_score_adj: bool) -> str:
    """Without CDI nothing is said of it: that is how most nodes have it."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = {str(restrict_oom_score_adj).lower()}
  {"enable_cdi = true" if cdi else ""}

[{cri}.cni]
  bin_dir = "{programs["bridge"].parent}"
  conf_dir = "/etc/cni/net.d"

[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
  BinaryName = "{programs["runc"]}"
  SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""


def pod_network(pods: str) -> str:
    """One bridge; other nodes' pods are reached by routes, so nothing is masqueraded."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        # Below /run: a reboot ends every pod, and frees every address.
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    mappings = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, mappings]}, indent=1)


def mounts(directory: str) -> str:
    """Shell text that gives a machine its own /etc, /var/lib and /var/log, kept below `directory`.

    /etc and /var/lib are layers over the host's, because mount points must not be made on the host.
    """
    lines = ["set -eu"]
    for own, path in (("etc", "/etc"), ("lib", "/var/lib")):
        layers = f"lowerdir={path},upperdir='{directory}/{own}',workdir='{directory}/work-{own}'"
        failed = f"echo 'layering over {path}: set DRA_E2E_HOME to a directory on ext4, xfs or tmpfs' >&2; exit 1"
        lines.append(f"mount -t overlay -o {layers} overlay {path} || {{ {failed}; }}")
    lines.append(f"mount --bind '{directory}/log' /var/log")
    lines.append("mkdir -p /etc/cdi /var/log/pods /var/log/containers")
    for own in ("kubelet", "containerd"):  # no layers below these: containerd stacks its own
        lines.append(f"mkdir -p /var/lib/{own} && mount --bind '{directory}/{own}' /var/lib/{own}")
    lines.append("mount --make-rshared /var/lib/kubelet")
    lines.append(f"cat /proc/sys/kernel/random/uuid >'{directory}/boot_id'")
    lines.append(f"mount --bind '{directory}/boot_id' /proc/sys/kernel/random/boot_id")
    for tunable in TUNABLES:
        file = f"{directory}/tunables/{tunable.replace('/', '.')}"
        lines.append(f"mount --bind '{file}' /proc/sys/{tunable}")
    return "\n".join(lines) + "\n"
