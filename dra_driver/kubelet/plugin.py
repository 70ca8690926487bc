"""The services `k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin` and `...v1beta1.DRAPlugin`: wire in, node service, wire out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import grpc

from api.proto.pb import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from dra_driver.kubelet.claim_calls import LONGEST_WAIT_S, Begin, ClaimCalls, Done, Failed
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import PreparedDevice
from dra_driver.ports import NodeService

T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]


class DRAPlugin:
    """One version of the service; `wire` is the generated module of its messages, which are the same but for the share ID.

    Every claim of a request is in the answer, with its devices or its error; the call as a whole does not fail.
    """

    def __init__(self, wire: ModuleType, service: NodeService, calls: ClaimCalls) -> None:
        self._wire: Any = wire
        self._service = service
        self._calls = calls
        self._has_share_ids = "share_id" in self._wire.Device.DESCRIPTOR.fields_by_name

    async def NodePrepareResources(self, request: Any, context: Context) -> Any:  # noqa: N802 (wire)
        answers = await self._each("prepare", self._service.prepare_each, request, context)
        response = self._wire.NodePrepareResourcesResponse()
        for ref, answer in answers.items():
            # Touching the key makes the entry: one without devices must be in the answer, too.
            entry = response.claims[ref.uid]
            if isinstance(answer, Failed):
                entry.error = answer.error
            else:
                entry.devices.extend(self._device(device) for device in answer.value)
        return response

    async def NodeUnprepareResources(self, request: Any, context: Context) -> Any:  # noqa: N802 (wire)
        answers = await self._each("unprepare", self._unprepare_each, request, context)
        response = self._wire.NodeUnprepareResourcesResponse()
        for ref, answer in answers.items():
            entry = response.claims[ref.uid]
            if isinstance(answer, Failed):
                entry.error = answer.error
        return response

    async def _each(
        self, verb: str, begin: Begin[T], request: Any, context: Context
    ) -> Mapping[ClaimRef, Done[T] | Failed]:
        self._calls.opened()
        # The stubs take a callback for an instance of a class of theirs.
        context.add_done_callback(self._closed)  # type: ignore[arg-type]
        return await self._calls.each(verb, begin, _refs(request.claims), _budget_s(context))

    def _closed(self, _context: Context) -> None:
        self._calls.closed()

    def _unprepare_each(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], None]]:
        return [partial(self._service.unprepare, ref) for ref in refs]

    def _device(self, device: PreparedDevice) -> Any:
        message = self._wire.Device(
            request_names=[device.request.split("/", 1)[0]],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
        if self._has_share_ids and device.share_id is not None:
            message.share_id = device.share_id
        return message


def add_plugins(server: grpc.aio.Server, service: NodeService, calls: ClaimCalls) -> None:
    """Serves both versions on `server`."""
    dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(DRAPlugin(dra_v1_pb2, service, calls), server)
    dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(DRAPlugin(dra_v1beta1_pb2, service, calls), server)


def _refs(claims: Iterable[Any]) -> Sequence[ClaimRef]:
    """One for each UID."""
    by_uid = {claim.uid: ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name) for claim in claims}
    return tuple(by_uid.values())


def _budget_s(context: Context) -> float:
    remaining: float | None = context.time_remaining()
    # With the kubelet's 45 s this is 40 s. What it has taken until here is gone already.
    return LONGEST_WAIT_S if remaining is None else max(0.0, min(LONGEST_WAIT_S, remaining * 0.9))
