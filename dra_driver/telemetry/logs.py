"""One line an event on stderr: JSON for machines, text for people. Fields come with `extra` and keep their names."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from dra_driver.model.errors import TellUser

FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")

# What every LogRecord has; anything else on it came by `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_encode = json.JSONEncoder(default=str, ensure_ascii=False, separators=(",", ":")).encode


class JsonFormatter(logging.Formatter):
    """`{"time": "2026-01-02T03:04:05.678Z", "level": "info", "msg": ..., "logger": ..., <extra>, "exception": <traceback>}`.

    Values that JSON has no form for are written as their `str`; a field of `extra` never replaces one of these.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            "logger": record.name,
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if exception := _exception(self, record):
            line["exception"] = exception
        try:
            return _encode(line)
        except (TypeError, ValueError):  # keys that are no strings, cycles: a log line never fails its caller
            return _encode({name: str(value) for name, value in line.items()})


class TextFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z INFO    message  key=value key="two words"`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname:<7} {_one_line(record.getMessage())}"
        if fields := _fields(record):
            line += "  " + " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        if exception := _exception(self, record):
            line += "\n    " + exception.replace("\n", "\n    ")
        return line


def setup(level: str = "info", log_format: str = "json", stream: TextIO | None = None) -> None:
    """Makes the whole process log this way, on `stream` (stderr), whatever was set up before; call it once, from main.

    Python warnings and exceptions that end a thread are logged, too. TellUser for an unknown level or format.
    """
    if level not in LEVELS or log_format not in FORMATS:
        raise TellUser(
            f"setting up the log with level {level!r} and format {log_format!r}",
            "there is no such level or format",
            f"levels are {', '.join(LEVELS)}; formats are {', '.join(FORMATS)}",
        )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It tells of connections, retries and full pools: nothing that our own lines do not say better.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    # At level debug they tell of their event loop, grpcio with every call.
    for library in ("asyncio", "grpc"):
        logging.getLogger(library).setLevel(max(logging.INFO, root.level))
    # A log that cannot be written (closed pipe) is no reason to print tracebacks to the same place.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    threading.excepthook = _log_end_of_thread


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is None or isinstance(ended.exc_value, SystemExit):
        return
    name = ended.thread.name if ended.thread else "unknown"
    logging.getLogger(__name__).error(
        "thread %s ended by an exception: bug in the driver",
        name,
        exc_info=(ended.exc_type, ended.exc_value, ended.exc_traceback),
    )


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _timestamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _quoted(value: Any, encode: Callable[[Any], str] = _encode) -> str:
    text = str(value)
    return encode(text) if not text or any(c in ' "=' or not c.isprintable() for c in text) else text
