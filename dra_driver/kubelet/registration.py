"""Registration: tells the kubelet who we are, and remembers what it said about that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from api.proto.pb import pluginregistration_v1_pb2 as wire

logger = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"

# The kubelet takes the first one that it knows. These are its own short forms, not the gRPC names of the services.
SUPPORTED_VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the kubelet said last; `error` is its reason when it did not register us."""

    registered: bool
    error: str = ""


class Registration:
    """The service `pluginregistration.Registration`. Answers from memory: the kubelet waits 1 s, also while GPUs hang."""

    def __init__(self, driver: str, endpoint: str, supported_versions: Sequence[str] = SUPPORTED_VERSIONS) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._supported_versions = tuple(supported_versions)
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict | None:
        """None until the kubelet has spoken."""
        return self._verdict

    def forget(self) -> None:
        """The registration socket was lost, so what the kubelet said holds no longer."""
        self._verdict = None

    async def GetInfo(self, request: wire.InfoRequest, context: grpc.aio.ServicerContext[Any, Any]) -> wire.PluginInfo:  # noqa: ARG002, N802 (wire)
        logger.debug("the kubelet asks who listens on the registration socket")
        return wire.PluginInfo(
            type=PLUGIN_TYPE,
            name=self._driver,
            endpoint=self._endpoint,
            supported_versions=self._supported_versions,
        )

    async def NotifyRegistrationStatus(  # noqa: N802 (wire)
        self,
        request: wire.RegistrationStatus,
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002
    ) -> wire.RegistrationStatusResponse:
        self._verdict = Verdict(request.plugin_registered, request.error)
        if request.plugin_registered:
            logger.info("registered with the kubelet", extra={"driver": self._driver, "endpoint": self._endpoint})
        else:
            logger.error(
                "the kubelet refused to register the driver: %s; it will try again by itself",
                request.error or "it gave no reason, see the kubelet's log",
                extra={"driver": self._driver, "endpoint": self._endpoint},
            )
        return wire.RegistrationStatusResponse()
