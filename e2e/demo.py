"""`make demo`: the driver at work on a real cluster with simulated GPUs, and what each pod got and why."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.cli.table import print_table
from e2e.choice import CHOICES, DEFAULT, chosen
from e2e.cluster import Cluster, ClusterError, Options
from e2e.installation import DRIVER, EXAMPLES, Installation

MACHINES = {"node-a": "dgx-h100", "node-b": "l40s-a100"}
# A pod has an address of its own for metrics; on a node of processes it is given here.
SETTINGS = {"processes": {"http_address": "0.0.0.0:9400", "rescan_s": "5"}, "kind": {"rescan_s": "5"}}
SHOWN = (
    "one-gpu",
    "by-attributes",
    "two-containers",
    "two-pods",
    "same-numa-node",
    "first-available",
    "two-requests",
    "monitor",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("verb", choices=("up", "down"))
    parser.add_argument("--name", default="demo", help="name of the cluster (default %(default)s)")
    parser.add_argument(
        "--cluster",
        choices=tuple(CHOICES),
        help="processes: needs root, no Docker; kind: needs Docker, or DRA_PRIVATE_DOCKER=1 and root (default: E2E_CLUSTER or processes)",
    )
    arguments = parser.parse_args(argv)
    try:
        choice = arguments.cluster or chosen()
        cluster = CHOICES[choice].cluster(Options(name=arguments.name, nodes=tuple(MACHINES)))
        if arguments.verb == "down":
            return down(cluster)
        return up(cluster, CHOICES[choice].installation(cluster, MACHINES, **SETTINGS[choice]), choice)
    except (ClusterError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def down(cluster: Cluster) -> int:
    cluster.down()
    print(f"The cluster {cluster.name} is gone; the machine is as it was.")
    return 0


def up(cluster: Cluster, installation: Installation, choice: str) -> int:
    begin = time.monotonic()
    cluster.up()
    title(f"The driver: {installation.title}")
    installation.install()
    for node, machine in MACHINES.items():
        print(f"  {node}: {machine}")
    title("What each node published (kubectl get resourceslices -o yaml)")
    show_slices(installation)
    title("The examples (deploy/examples/; their image is replaced by the test image, there is no registry here)")
    pods = apply_examples(installation)
    title("Which pod got which GPU, and what in its claim chose it")
    show_pods(installation, pods)
    title("What `nvidia-smi -L` prints inside each container: the GPUs of its claims, nothing else")
    wrong = show_containers(installation, pods)
    print(
        f"\n{len(pods)} pods run, {time.monotonic() - begin:.0f} s after the start. The cluster is up; look around:\n"
    )
    print(f"  export KUBECONFIG={cluster.kubeconfig}")
    print(f"  alias kubectl={cluster.kubectl}")
    print(
        "  kubectl get resourceslices; kubectl get pods,resourceclaims -A -o wide; kubectl exec one-gpu -- nvidia-smi"
    )
    for command in installation.further("node-b"):
        print(f"  {command}")
    named = "" if cluster.name == "demo" else f" NAME={cluster.name}"
    print("  make demo-down" + named + ("" if choice == DEFAULT else f" CLUSTER={choice}"))
    return 1 if wrong else 0


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m\n" if sys.stdout.isatty() else f"\n== {text}\n")


def show_slices(installation: Installation) -> None:
    rows = []
    for node in MACHINES:
        for device in installation.devices(node):
            attributes = {name: next(iter(value.values())) for name, value in device["attributes"].items()}
            rows.append(
                (
                    node,
                    device["name"],
                    str(attributes["productName"]),
                    str(attributes["architecture"]),
                    str(device["capacity"]["memory"]["value"]),
                    str(attributes.get("resource.kubernetes.io/numaNode", "-")),
                    str(attributes.get("resource.kubernetes.io/pcieRoot", "-")),
                    str(attributes["driverVersion"]),
                    "yes" if attributes["migCapable"] else "no",
                )
            )
    print_table(("NODE", "DEVICE", "PRODUCT", "ARCHITECTURE", "MEMORY", "NUMA", "PCIE ROOT", "DRIVER", "MIG"), rows)


def apply_examples(installation: Installation) -> list[dict[str, Any]]:
    names = []
    for example in SHOWN:
        first_line = (EXAMPLES / f"{example}.yaml").read_text().splitlines()[0].removeprefix("# ")
        print(f"  {example:16} {first_line}")
        objects = installation.apply_example(example)
        names += [
            (item["metadata"]["name"], item["metadata"].get("namespace", "default"))
            for item in objects
            if item["kind"] == "Pod"
        ]
    return [installation.wait_for_pod(name, namespace) for name, namespace in names]


def show_pods(installation: Installation, pods: Sequence[Mapping[str, Any]]) -> None:
    products = {
        (node, device["name"]): str(device["attributes"]["productName"]["string"])
        for node in MACHINES
        for device in installation.devices(node)
    }
    rows = []
    for pod in pods:
        node = pod["spec"]["nodeName"]
        for claim in installation.claims_of(pod):
            for result in claim["status"]["allocation"]["devices"]["results"]:
                device = result["device"]
                rows.append((pod["metadata"]["name"], node, device, products[node, device], chosen_by(claim, result)))
    print_table(("POD", "NODE", "DEVICE", "PRODUCT", "CHOSEN BY"), rows)


def chosen_by(claim: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What in the claim selected this device, shortened to a line."""
    base, _, sub = result["request"].partition("/")
    devices = claim["spec"]["devices"]
    request = next(item for item in devices["requests"] if item["name"] == base)
    exact = request.get("exactly") or next(item for item in request["firstAvailable"] if item["name"] == sub)
    reasons = [" ".join(item["cel"]["expression"].split()) for item in exact.get("selectors") or []]
    if sub:
        position = [item["name"] for item in request["firstAvailable"]].index(sub) + 1
        reasons.insert(0, f"wish {position}: {sub}")
    if exact.get("adminAccess"):
        reasons.insert(0, "admin access, all GPUs")
    reasons += [
        f"same {item['matchAttribute']}"
        for item in devices.get("constraints") or []
        if not item.get("requests") or base in item["requests"]
    ]
    text = (
        "; ".join(reasons).replace(f'device.attributes["{DRIVER}"].', "").replace(f'device.capacity["{DRIVER}"].', "")
    )
    text = text or "any GPU"
    return text if len(text) <= 110 else text[:107] + "..."


