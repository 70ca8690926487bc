"""Settings: one table in one place. A flag beats an environment variable, which beats the file, which beats the default.

`--node-name`, `DRA_DRIVER_NODE_NAME` and `node-name:` in the file are the same setting. Nonsense is refused at start,
all mistakes at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from dra_driver.setting_rows import Row, address, dns, driver, one_of, path, read, seconds, text


@dataclass(frozen=True)
class Settings:
    """Values by field; the table below says unit, default and reason of each."""

    node_name: str
    driver_name: str
    kubeconfig: str
    kubelet_dir: str
    cdi_dir: str
    run_dir: str
    instance: str
    daemonset: str
    driver_root: str
    dev_root: str
    proc_root: str
    sys_root: str
    host_root: str
    cdi_hook: str
    machine: str
    simulation_dir: str
    http_address: str
    rescan_s: float
    keeper_s: float
    janitor_s: float
    gone_s: float
    handover_s: float
    nvml_timeout_s: float
    device_plugin: str
    node_labels: str
    features_dir: str
    log_level: str
    log_format: str

    @property
    def ledger_dir(self) -> Path:
        return Path(self.run_dir or f"/run/{self.driver_name}") / "ledger"

    @property
    def features_path(self) -> Path:
        return Path(self.features_dir or "/etc/kubernetes/node-feature-discovery/features.d")

    @property
    def simulation_path(self) -> Path:
        return Path(self.simulation_dir or f"/var/lib/{self.driver_name}/simulation")


def _instance(value: str) -> str:
    if not re.fullmatch(r"[-A-Za-z0-9]{0,63}", value):
        raise ValueError("must be letters, digits and '-', at most 63 (the pod's UID)")
    return value


def _workload(value: str) -> str:
    namespace, _, name = value.partition("/")
    if value and not (namespace and name and dns(namespace) and dns(name)):
        raise ValueError("must be NAMESPACE/NAME")
    return value


TABLE: tuple[Row, ...] = (
    Row("node_name", "", "name of this Node; the pool of its devices has the same name", dns, also=("NODE_NAME",)),
    Row(
        "driver_name",
        "gpu.nvidia.com",
        "driver name in slices, classes and claims; the default is what existing manifests name",
        driver,
    ),
    Row("kubeconfig", "", "path; empty: the pod's service account, else ~/.kube/config", text, also=("KUBECONFIG",)),
    Row("kubelet_dir", "/var/lib/kubelet", "the kubelet's root directory on this node", path),
    Row("cdi_dir", "/var/run/cdi", "where the container runtime looks for CDI specs", path, also=("CDI_ROOT",)),
    Row(
        "run_dir",
        "",
        "where the ledger lies; empty: /run/<driver name>. Must not outlive a reboot, as what it describes does not",
        path,
    ),
    Row(
        "instance",
        "",
        "names the sockets of this instance, so that two may overlap during an upgrade (the pod's UID)",
        _instance,
        also=("POD_UID",),
    ),
    Row(
        "daemonset",
        "",
        "NAMESPACE/NAME of the DaemonSet that this agent is of: an agent that ends because that is deleted cleans up",
        _workload,
    ),
    Row(
        "driver_root",
        "",
        "where the NVIDIA driver is installed; empty: the first of /, /run/nvidia/driver, /home/kubernetes/bin/nvidia",
        path,
        also=("NVIDIA_DRIVER_ROOT",),
    ),
    Row(
        "dev_root",
        "",
        "root above /dev for device nodes; empty: the driver root if it has /dev/nvidiactl, else /",
        path,
    ),
    Row("proc_root", "/proc", "proc file system of the host", path),
    Row("sys_root", "/sys", "sys file system of the host", path),
    Row("host_root", "/", "the host's root as this process sees it (a mount of it, in a container)", path),
    Row("cdi_hook", "", "nvidia-cdi-hook on the host; empty: used if found, else the host's ldconfig", path),
    Row("machine", "", "simulate this machine (see `dra-driver machines`) instead of using real GPUs", text),
    Row("simulation_dir", "", "where the simulated machine lives; empty: /var/lib/<driver name>/simulation", path),
    Row("http_address", "off", "metrics (/metrics), liveness (/healthz) and readiness (/readyz), or off", address),
    Row("rescan_s", "60", "how often the GPUs are looked at again; costs a few ms", seconds(1, 86400), "s"),
    Row(
        "keeper_s",
        "10",
        "how often CDI specs are compared with the ledger; costs three directory listings and a stat of each spec",
        seconds(0.05, 3600),
        "s",
    ),
    Row(
        "janitor_s",
        "60",
        "how often the API server is asked whether one prepared claim still exists",
        seconds(0.05, 86400),
        "s",
    ),
    Row(
        "gone_s",
        "600",
        "how long a claim must be gone before it is undone without the kubelet's asking",
        seconds(0, 86400),
        "s",
    ),
    Row(
        "handover_s",
        "2",
        "how long preparing waits for another claim to let go of its GPU: after a forced delete that is a moment, while "
        "the kubelet would ask again only after 10 s",
        seconds(0, 20),
        "s",
    ),
    Row(
        "nvml_timeout_s",
        "10",
        "a GPU that does not answer NVML for so long is reported and left out",
        seconds(0.05, 300),
        "s",
    ),
    Row(
        "device_plugin",
        "avoid",
        "a device plugin on this node: avoid the GPUs that pods have through it, yield all GPUs that it offers, or ignore it",
        one_of("avoid", "yield", "ignore"),
    ),
    Row(
        "node_labels",
        "off",
        "labels of this Node as gpu-feature-discovery makes them (nvidia.com/gpu.product, ...): off, file (for Node Feature "
        "Discovery) or node (put on the Node itself; needs the right to patch nodes)",
        one_of("off", "file", "node"),
    ),
    Row(
        "features_dir",
        "",
        "where Node Feature Discovery looks for files with labels; empty: /etc/kubernetes/node-feature-discovery/features.d",
        path,
    ),
    Row("log_level", "info", "debug, info, warning or error", one_of("debug", "info", "warning", "error")),
    Row("log_format", "json", "json (one object a line) or text", one_of("json", "text")),
)

assert tuple(row.name for row in TABLE) == tuple(field.name for field in fields(Settings))


def load(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
    required: tuple[str, ...] = (),
) -> Settings:
    """Reads all sources; `flags` by row name, None where not given. TellUser with every mistake."""
    return Settings(**read(TABLE, flags, environment, file, required))
