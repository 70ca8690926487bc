"""What an agent does last when its driver is being uninstalled: afterwards there is on the node, and in the cluster about the
node, nothing of it but what running pods need."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing, suppress
from pathlib import Path

from dra_driver.core.driver import Driver
from dra_driver.core.leaving import leave
from dra_driver.core.rooms import Rooms
from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.kube.uninstall import DaemonSet, withdraw_slices
from dra_driver.model.errors import DriverError
from dra_driver.node_labels.places import places
from dra_driver.settings import Settings

log = logging.getLogger(__name__)

ANSWER_S = 5.0  # the 30 s of all other requests are all that a pod is given to end in


def leave_if_uninstalled(settings: Settings, driver: Driver, rooms: Rooms) -> None:
    """Everything else has stopped. Does nothing when another agent will come (a restart, an update), or when the API server
    cannot say; never raises, because there is nobody left to try again."""
    if settings.daemonset:
        with closing(KubeApi(settings.kubeconfig or None, read_timeout_s=ANSWER_S)) as api:
            _leave(settings, api, driver, rooms)


def _leave(settings: Settings, api: KubeApi, driver: Driver, rooms: Rooms) -> None:
    try:
        if not DaemonSet(api, settings.daemonset).is_deleted():
            return
    except DriverError as error:
        log.warning(
            "left everything in place, not knowing whether the driver is uninstalled or restarted: %s; if it was uninstalled, "
            "install and uninstall it once more to have this node cleaned up",
            error,
        )
        return
    try:
        log.info("DaemonSet %s is deleted: cleaning up", settings.daemonset)
        _remove_labels(settings, api)
        slices = withdraw_slices(api, Discovery(api).version(), settings.driver_name, settings.node_name)
        kept = leave(driver, rooms)
        if kept:
            log.warning("files of claims that still exist are kept: claim UIDs %s", ", ".join(kept))
        else:
            _remove_files(settings)
        log.info("cleaned up", extra={"slices": slices, "claims_kept": len(kept)})
    except (DriverError, OSError) as error:
        log.warning("cleaning up before the driver is uninstalled: %s", error)


def _remove_labels(settings: Settings, api: KubeApi) -> None:
    for place in places(settings.features_path, api, settings.node_name, settings.driver_name).values():
        try:
            place.remove()
        except DriverError as error:
            log.warning("labels of the node may be left: %s", error)


def _remove_files(settings: Settings) -> None:
    """Directories that are mount points in a container stay, empty."""
    _empty(settings.ledger_dir.parent)
    plugin = Path(settings.kubelet_dir) / "plugins" / settings.driver_name
    if not any(path.is_socket() for path in plugin.glob("*")):  # of another instance, which is leaving too
        _empty(plugin)
    if settings.machine:
        shutil.rmtree(settings.simulation_path, ignore_errors=True)
        _empty(settings.simulation_path.parent, only_if_bare=True)


def _empty(directory: Path, *, only_if_bare: bool = False) -> None:
    if not directory.is_dir() or (only_if_bare and any(directory.iterdir())):
        return
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    with suppress(OSError):
        directory.rmdir()
