"""The two pages of docs/ that are made of tables in the code: settings and attributes. `make golden` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from dra_driver.hardware.sim.machine_files import list_machines
from dra_driver.kinds.attributes import GPU_ATTRIBUTES, GPU_CAPACITY
from dra_driver.setting_rows import Row
from dra_driver.settings import TABLE
from dra_driver.webhook_settings import WEBHOOK_TABLE
from tests.golden.produce import MACHINES, OPTIONAL, devices

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "gpu-dra-driver"
GENERATED = "<!-- written by `make golden`: change the table in the code, not this page -->"

SETTINGS = """\
# Settings

{generated}

A setting is a flag, an environment variable or a line of the file that `--config` names; a flag beats a variable beats the
file beats the default. `--rescan-s 30`, `DRA_DRIVER_RESCAN_S=30` and `rescan-s: 30` are the same. Wrong settings are refused
at start, all of them at once, with the reason of each.

In the chart most settings go below `settings`, for all nodes, or below `nodeSettings.NODE`, for one; those with a value of
their own go there, because the agent's mounts, rights or probes depend on them. A change restarts the agents, one node after
another; claims stay prepared.

```yaml
settings: {{rescan-s: 30, log-level: debug}}
nodeSettings:
  worker-7: {{driver-root: /opt/nvidia}}
```

Outside the chart single nodes have sections in the file, which all nodes share:

```yaml
rescan-s: 30
nodes:
  worker-7: {{driver-root: /opt/nvidia}}
```

## The agent: `dra-driver agent`

`dra-driver devices` and `dra-driver record` take those of them that concern a look at a machine: see their `--help`.

{agent}

## The webhook: `dra-driver webhook`

The chart sets these itself, from the values below `webhook`.

{webhook}
"""

ATTRIBUTES = """\
# Attributes

{generated}

What a GPU says of itself in the ResourceSlices, for selectors and constraints of claims. `dra-driver devices -o yaml` prints
it on a node, `dra-driver devices -o yaml --machine dgx-h100` for a simulated machine.

{table}

The examples are those of a DGX H100 where it has such a thing. *Where known* means: not published for GPUs that have no such
thing. *Ours* means: NVIDIA's own driver does not publish it, so manifests that name it need this one.

## In CEL

| To ask for | write |
|---|---|
| an attribute of the table | `device.attributes["gpu.nvidia.com"].productName == "NVIDIA L40S"` |
| one with a domain | `device.attributes["resource.kubernetes.io"].numaNode == 0` |
| a version, at least | `device.attributes["gpu.nvidia.com"].cudaComputeCapability.compareTo(semver("9.0.0")) >= 0` |
| memory, at least | `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("70Gi")) >= 0` |
| a MIG profile | `device.attributes["gpu.nvidia.com"].migProfiles.contains("1g.10gb")` |
| one that may be missing | `has(device.attributes["resource.kubernetes.io"].numaNode) && device.attributes["resource.kubernetes.io"].numaNode == 0` |

CEL takes a missing attribute for an error, and an error on one device of the cluster keeps the pod from being scheduled
*anywhere*. So guard those that are published where known, as in the last row: the pod stays Pending with
`CEL runtime error: no such key` otherwise.

`constraints` with `matchAttribute` ask for devices that have a value in common, by full name:
`resource.kubernetes.io/numaNode`, `gpu.nvidia.com/productName`. There a device without the attribute is simply no match.

With another driver name (the chart's `driverName`) that name takes the place of `gpu.nvidia.com` in all of this.

## Capacity

{capacity}

## Taints

| Key | Effect | When |
|---|---|---|
| `gpu.nvidia.com/gpu-lost` | NoSchedule | a claim holds the GPU, and it is not there any more; one that is free is taken out of the slices instead |
| `gpu.nvidia.com/device-plugin` | NoSchedule | a pod has the GPU through a device plugin ([settings](settings.md): `device-plugin`) |

Both go by themselves when the reason is over. Kubernetes 1.34 and 1.35 drop taints unless the feature gate DRADeviceTaints
is on: the agent notices and says so in its log, and refuses such a GPU when a claim for it is prepared.

## Device names

`gpu-0000-1b-00-0` is the GPU at PCI address 0000:1b:00.0. The name is the same after a restart, a reboot and a driver update;
NVIDIA's index and minor number are not, so they are not published.
"""


def settings() -> str:
    own = _own_values()
    agent = [[*_said(row), _value(row, own)] for row in TABLE]
    webhook = [_said(row) for row in WEBHOOK_TABLE]
    head = ("Setting", "What it is and why", "Default", "Unit", "Environment")
    return SETTINGS.format(
        generated=GENERATED, agent=_table((*head, "In the chart"), agent), webhook=_table(head, webhook)
    )


def attributes() -> str:
    found = [device for name in MACHINES for device in devices(name).values()]
    h100 = next(iter(devices("dgx-h100").values()))
    rows = []
    for row in GPU_ATTRIBUTES:
        having = [device[row.name] for device in (h100, *found) if row.name in device]
        ((kind, value),) = having[0].items()
        example = json.dumps(value) if isinstance(value, bool | int) else str(value)
        notes = [note for note, holds in (("where known", row.name in OPTIONAL), ("ours", row.ours)) if holds]
        rows.append([f"`{row.name}`", kind, f"`{example}`" if example else "empty", row.meaning, ", ".join(notes)])
    capacity = [[f"`{name}`", f"`{h100[f'capacity {name}']['value']}`", meaning] for name, meaning, _ in GPU_CAPACITY]
    return ATTRIBUTES.format(
        generated=GENERATED,
        table=_table(("Attribute", "Type", "Example", "What it is", ""), rows),
        capacity=_table(("Capacity", "Example", "What it is"), capacity),
    )


def machine_names() -> Sequence[str]:
    return [machine.name for machine in list_machines()]


def _said(row: Row) -> list[str]:
    variables = ", ".join(f"`{name}`" for name in (row.env, *row.also))
    return [f"`{row.flag}`", row.meaning, f"`{row.default}`" if row.default else "", row.unit, variables]


def _own_values() -> Mapping[str, str]:
    """What the chart says to a setting that does not go below `settings`, by the setting's name."""
    moved: dict[str, str] = yaml.safe_load((CHART / "moved.yaml").read_text())
    return {path.removeprefix("settings."): why for path, why in moved.items() if path.startswith("settings.")}


def _value(row: Row, own: Mapping[str, str]) -> str:
    name = row.flag.removeprefix("--")
    if name not in own:
        return f"`settings.{name}`"
    chosen, instead, _ = own[name].removeprefix("set ").partition(" instead")
    return f"`{chosen}`" if instead else own[name].removesuffix("; remove it")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("<", "&lt;") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


# By path from the root of the repository.
PAGES: Mapping[str, Callable[[], str]] = {"docs/settings.md": settings, "docs/attributes.md": attributes}
