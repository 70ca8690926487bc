"""Composition root of the admission webhook, which runs in a process of its own, beside no GPU."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass

from dra_driver import __version__
from dra_driver.admission.door import RESULTS, Door
from dra_driver.admission.own import OwnCertificate
from dra_driver.admission.server import Server
from dra_driver.admission.tls import FileCertificate
from dra_driver.kube.client import KubeApi
from dra_driver.telemetry.http import HttpServer
from dra_driver.telemetry.reviews import ReviewMetrics
from dra_driver.termination import Termination
from dra_driver.webhook_settings import WebhookSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """All that runs, in the order in which it starts."""

    api: KubeApi | None
    certificate: FileCertificate | OwnCertificate
    probes: HttpServer
    server: Server


def build(settings: WebhookSettings) -> Parts:
    """Wires everything; opens, starts and writes nothing."""
    metrics = ReviewMetrics(__version__, settings.driver_name, RESULTS)
    api: KubeApi | None = None
    certificate: FileCertificate | OwnCertificate
    if settings.tls_secret is None:
        certificate = FileCertificate(settings.tls_cert, settings.tls_key, metrics.certificate_expires)
    else:
        api = KubeApi(settings.kubeconfig or None)
        certificate = OwnCertificate(
            api,
            settings.tls_secret,
            settings.webhook_configuration,
            settings.tls_names,
            settings.tls_life_s,
            settings.check_s,
            metrics.certificate_expires,
        )
    healthy: list[str] = []  # a process that answers at all is alive
    door = Door(settings.driver_name, metrics.review_done)
    return Parts(
        api=api,
        certificate=certificate,
        probes=HttpServer(settings.http_address, metrics.render, lambda: healthy, certificate.not_ready),
        server=Server(*settings.listen, certificate.context, door.answer),
    )


def run(settings: WebhookSettings, termination: Termination) -> int:
    """Answers reviews until it is told to end. Exit status 0."""
    parts = build(settings)
    with ExitStack() as stack:
        if parts.api is not None:
            stack.callback(parts.api.close)
        for part in (parts.certificate, parts.probes, parts.server):
            part.start()
            stack.callback(part.stop)
        log.info("serving", extra={"driver": settings.driver_name, "port": parts.server.port, "pid": os.getpid()})
        termination.wait()
        log.info("stopping")
    log.info("stopped")
    return 0