def show_containers(installation: Installation, pods: Sequence[Mapping[str, Any]]) -> int:
    """Prints, and counts the containers that do not see exactly what their claims say."""
    wrong = 0
    for pod in pods:
        name, namespace, node = pod["metadata"]["name"], pod["metadata"]["namespace"], pod["spec"]["nodeName"]
        for container in pod["spec"]["containers"]:
            lines = installation.gpus_seen(name, container["name"], namespace)
            expected = set(installation.uuids(node, allocated_to(installation, pod, container)))
            seen = {line.rpartition("UUID: ")[2].rstrip(")") for line in lines}
            verdict = "as allocated" if seen == expected else f"WRONG, allocated: {', '.join(sorted(expected))}"
            wrong += seen != expected
            print(f"  {name}/{container['name']} on {node} ({verdict})")
            for line in lines:
                print(f"    {line}")
    return wrong


def allocated_to(installation: Installation, pod: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    """Devices of the claims, or of the requests of claims, that the container names."""
    claims = dict(
        zip((item["name"] for item in pod["spec"]["resourceClaims"]), installation.claims_of(pod), strict=True)
    )
    names = []
    for use in container["resources"]["claims"]:
        for result in claims[use["name"]]["status"]["allocation"]["devices"]["results"]:
            if use.get("request") in (None, result["request"].split("/")[0]):
                names.append(result["device"])
    return names


if __name__ == "__main__":
    sys.exit(main())
