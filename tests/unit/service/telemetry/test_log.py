"""What becomes of a line of the log: for people, for programs, whoever has put what into it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from forewarn.service.access import secret
from forewarn.service.telemetry import log as narrating
from forewarn.service.telemetry import stderr
from forewarn.service.telemetry.log import configure
from forewarn.testing import SAMPLE, Service

log = structlog.get_logger("forewarn")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The log is the process's: what a test makes of it does not stay."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    for module in (narrating, stderr):
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))
    return stream


def test_a_json_line_has_a_time_a_level_and_what_happened(output: io.StringIO) -> None:
    configure("json")
    log.warning("limit reached", limit="throttle", times=3)
    line = json.loads(output.getvalue())
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["level"] == "warning"
    assert (line["event"], line["limit"], line["times"]) == ("limit reached", "throttle", 3)
    assert datetime.fromisoformat(line["timestamp"]).tzinfo == UTC


def test_a_console_line_has_a_time_a_level_and_values(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.support.guard.wall_us", lambda: 1_800_000_000_000_000)
    configure("console")
    log.info("saved", count=3, names=["a", "b"], why="two words")
    log.error("lost")
    configure("console", dates=False)
    log.info("saved")
    assert output.getvalue().splitlines() == [
        "2027-01-15 08:00:00Z  saved  count=3  names=a,b  why='two words'",
        "2027-01-15 08:00:00Z  error: lost",
        "08:00:00  saved",
    ]


def test_console_without_dates_leaves_out_calls_that_succeeded(output: io.StringIO) -> None:
    for dates in (True, False):
        configure("console", dates=dates)
        log.info("succeeded", request_id="1")
        log.error("failed", request_id="2")
    assert [line.partition("Z  ")[2] or line for line in output.getvalue().splitlines()][:2] == [
        "succeeded  request_id=1",
        "error: failed  request_id=2",
    ]
    assert output.getvalue().count("succeeded") == 1
    assert output.getvalue().count("failed") == 2


def test_auto_is_json_unless_stderr_is_a_terminal(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("auto")
    log.info("one")
    monkeypatch.setattr(output, "isatty", lambda: True)
    configure("auto")
    log.info("two")
    first, second = output.getvalue().splitlines()
    assert json.loads(first)["event"] == "one"
    assert second.endswith("  two")


def test_lines_below_the_level_are_dropped_and_the_level_can_change(output: io.StringIO) -> None:
    configure("json", "warning")
    log.info("no")
    log.warning("yes")
    configure("json", "debug")
    log.debug("now this")
    assert [json.loads(line)["event"] for line in output.getvalue().splitlines()] == [
        "yes",
        "now this",
    ]


@pytest.mark.parametrize("format", ["console", "json"])
@pytest.mark.parametrize(
    "bad", ["a\nfake line", "\x1b[2Jgone", "\r", "\x85", "\u2028", "\u202etxt", "\x00", "\x7f"]
)
def test_logged_values_forge_no_line_and_send_no_control_characters(
    output: io.StringIO, format: str, bad: str
) -> None:
    configure(format)
    log.info(f"said {bad}", why=bad, names=[bad])
    text = output.getvalue()
    assert text.endswith("\n")
    assert text.splitlines() == [text[:-1]]
    assert not set(text[:-1]) & {*map(chr, range(32)), "\x7f", "\x85", "\u2028", "\u202e"}
    if format == "json":
        line = json.loads(text)
        assert (line["event"], line["why"], line["names"]) == (f"said {bad}", bad, [bad])


def test_an_exception_is_logged_whole_and_forges_no_line(output: io.StringIO) -> None:
    for format in ("console", "json"):
        configure(format)
        try:
            raise ValueError("first\n2027-01-15 08:00:00Z  forged\x1b[2J")
        except ValueError as error:
            log.error("a fault", exc_info=error)
    *console, last = output.getvalue().splitlines()
    assert console[0].endswith("error: a fault")
    assert all(line.startswith("    ") for line in console[1:])
    assert "\x1b" not in output.getvalue()
    assert "ValueError: first" in json.loads(last)["exception"]


def test_a_secret_is_cut_out_of_every_line(output: io.StringIO) -> None:
    token = secret.new("0123abcd").text
    for format in ("console", "json"):
        configure(format)
        log.info(f"somebody said {token}", path=f"/v1/{token}", exc_info=ValueError(token))
    assert token not in output.getvalue()
    assert token[-20:] not in output.getvalue()
    assert "fw_0123abcd_…" in output.getvalue()


def test_a_long_value_is_cut(output: io.StringIO) -> None:
    configure("json")
    log.info("much", why="x" * 1_000_000)
    assert len(output.getvalue()) < 2 * narrating.MAX_VALUE


def test_libraries_log_in_the_same_format(output: io.StringIO) -> None:
    configure("json")
    logging.getLogger("uvicorn.error").error("cannot %s", "bind\nfake")
    logging.getLogger("uvicorn.error").warning("not of interest")
    logging.getLogger("some.library").warning("beware")
    first, second = map(json.loads, output.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == (
        "cannot bind\nfake",
        "error",
        "uvicorn.error",
    )
    assert (second["event"], second["logger"]) == ("beware", "some.library")


def test_configuring_again_doubles_no_lines(output: io.StringIO) -> None:
    for _ in range(3):
        configure("json")
    logging.getLogger("some.library").warning("once")
    assert len(output.getvalue().splitlines()) == 1


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("no space left on device")

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [Broken(), None])
def test_a_log_that_cannot_be_written_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    for module in (narrating, stderr):
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))
    for format in ("console", "json", "auto"):
        configure(format)
        log.error("nobody hears it")
        logging.getLogger("some.library").error("nor that")


def test_each_visible_change_is_one_line_with_what_it_is_about(output: io.StringIO) -> None:
    with Service(SAMPLE) as service:
        narrating.ServiceLog(service._session.node.store)
        configure("json")
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        waiting = service.schedule("Freeze", "web_1")
        service.approve("web_1", event)
        service.approve("web_1", waiting)
        service.clock.advance("1h")
        service.disable("web")
        structlog.configure(processors=[_drop])
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    reported = [line for line in lines if line.get("event_id") == event.id]
    assert [(line["status"], line.get("by")) for line in reported] == [
        ("Scheduled", "test"),
        ("Started", "web_1"),
        ("Finished", None),
    ]
    for line in reported:
        assert (line["type"], line["group"], line["machines"]) == ("Reboot", "web", ["web_0"])
        assert f"{line['status']} Reboot of web_0" in line["event"]
        assert event.id in line["event"]
        assert line["commit"] > 0
        assert line["at"].startswith("2027-01-15T")
    held = next(line for line in lines if "has to wait" in line["event"])
    assert (held["event_id"], held["by"]) == (waiting.id, "web_1")
    assert lines[0]["event"] == "web: enabled, document 1"
    assert (lines[-1]["group"], lines[-1]["by"]) == ("web", "test")
    assert "no longer enabled" in lines[-1]["event"]


def test_a_change_on_a_console_is_one_sentence_at_the_time_it_happened(output: io.StringIO) -> None:
    with Service(SAMPLE) as service:
        narrating.ServiceLog(service._session.node.store)
        configure("console", dates=False)
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        structlog.configure(processors=[_drop])
    enabled, scheduled = output.getvalue().splitlines()
    assert enabled == "2027-01-15 08:00:00Z  web: enabled, document 1"  # not today
    assert scheduled.startswith("08:00:00  web: Scheduled Reboot of web_0")
    assert "08:15:00; document 2" in scheduled
    assert scheduled.endswith(event.id)


def test_on_a_console_a_time_on_another_day_has_its_date(output: io.StringIO) -> None:
    with Service(SAMPLE) as service:
        narrating.ServiceLog(service._session.node.store)
        configure("console", dates=False)
        service.get("web_0")
        service.schedule("Redeploy", "web_0", notice="7d")
        service.clock.advance("7d1m")
        structlog.configure(processors=[_drop])
    lines = output.getvalue().splitlines()
    assert lines[1].startswith("08:00:00  web: Scheduled Redeploy")
    assert "(not before 2027-01-22 08:00:00Z; document 2)" in lines[1]
    started = next(line for line in lines if "Started Redeploy" in line)
    assert started.startswith("2027-01-22 08:00:00Z  web: Started")


def _drop(_logger: object, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent
