"""Composition root: the only room that knows everyone. Starts in order, stops in reverse.

A feature is wired here or not at all; no other room asks whether it is on. To add a device kind, a sharing mode or a
watcher, add its file and one line in `build`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver import __version__
from dra_driver.cdi.names import vendor
from dra_driver.cdi.runtime import RuntimeWatch
from dra_driver.cdi.store import FileCdiStore
from dra_driver.controller.publisher import SlicePublisher
from dra_driver.core.catalog import Catalog
from dra_driver.core.configs import EXCLUSIVE, ConfigRefusal, DecodedConfig
from dra_driver.core.driver import Driver
from dra_driver.core.recovery import Keeper, recover
from dra_driver.core.rooms import Rooms, prepared
from dra_driver.device_plugin.watch import DevicePluginWatch, NobodyElse
from dra_driver.hardware.roots import HostRoots
from dra_driver.hardware.sysfs import boot_id, machine_product, pci_class
from dra_driver.host import Host, host, kinds
from dra_driver.kube.claims import ApiClaims
from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.kube.events import ApiEvents
from dra_driver.kube.nodes import NodeLookup
from dra_driver.kubelet.servers import KubeletServers
from dra_driver.leaving import leave_if_uninstalled
from dra_driver.model.gpu import Inventory
from dra_driver.node_labels.keeper import LabelKeeper
from dra_driver.node_labels.places import places
from dra_driver.node_labels.table import Machine
from dra_driver.ports import Neighbours, SharingMode
from dra_driver.settings import Settings
from dra_driver.sharing.exclusive import Exclusive
from dra_driver.state.advertised import AdvertisedFile
from dra_driver.state.ledger import FileLedger
from dra_driver.telemetry.http import HttpServer
from dra_driver.telemetry.metrics import Metrics
from dra_driver.termination import Termination

log = logging.getLogger(__name__)


def decode_config(parameters: Mapping[str, Any]) -> DecodedConfig:
    """Opaque parameters -> what `core` decides by. The schema is loaded when the first configuration is met."""
    from api.resource.v1beta1 import ConfigMistakesError, GpuConfig, decode

    try:
        config = decode(parameters)
    except ConfigMistakesError as error:
        raise ConfigRefusal([str(mistake) for mistake in error.mistakes]) from error
    kinds = frozenset({"gpu"} if isinstance(config, GpuConfig) else {"mig"})
    return DecodedConfig(config.sharing.strategy if config.sharing else EXCLUSIVE, kinds, config)


@dataclass(frozen=True)
class Parts:
    """All that runs, in the order in which it starts."""

    api: KubeApi
    events: ApiEvents
    host: Host
    catalog: Catalog
    ledger: FileLedger
    cdi: FileCdiStore
    rooms: Rooms
    driver: Driver
    publisher: SlicePublisher
    servers: KubeletServers
    keeper: Keeper
    labels: LabelKeeper
    runtime: RuntimeWatch
    probes: HttpServer


def build(settings: Settings) -> Parts:
    """Wires everything; opens, starts and writes nothing."""
    machine = host(settings)
    metrics = Metrics(__version__, settings.driver_name)
    api = KubeApi(settings.kubeconfig or None)
    versions = Discovery(api)
    events = ApiEvents(api, settings.driver_name, settings.node_name)
    ledger = FileLedger(str(settings.ledger_dir))
    cdi = FileCdiStore(settings.cdi_dir, vendor(settings.driver_name))
    made = kinds(machine)
    modes: tuple[SharingMode, ...] = (Exclusive(),)
    neighbours = _neighbours(settings, events, metrics, ledger)
    catalog = Catalog(
        machine.hardware,
        made,
        held=lambda device: bool(ledger.holders(device)),
        telemetry=metrics,
        neighbours=neighbours,
        taint_domain=settings.driver_name,
        advertised_before=AdvertisedFile(str(settings.ledger_dir.parent / "advertised.json")),
    )
    rooms = Rooms(
        claims=ApiClaims(api, versions, settings.driver_name),
        ledger=ledger,
        cdi=cdi,
        files=machine.files,
        events=events,
        telemetry=metrics,
        neighbours=neighbours,
        kinds={kind.name: kind for kind in made},
        modes={mode.strategy: mode for mode in modes},
        decode=decode_config,
    )
    driver = Driver(settings.node_name, boot_id(machine.roots), catalog, rooms, settings.handover_s)
    kubelet_dir = Path(settings.kubelet_dir)
    servers = KubeletServers(
        settings.driver_name,
        kubelet_dir / "plugins",
        kubelet_dir / "plugins_registry",
        driver,
        settings.instance or None,
    )
    node = NodeLookup(api, settings.node_name)
    publisher = SlicePublisher(
        api,
        settings.driver_name,
        settings.node_name,
        desired=catalog.refresh,
        node_uid=node.uid,
        api_version=versions.version,
        telemetry=metrics,
        interrupt=api.interrupt,
    )
    return Parts(
        api=api,
        events=events,
        host=machine,
        catalog=catalog,
        ledger=ledger,
        cdi=cdi,
        rooms=rooms,
        driver=driver,
        publisher=publisher,
        servers=servers,
        keeper=Keeper(driver, rooms, settings.keeper_s, settings.janitor_s, settings.gone_s),
        labels=LabelKeeper(
            settings.node_labels,
            places(settings.features_path, api, settings.node_name, settings.driver_name),
            inventory=lambda: catalog.inventory,
            machine=lambda inventory: _machine(machine.roots, inventory),
            interval_s=settings.rescan_s,
        ),
        runtime=RuntimeWatch(node.runtime, settings.host_root, events),
        probes=HttpServer(settings.http_address, metrics.render, servers.not_alive, servers.not_ready),
    )


def _machine(roots: HostRoots, inventory: Inventory) -> Machine:
    first = min(inventory.gpus, key=lambda gpu: gpu.index, default=None)
    return Machine(machine_product(roots), pci_class(roots, first.pci) if first else "")


def _neighbours(settings: Settings, events: ApiEvents, metrics: Metrics, ledger: FileLedger) -> Neighbours:
    if settings.device_plugin == "ignore":
        return NobodyElse()
    yields = settings.device_plugin == "yield"
    return DevicePluginWatch(Path(settings.kubelet_dir), events, metrics, lambda: prepared(ledger), yields=yields)


def run(settings: Settings, termination: Termination) -> int:
    """Runs the agent until it is told to end. Exit status 0."""
    log.info("starting", extra={"driver": settings.driver_name, "node": settings.node_name, "pid": os.getpid()})
    with ExitStack() as stack:
        parts = build(settings)
        _start(stack, parts, settings)
        log.info("serving")
        while not termination.wait(settings.rescan_s):
            parts.publisher.wake()
        log.info("stopping")
        drained = parts.servers.stop()
    log.info("stopped")
    if not drained:
        # Threads that hang in a call into the driver cannot be ended, and the interpreter would wait for them.
        logging.shutdown()
        os._exit(0)
    return 0


def _start(stack: ExitStack, parts: Parts, settings: Settings) -> None:
    def started(start: Callable[[], object], stop: Callable[[], object]) -> None:
        start()
        stack.callback(stop)

    stack.callback(parts.api.close)
    stack.callback(parts.events.stop)
    stack.callback(leave_if_uninstalled, settings, parts.driver, parts.rooms)
    started(parts.probes.start, parts.probes.stop)
    started(parts.host.hardware.start, parts.host.hardware.stop)
    # Published while recovery runs: the scheduler needs the devices, and what is held is on the ledger already.
    started(parts.publisher.start, parts.publisher.stop)
    recover(parts.driver, parts.rooms)
    started(parts.keeper.start, parts.keeper.stop)
    started(parts.labels.start, parts.labels.stop)
    started(parts.servers.start, parts.servers.stop)
    started(parts.runtime.start, parts.runtime.stop)
