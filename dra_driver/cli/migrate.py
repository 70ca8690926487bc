"""`dra-driver migrate`: what stands in the way of leaving nodes to claims instead of a device plugin, and the steps in order."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver.cli.table import print_table
from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.migration.cluster import Cluster, Node, Object, cluster
from dra_driver.migration.plan import obstacles, pods_of, state, steps
from dra_driver.model.errors import TellUser

_PAGE = "500"


def run(arguments: argparse.Namespace) -> int:
    api = KubeApi(arguments.kubeconfig or os.environ.get("KUBECONFIG") or None)
    try:
        found = read(api, arguments.driver_name)
    finally:
        api.close()
    nodes = _chosen(found, arguments.nodes)
    if not nodes:
        print("No node has GPUs: no device plugin offers any, and the driver publishes none.")
        return 0
    print_table(("NODE", "GPUS FOR", "DEVICE PLUGIN OFFERS", "PODS USING IT", "DRIVER PUBLISHES"), _rows(found, nodes))
    return _report(found, nodes, arguments.driver_name)


def read(api: KubeApi, driver: str) -> Cluster:
    versions = Discovery(api)
    group = f"/apis/resource.k8s.io/{versions.version()}"
    return cluster(
        versions.release(),
        _listed(api, "/api/v1/nodes"),
        _listed(api, "/api/v1/pods"),
        _listed(api, "/apis/apps/v1/daemonsets"),
        _listed(api, f"{group}/deviceclasses"),
        _listed(api, f"{group}/resourceslices"),
        driver,
    )


def _listed(api: KubeApi, path: str) -> Iterator[Object]:
    query = {"limit": _PAGE}
    while True:
        page: dict[str, Any] = api.request("GET", path, query=query)
        yield from page.get("items") or ()
        more = (page.get("metadata") or {}).get("continue")
        if not more:
            return
        query = {"limit": _PAGE, "continue": str(more)}


def _chosen(found: Cluster, names: Sequence[str]) -> list[Node]:
    """Those of these names, or all that have GPUs."""
    by_name = {node.name: node for node in found.nodes}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise TellUser(
            f"looking at {', '.join(unknown)}",
            "no node of that name has GPUs, from a device plugin or from the driver",
            f"those that have: {', '.join(by_name) or 'none'}",
        )
    return [by_name[name] for name in names] or list(found.nodes)


def _rows(found: Cluster, nodes: Sequence[Node]) -> list[list[str]]:
    return [
        [
            node.name,
            state(node),
            " ".join(f"{name}={amount}" for name, amount in node.offered.items()) or "-",
            str(len(pods_of(found, node))),
            f"{node.published} device{'' if node.published == 1 else 's'}" if node.published else "-",
        ]
        for node in nodes
    ]


def _report(found: Cluster, nodes: Sequence[Node], device_class: str) -> int:
    to_do = steps(found, nodes, device_class)
    if not to_do:
        print("\nThese nodes are left to claims: no device plugin offers their GPUs.")
        return 0
    in_the_way = obstacles(found, nodes, device_class)
    if in_the_way:
        print("\nBefore:")
        for one in sorted(in_the_way, key=lambda one: not one.breaks):
            print(f"  {'breaks' if one.breaks else 'note  '}  {one.what}\n          -> {one.way_out}")
    print("\nSteps (nothing has been changed):")
    for number, step in enumerate(to_do, start=1):
        print(f"  {number}. {step.what}")
        for command in step.commands:
            print(f"     {command}")
    names = " ".join(node.name for node in nodes)
    print(f"  {len(to_do) + 1}. See that it is so\n     dra-driver migrate {names}")
    return 1 if any(one.breaks for one in in_the_way) else 0
