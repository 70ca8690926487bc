"""Every protocol that the rooms owe each other, one page. The comment is the contract.

All methods may be called from any thread. Errors are `dra_driver.model.errors`; nothing foreign crosses a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import Device, LiveDevice, PreparedDevice
from dra_driver.model.gpu import Gpu, Inventory, PciAddress
from dra_driver.model.record import ClaimRecord, DamagedRecord, Effect


class Hardware(Protocol):
    def inventory(self) -> Inventory:
        """Reads all GPUs anew. Never raises and always returns in bounded time: a GPU that hangs or fails is a problem
        in the answer, the others are there."""

    def gpu(self, pci: str) -> Gpu | None:
        """The GPU at this address as it is now, None if it is not there or lost. Cheap: one or two NVML calls to prove
        that it answers, static facts may come from the last inventory. RetryLater when it does not answer in time,
        TellUser when the driver is not usable: neither means that the GPU is gone."""

    def look_ahead(self) -> None:
        """Begins to read all known GPUs, for who is about to ask `gpu` for several: what is found counts as the answer
        for a moment. Neither waits nor raises."""


class DriverFiles(Protocol):
    def common_edits(self) -> ContainerEdits:
        """What every container with a GPU gets: control nodes, libraries, binaries, firmware, environment, hooks. Found
        anew when the driver installation has changed. TellUser when there is no driver under the driver root, RetryLater
        while one is being installed."""

    def gpu_edits(self, pci: PciAddress, minor: int) -> ContainerEdits:
        """The device nodes of one GPU: /dev/nvidia<minor>, its DRI nodes. Asked after `common_edits`, which looks whether
        the installation has changed."""


class Journal(Protocol):
    def intend(self, effect: Effect) -> None:
        """Puts the intent on record, with prior values, before the effect. Raises DriverError if it cannot be recorded:
        the effect must then not happen."""


class Kind(Protocol):
    """What a device is. One file per kind."""

    name: str

    def advertise(self, inventory: Inventory) -> Sequence[Device]:
        """Pure: the devices that these GPUs make possible, sorted by name."""

    def acquire(self, device: Device, journal: Journal) -> LiveDevice:
        """Makes the device exist and proves that it answers. Doing it again gives the same device. Every change outside
        is first put on the journal under owner `kind:<name>`."""

    def find(self, device: str, uuid: str) -> LiveDevice | None:
        """The device as it exists now, without changing anything; None if it is gone or is another one by now."""

    def edits(self, live: LiveDevice) -> ContainerEdits:
        """What a container needs for this device beyond the common edits."""

    def undo(self, effect: Effect) -> None:
        """Restores what `effect` says. Idempotent; not finding it is success."""


class SharingMode(Protocol):
    """How live devices are shared. One file per mode. It never needs to know what kind a device is."""

    strategy: str

    def refusal(self, config: Any, kind: str) -> str | None:
        """Pure: why this mode cannot be applied with this decoded configuration to devices of this kind, else None."""

    def apply(self, live: Sequence[LiveDevice], config: Any, ref: ClaimRef, journal: Journal) -> ContainerEdits:
        """Shares these devices; the edits are added for each of them. Idempotent. Owner on the journal: `sharing:<strategy>`."""

    def undo(self, effect: Effect) -> None:
        """Restores what `effect` says. Idempotent; not finding it is success."""


class Claims(Protocol):
    def ask(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], Claim]]:
        """Asks the API server for all of them at once; what is returned waits for its answer, and raises GiveUp when the
        claim is gone, replaced (other UID) or not allocated, RetryLater when the API server does not answer. To be called
        once each."""

    def exists(self, ref: ClaimRef) -> bool:
        """False only when the API server says that no claim of this name has this UID. RetryLater when it cannot tell."""

    def find(self, uid: str) -> ClaimRef | None:
        """Looks a claim up by UID alone (a list of all claims: only for a record that was damaged)."""


class Ledger(Protocol):
    """One small file per claim, and an index of who holds which device. The files are the truth; nothing is cached, so
    two instances of the agent (an upgrade) see each other's records."""

    def find(self, uid: str) -> ClaimRecord | None:
        """None when there is no record. A damaged one is set aside first, and reported by `damaged()`. TellUser for a
        record that a newer version wrote: it is left as it is."""

    def put(self, record: ClaimRecord, *, replaces: ClaimRecord | None = None) -> None:
        """Replaces the claim's record in one atomic step, after the holders of its devices are on the index. Callers hold
        the locks of the claim's devices: two puts of one claim at a time are not expected. `replaces` is what the caller
        itself put last under these locks: it is then not read again."""

    def drop(self, uid: str) -> None:
        """Removes record and holders. Not finding them is success."""

    def holders(self, device: str) -> frozenset[str]:
        """UIDs of the claims on record that hold this device."""

    def uids(self) -> frozenset[str]:
        """UIDs of all claims on record."""

    def damaged(self) -> tuple[DamagedRecord, ...]:
        """Records set aside and not yet rebuilt (`put` of a READY record of the same UID, or `drop`, ends that). Until
        then the claim counts as holding what it held: its pod may be running."""

    def miss(self, uid: str) -> None:
        """This claim should be on record. If it is not, it counts as one whose record was damaged from now on."""

    def sweep(self) -> object:
        """For the start: removes what killed writers left, and puts the index of holders right."""

    def lock(self, devices: frozenset[str], timeout_s: float) -> AbstractContextManager[None]:
        """Holds these devices against every other thread and instance; always taken in one order. RetryLater, naming
        the device, when one stays busy. The kernel frees them when the process dies."""


