from __future__ import annotations

import io
import json
import logging
import threading
import warnings
from collections.abc import Iterator

import pytest

from dra_driver.model.errors import TellUser
from dra_driver.telemetry import logs


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raising, hook = root.handlers[:], root.level, logging.raiseExceptions, threading.excepthook
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions, threading.excepthook = raising, hook
    logging.captureWarnings(False)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_fields() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    logging.getLogger("dra_driver.x").info(
        "prepared %s", "a\nb", extra={"claim_uid": "u", "seconds": 0.25, "devices": ["d"]}
    )
    [line] = lines(stream)
    stamp = str(line.pop("time"))
    assert line == {
        "level": "info",
        "msg": "prepared a\nb",
        "logger": "dra_driver.x",
        "claim_uid": "u",
        "seconds": 0.25,
        "devices": ["d"],
    }
    assert stamp.endswith("Z")
    assert len(stamp) == len("2026-01-02T03:04:05.678Z")


def test_times_are_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"created": 0.007, "msecs": 7.0, "levelname": "INFO", "msg": "m"})
    assert json.loads(logs.JsonFormatter().format(record))["time"] == "1970-01-01T00:00:00.007Z"


def test_an_exception_stays_on_the_line_of_its_event() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    try:
        {}["minor"]
    except KeyError:
        logging.getLogger("x").exception("failed")
    [line] = lines(stream)
    assert "Traceback" in str(line["exception"])
    assert line["level"] == "error"


def test_no_field_can_break_or_disguise_a_line() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    cycle: list[object] = []
    cycle.append(cycle)
    logging.getLogger("x").info(
        "m", extra={"time": "never", "level": "fatal", "what": object(), "cycle": cycle, "b": b"\xff"}
    )
    [line] = lines(stream)
    assert line["level"] == "info"
    assert line["time"] != "never"


def test_the_text_form_is_one_readable_line_and_the_traceback_indented() -> None:
    stream = io.StringIO()
    logs.setup("debug", "text", stream)
    logging.getLogger("x").warning("set\naside", extra={"path": "/run/a b", "uid": "u-1", "empty": ""})
    try:
        int("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, second, *rest = stream.getvalue().splitlines()
    assert first[25:] == 'WARNING set\\naside  path="/run/a b" uid=u-1 empty=""'
    assert second[25:] == "ERROR   failed"
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    logs.setup("warning", "json", stream)
    logging.getLogger("x").info("quiet")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("level", "heard"), [("debug", ["info", "warning"]), ("warning", ["warning"])])
def test_the_event_loop_is_no_topic_and_what_grpc_warns_of_is(level: str, heard: list[str]) -> None:
    stream = io.StringIO()
    logs.setup(level, "json", stream)
    for library in ("asyncio", "grpc._cython.cygrpc"):
        logger = logging.getLogger(library)
        logger.debug("Loaded running loop: id(loop)=1")
        logger.info("something that matters")
        logger.warning("trouble")
    assert [line["level"] for line in lines(stream)] == heard * 2


@pytest.mark.parametrize(("level", "log_format"), [("loud", "json"), ("INFO", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_says_what_there_is(level: str, log_format: str) -> None:
    with pytest.raises(TellUser, match=r"levels are debug, info, warning, error; formats are json, text"):
        logs.setup(level, log_format)


def test_setting_up_twice_writes_once() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", io.StringIO())
    logs.setup("info", "json", stream)
    logging.getLogger("x").info("once")
    assert len(lines(stream)) == 1


def test_the_exception_that_ends_a_thread_is_logged() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)

    def fail() -> None:
        raise RuntimeError("dead")

    thread = threading.Thread(target=fail, name="watch-gpus")
    thread.start()
    thread.join()
    [line] = lines(stream)
    assert line["msg"] == "thread watch-gpus ended by an exception: bug in the driver"
    assert "RuntimeError: dead" in str(line["exception"])


def test_python_warnings_are_logged() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    assert "old" in stream.getvalue()


def test_a_log_that_cannot_be_written_does_not_fail_its_caller() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    stream.close()
    logging.getLogger("x").info("into the void")
