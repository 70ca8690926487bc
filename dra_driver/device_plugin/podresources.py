"""What the kubelet's pod-resources API says about device plugins. One short connection for each question: whoever has no
device plugin on the node has no gRPC client in the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.model.errors import RetryLater

TIMEOUT_S = 5.0
_MOST_BYTES = 16 << 20  # of an answer; the kubelet's own client takes as much
_NEXT_STEP = "check that the kubelet runs, and that its pod-resources directory is mounted in the driver's pod"


@dataclass(frozen=True, slots=True)
class Given:
    """One device that a container has through a device plugin. `pod` is namespace/name, `device` as the plugin calls it."""

    resource: str
    device: str
    pod: str


class PodResources:
    """`socket` is pod-resources/kubelet.sock in the kubelet's directory."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def offered(self) -> Mapping[str, frozenset[str]]:
        """Resource -> devices, those that are taken included. RetryLater when the kubelet does not answer."""
        from api.proto.pb.podresources_v1_pb2 import AllocatableResourcesRequest

        doing = "asking the kubelet what device plugins offer"
        answer = self._ask("GetAllocatableResources", AllocatableResourcesRequest(), doing)
        offered: dict[str, set[str]] = {}
        for entry in answer.devices:
            offered.setdefault(entry.resource_name, set()).update(entry.device_ids)
        return {resource: frozenset(devices) for resource, devices in offered.items()}

    def given(self) -> tuple[Given, ...]:
        """All devices of all pods that have not ended. RetryLater when the kubelet does not answer."""
        from api.proto.pb.podresources_v1_pb2 import ListPodResourcesRequest

        answer = self._ask(
            "List", ListPodResourcesRequest(), "asking the kubelet which pods have devices of device plugins"
        )
        return tuple(
            Given(entry.resource_name, device, f"{pod.namespace}/{pod.name}")
            for pod in answer.pod_resources
            for container in pod.containers
            for entry in container.devices
            for device in entry.device_ids
        )

    def _ask(self, method: str, request: Any, doing: str) -> Any:
        import grpc

        from api.proto.pb.podresources_v1_pb2_grpc import PodResourcesListerStub

        if not self._socket.is_socket():
            raise RetryLater(doing, f"there is no socket {self._socket}", _NEXT_STEP)
        options = [("grpc.max_receive_message_length", _MOST_BYTES)]
        try:
            with grpc.insecure_channel(f"unix:{self._socket}", options=options) as channel:
                return getattr(PodResourcesListerStub(channel), method)(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
            raise RetryLater(doing, f"{self._socket} answered {why}", _NEXT_STEP) from error
