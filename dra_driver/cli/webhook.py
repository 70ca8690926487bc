"""`dra-driver webhook`: settings, logs, and then the webhook until SIGTERM."""

from __future__ import annotations

import argparse
import logging
from contextlib import closing

from dra_driver.model.errors import DriverError
from dra_driver.telemetry import logs
from dra_driver.termination import Termination
from dra_driver.webhook_settings import WEBHOOK_TABLE, WebhookSettings, load


def run(arguments: argparse.Namespace) -> int:
    flags = {row.name: getattr(arguments, row.name, None) for row in WEBHOOK_TABLE}
    settings = load(flags, file=arguments.config)
    logs.setup(settings.log_level, settings.log_format)
    with closing(Termination()) as termination:
        termination.listen()
        return _run(settings, termination)


def _run(settings: WebhookSettings, termination: Termination) -> int:
    log = logging.getLogger("dra_driver")
    from dra_driver.webhook import run as run_webhook

    try:
        return run_webhook(settings, termination)
    except DriverError as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
    except Exception:
        log.exception("the webhook ends: this is a bug, please report it with this line")
    return 1
