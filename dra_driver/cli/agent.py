"""`dra-driver agent`: settings, logs, and then the composition root until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import closing

from dra_driver.cli.settings_of import from_arguments
from dra_driver.model.errors import DriverError
from dra_driver.settings import Settings
from dra_driver.telemetry import logs
from dra_driver.termination import Termination


def run(arguments: argparse.Namespace) -> int:
    settings = from_arguments(arguments, required=("node_name",))
    logs.setup(settings.log_level, settings.log_format)
    with closing(Termination()) as termination:
        termination.listen()
        return _run(settings, termination)


def _run(settings: Settings, termination: Termination) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes lines of its own to standard error
    log = logging.getLogger("dra_driver")
    from dra_driver.app import run as run_agent

    try:
        return run_agent(settings, termination)
    except* DriverError as failures:  # stopping goes on after the first, so there may be several
        for error in failures.exceptions:
            log.error("%s", error)  # noqa: TRY400 - the message says it all
    except* Exception as bugs:
        for bug in bugs.exceptions:
            log.error("the agent ends: this is a bug, please report it with this line", exc_info=bug)  # noqa: TRY400
    return 1
