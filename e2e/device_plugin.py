"""A small device plugin, to be run on a node: offers GPUs of these UUIDs as NVIDIA's plugin does, and lets pods see which they got.

python -m e2e.device_plugin RESOURCE UUID [UUID ...]
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc

from api.proto.pb import deviceplugin_v1beta1_pb2 as wire
from api.proto.pb import deviceplugin_v1beta1_pb2_grpc as service
from dra_driver.termination import Termination

DIRECTORY = Path("/var/lib/kubelet/device-plugins")


class DevicePlugin(service.DevicePluginServicer):  # type: ignore[misc]  # generated
    def __init__(self, resource: str, uuids: Sequence[str]) -> None:
        self._resource = resource
        self._uuids = uuids
        self._ended = threading.Event()
        self._socket = DIRECTORY / f"nvidia-{resource.rpartition('/')[2]}.sock"

    def run(self) -> None:
        """Until SIGTERM."""
        with closing(Termination()) as termination:
            termination.listen()
            self._serve(termination)

    def _serve(self, termination: Termination) -> None:
        self._socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        service.add_DevicePluginServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self._socket}")
        server.start()
        with grpc.insecure_channel(f"unix:{DIRECTORY}/kubelet.sock") as channel:
            announced = wire.RegisterRequest(
                version="v1beta1", endpoint=self._socket.name, resource_name=self._resource
            )
            service.RegistrationStub(channel).Register(announced, timeout=10)
        termination.wait()
        self._ended.set()
        server.stop(1).wait()
        self._socket.unlink(missing_ok=True)

    def GetDevicePluginOptions(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (gRPC)
        return wire.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802 (gRPC)
        yield wire.ListAndWatchResponse(devices=[wire.Device(ID=uuid, health="Healthy") for uuid in self._uuids])
        self._ended.wait()

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (gRPC)
        return wire.AllocateResponse(
            container_responses=[
                wire.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(one.devices_ids)})
                for one in request.container_requests
            ]
        )


if __name__ == "__main__":
    DevicePlugin(sys.argv[1], sys.argv[2:]).run()
