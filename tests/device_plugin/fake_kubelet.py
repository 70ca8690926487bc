"""The kubelet's pod-resources API over a real socket, and its device-plugins directory, as tests set them."""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from api.proto.pb import podresources_v1_pb2 as wire
from api.proto.pb import podresources_v1_pb2_grpc as service

_changes = itertools.count(1)


class FakePodResources(service.PodResourcesListerServicer):
    """`kubelet_dir` gets device-plugins/ and pod-resources/ when it starts; every change is seen in the former, as the kubelet's
    checkpoint would make it."""

    def __init__(self, kubelet_dir: Path) -> None:
        self.plugins = kubelet_dir / "device-plugins"
        self.socket = kubelet_dir / "pod-resources" / "kubelet.sock"
        self.offers: list[tuple[str, list[str]]] = []
        self.pods: list[tuple[str, str, list[str]]] = []  # namespace/name, resource, devices
        self.calls: list[str] = []
        self.failure: grpc.StatusCode | None = None
        self._server: grpc.Server | None = None

    def __enter__(self) -> FakePodResources:
        self.plugins.mkdir(exist_ok=True)
        (self.plugins / "kubelet.sock").touch()
        self.settle()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.socket.parent.mkdir(exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(2))
        service.add_PodResourcesListerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)

    def settle(self) -> None:
        """The directory was changed long ago, each time at another moment."""
        moment = time.time() - 3600 + next(_changes)
        os.utime(self.plugins, (moment, moment))

    def offer(self, resource: str, *devices: str) -> None:
        """What the plugin of this resource offers from now on."""
        self.offers = [(name, given) for name, given in self.offers if name != resource]
        if devices:
            self.offers.append((resource, list(devices)))
        self._checkpoint()

    def give(self, pod: str, resource: str, *devices: str) -> None:
        self.pods.append((pod, resource, list(devices)))
        self._checkpoint()

    def end(self, pod: str) -> None:
        """The kubelet writes no checkpoint when a pod ends."""
        self.pods = [entry for entry in self.pods if entry[0] != pod]

    def _checkpoint(self) -> None:
        (self.plugins / "kubelet_internal_checkpoint").write_text("{}")
        self.settle()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (gRPC)
        self._called("List", context)
        return wire.ListPodResourcesResponse(
            pod_resources=[
                wire.PodResources(
                    namespace=pod.partition("/")[0],
                    name=pod.partition("/")[2],
                    containers=[
                        wire.ContainerResources(name="idle"),
                        wire.ContainerResources(
                            name="main", devices=[wire.ContainerDevices(resource_name=resource, device_ids=devices)]
                        ),
                    ],
                )
                for pod, resource, devices in self.pods
            ]
        )

    def GetAllocatableResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (gRPC)
        self._called("GetAllocatableResources", context)
        # One entry for each NUMA node, as the kubelet has it.
        return wire.AllocatableResourcesResponse(
            devices=[
                wire.ContainerDevices(resource_name=resource, device_ids=[device])
                for resource, devices in self.offers
                for device in devices
            ]
        )

    def _called(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        if self.failure is not None:
            context.abort(self.failure, "injected")
