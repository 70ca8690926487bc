"""Settings: one table in one place. A flag beats an environment variable, which beats the file, which beats the default.

`--node-name`, `DRA_DRIVER_NODE_NAME` and `node-name:` in the file are the same setting. Nonsense is refused at start,
all mistakes at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dra_driver.model.errors import TellUser

_DNS = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")


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
    log_level: str
    log_format: str

    @property
    def ledger_dir(self) -> Path:
        return Path(self.run_dir or f"/run/{self.driver_name}") / "ledger"

    @property
    def simulation_path(self) -> Path:
        return Path(self.simulation_dir or f"/var/lib/{self.driver_name}/simulation")


@dataclass(frozen=True, slots=True)
class Row:
    """`parse` raises ValueError with a sentence; `also` are environment variables that people know from elsewhere."""

    name: str
    default: str
    meaning: str
    parse: Callable[[str], Any]
    unit: str = ""
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "DRA_DRIVER_" + self.name.upper()


def _text(value: str) -> str:
    return value


def _dns(value: str) -> str:
    if value and (len(value) > 253 or not _DNS.match(value)):
        raise ValueError("must be a lower-case DNS name like gpu.nvidia.com or worker-1")
    return value


def _driver(value: str) -> str:
    if not value or len(value) > 63:
        raise ValueError("must have 1 to 63 characters (API limit of a driver name)")
    return _dns(value)


def _path(value: str) -> str:
    if value and not value.startswith("/"):
        raise ValueError("must be an absolute path")
    return value


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            seconds = float(value)
        except ValueError:
            raise ValueError("must be a number of seconds") from None
        if not least <= seconds <= most:
            raise ValueError(f"must be {least:g} to {most:g} seconds")
        return seconds

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return parse


def _address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if value != "off" and not (separator and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ValueError("must be ADDRESS:PORT (as 0.0.0.0:8080, port 0 for any free one) or off")
    return value if value == "off" or host else f"0.0.0.0:{port}"


def _instance(value: str) -> str:
    if not re.fullmatch(r"[-A-Za-z0-9]{0,63}", value):
        raise ValueError("must be letters, digits and '-', at most 63 (the pod's UID)")
    return value


TABLE: tuple[Row, ...] = (
    Row("node_name", "", "name of this Node; the pool of its devices has the same name", _dns, also=("NODE_NAME",)),
    Row(
        "driver_name",
        "gpu.nvidia.com",
        "driver name in slices, classes and claims; the default is what existing manifests name",
        _driver,
    ),
    Row("kubeconfig", "", "path; empty: the pod's service account, else ~/.kube/config", _text, also=("KUBECONFIG",)),
    Row("kubelet_dir", "/var/lib/kubelet", "the kubelet's root directory on this node", _path),
    Row("cdi_dir", "/var/run/cdi", "where the container runtime looks for CDI specs", _path, also=("CDI_ROOT",)),
    Row(
        "run_dir",
        "",
        "where the ledger lies; empty: /run/<driver name>. Must not outlive a reboot, as what it describes does not",
        _path,
    ),
    Row(
        "instance",
        "",
        "names the sockets of this instance, so that two may overlap during an upgrade (the pod's UID)",
        _instance,
        also=("POD_UID",),
    ),
    Row(
        "driver_root",
        "",
        "where the NVIDIA driver is installed; empty: the first of /, /run/nvidia/driver, /home/kubernetes/bin/nvidia",
        _path,
        also=("NVIDIA_DRIVER_ROOT",),
    ),
    Row(
        "dev_root",
        "",
        "root above /dev for device nodes; empty: the driver root if it has /dev/nvidiactl, else /",
        _path,
    ),
    Row("proc_root", "/proc", "proc file system of the host", _path),
    Row("sys_root", "/sys", "sys file system of the host", _path),
    Row("host_root", "/", "the host's root as this process sees it (a mount of it, in a container)", _path),
    Row("cdi_hook", "", "nvidia-cdi-hook on the host; empty: used if found, else the host's ldconfig", _path),
    Row("machine", "", "simulate this machine (see `dra-driver machines`) instead of using real GPUs", _text),
    Row("simulation_dir", "", "where the simulated machine lives; empty: /var/lib/<driver name>/simulation", _path),
    Row("http_address", "off", "metrics (/metrics), liveness (/healthz) and readiness (/readyz), or off", _address),
    Row("rescan_s", "60", "how often the GPUs are looked at again; costs a few ms", _seconds(1, 86400), "s"),
    Row(
        "keeper_s",
        "10",
        "how often CDI specs are compared with the ledger; costs two directory listings",
        _seconds(0.05, 3600),
        "s",
    ),
    Row(
        "janitor_s",
        "60",
        "how often the API server is asked whether one prepared claim still exists",
        _seconds(0.05, 86400),
        "s",
    ),
    Row(
        "gone_s",
        "600",
        "how long a claim must be gone before it is undone without the kubelet's asking",
        _seconds(0, 86400),
        "s",
    ),
    Row(
        "handover_s",
        "2",
        "how long preparing waits for another claim to let go of its GPU: after a forced delete that is a moment, while "
        "the kubelet would ask again only after 10 s",
        _seconds(0, 20),
        "s",
    ),
    Row(
        "nvml_timeout_s",
        "10",
        "a GPU that does not answer NVML for so long is reported and left out",
        _seconds(0.05, 300),
        "s",
    ),
    Row("log_level", "info", "debug, info, warning or error", _one_of("debug", "info", "warning", "error")),
    Row("log_format", "json", "json (one object a line) or text", _one_of("json", "text")),
)

assert tuple(row.name for row in TABLE) == tuple(field.name for field in fields(Settings))


def load(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
    required: tuple[str, ...] = (),
) -> Settings:
    """Reads all sources; `flags` by row name, None where not given. TellUser with every mistake."""
    mistakes: list[str] = []
    from_file = _read_file(file, mistakes)
    values: dict[str, Any] = {}
    for row in TABLE:
        value, where = _pick(row, flags, environment, from_file)
        try:
            values[row.name] = row.parse(value)
        except ValueError as why:
            mistakes.append(f"{where} {value!r}: {why}")
        if row.name in required and not value:
            mistakes.append(f"{row.flag} is required: {row.meaning} (or {' or '.join((row.env, *row.also))})")
    if mistakes:
        raise TellUser("reading the settings", "; ".join(mistakes), "see `dra-driver agent --help`")
    return Settings(**values)


def _pick(
    row: Row, flags: Mapping[str, str | None], environment: Mapping[str, str], from_file: Mapping[str, str]
) -> tuple[str, str]:
    """The value and where it comes from, in words."""
    flag = flags.get(row.name)
    if flag is not None:
        return flag, row.flag
    for name in (row.env, *row.also):
        if name in environment:
            return environment[name], f"environment variable {name}"
    if row.name in from_file:
        return from_file[row.name], f"{row.name.replace('_', '-')} in the settings file"
    return row.default, row.flag


def _read_file(file: Path | None, mistakes: list[str]) -> Mapping[str, str]:
    if file is None:
        return {}
    import yaml

    try:
        document = yaml.safe_load(file.read_bytes()) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        mistakes.append(f"settings file {file}: {' '.join(str(error).split())}")
        return {}
    if not isinstance(document, dict):
        mistakes.append(f"settings file {file}: must be a mapping of setting names to values")
        return {}
    known = {row.name.replace("_", "-"): row.name for row in TABLE}
    values: dict[str, str] = {}
    for key, value in document.items():
        if key not in known:
            mistakes.append(f"settings file {file}: {key!r} is not a setting")
        elif isinstance(value, dict | list) or value is None:
            mistakes.append(f"settings file {file}: {key} must be a plain value")
        else:
            values[known[key]] = str(value)
    return values
