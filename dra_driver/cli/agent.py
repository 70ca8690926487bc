"""`dra-driver agent`: settings, logs, and then the composition root until SIGTERM."""

from __future__ import annotations

import argparse
import logging

from dra_driver.cli.settings_of import from_arguments
from dra_driver.model.errors import DriverError
from dra_driver.telemetry import logs


def run(arguments: argparse.Namespace) -> int:
    settings = from_arguments(arguments, required=("node_name",))
    logs.setup(settings.log_level, settings.log_format)
    from dra_driver.app import run as run_agent

    try:
        return run_agent(settings)
    except DriverError as error:
        logging.getLogger("dra_driver").error("%s", error)  # noqa: TRY400 - the message says it all
        return 1