class Advertised(Protocol):
    """The devices advertised last, over a restart of the agent."""

    def recall(self) -> Mapping[str, Device]:
        """By name; empty when nothing is known. Never raises."""

    def remember(self, devices: Iterable[Device]) -> None:
        """Costs nothing when they are the same as before. Never raises."""


class Neighbours(Protocol):
    """Who else gives GPUs of this node to pods and knows nothing of claims: device plugins."""

    def holders(self, inventory: Inventory) -> Mapping[str, str]:
        """UUIDs of the GPUs and MIG devices that are not for claims now -> why, in words (`was given to ...`). Asked anew, but
        where there is plainly nobody it costs a `stat`. RetryLater when it cannot be told."""

    def look(self, inventory: Inventory) -> Mapping[str, str]:
        """The same for publishing, as far as known: never raises. Reports what is new."""


class CdiStore(Protocol):
    def write(self, uid: str, devices: Sequence[tuple[str, ContainerEdits]], common: ContainerEdits) -> None:
        """Renders and writes the claim's spec atomically, in the least CDI version that says it. `devices` are CDI device
        names (unqualified) and their edits. The directory is made if it is missing."""

    def remove(self, uid: str) -> None:
        """Removes the claim's spec. Not finding it is success."""

    def specs(self) -> Mapping[str, bool]:
        """The claims whose spec files of this driver lie in the directory, by UID: whether the file is whole, as far as
        known. Costs a listing and a stat of each; reads only files that have changed since they were written."""

    def sweep(self) -> object:
        """Removes what killed writers left, once it is too old to be a live one's. One listing of the directory."""

    def qualified(self, uid: str, device: str, share_id: str | None) -> str:
        """`vendor/class=<claim UID>-<device>[-<share>]`: unique for each device of each claim."""


class Events(Protocol):
    def warn(self, ref: ClaimRef, reason: str, message: str) -> None:
        """A Kubernetes Warning Event on the claim, for what a user must know. Never raises, never waits; repeats of the
        same event are counted, not multiplied."""

    def warn_node(self, reason: str, message: str) -> None:
        """The same on this Node, for what concerns it as a whole."""


class Telemetry(Protocol):
    """Counts and times. Never raises, never waits."""

    def claim_done(self, operation: str, result: str, seconds: float) -> None:
        """`operation` prepare or unprepare; `result` ok, retry, give_up or tell_user."""

    def devices_seen(self, published: int, problems: int) -> None: ...

    def claims_prepared(self, count: int) -> None: ...

    def records_damaged(self, count: int) -> None:
        """How many claims there are whose record was damaged and that are neither rebuilt nor released yet."""

    def device_plugin(self, offered: int, held: int, doubly: int) -> None:
        """GPUs that a device plugin offers, that pods have through it, and those of them that claims have at the same time."""

    def slice_written(self, verb: str, result: str) -> None:
        """`verb` create, update or delete."""


class ResourceApi(Protocol):
    """The API server as raw JSON. Paths are absolute (`/apis/...`). Errors are those of `dra_driver.kube.errors`, all of
    them RetryLater, GiveUp or TellUser as well."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]: ...

    def ask(self, paths: Sequence[str]) -> Sequence[Callable[[], dict[str, Any]]]:
        """Sends a GET for each path at once; what is returned waits for its answer. To be called once each."""

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        on_event: Callable[[str, dict[str, Any]], None],
        on_sync: Callable[[Sequence[dict[str, Any]]], None],
        stopped: Callable[[], bool],
    ) -> None:
        """List, then watch, until `stopped()`. `on_sync` gets the whole list after each (re)list, `on_event` gets
        ADDED/MODIFIED/DELETED with the object. Backs off by itself; never raises."""


class Publisher(Protocol):
    def wake(self) -> None:
        """Something may have changed: look at everything again soon. Level-triggered and cheap."""


class NodeService(Protocol):
    """What the kubelet's calls ask for. Each claim is answered on its own: an exception concerns that claim only."""

    def prepare_each(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], Sequence[PreparedDevice]]]:
        """Begins with all of them, by asking for the claims; what is returned prepares each. To be called once each, from
        any thread. Idempotent. Raises DriverError."""

    def unprepare(self, ref: ClaimRef) -> None:
        """Idempotent; an unknown claim is success. Needs no API server. Raises DriverError."""
