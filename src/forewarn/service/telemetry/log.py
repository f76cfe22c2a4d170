"""The log of the service: one line for each thing that happens, for people or for programs.

A console line is to be read; a JSON line is to be searched, and has the same in fields. Nothing
from outside (a guest, a driver, a file) can end a line, forge one, or control a terminal; and a log
that cannot be written never stops the service.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TextIO, cast

import msgspec

from forewarn.core import Event, Group, Status
from forewarn.core.changes import Disabled, Enabled, EventMoved
from forewarn.core.events import log_fields
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.service.access.secret import hidden
from forewarn.service.telemetry.stderr import StderrWriter
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.support.text import escaped, utc, visible

# Importing rich, which structlog would use for tracebacks, takes a fifth of a process's start-up
# time and 5 MiB. We never render with it, so hide it while structlog is imported here, where the
# process is our own; inside somebody's tests, where this module is not used, structlog finds it.
_hide_rich = "rich" not in sys.modules
if _hide_rich:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes its import fail
try:
    import structlog
finally:
    if _hide_rich:
        del sys.modules["rich"]

FORMATS = ("auto", "console", "json")
LEVELS = ("debug", "info", "warning", "error")
MAX_VALUE = 4_096  # characters of one value in a line

_CHANGE = "_change"  # marks a line about a change, whose text says everything
_encode = msgspec.json.Encoder(enc_hook=repr).encode

log = structlog.get_logger("forewarn")


def _log_dropped(lines: int) -> None:
    log.warning("log lines were dropped because standard error was not read", lines=lines)


_stderr = StderrWriter(_log_dropped)


def configure(
    format: str = "auto",
    level: str = "info",
    *,
    dates: bool = True,
    now: Callable[[], int] | None = None,
) -> None:
    """Set up logging; called again whenever the settings change. Without `dates` the log is for a
    developer who reads it as it happens. `now` returns the time of a line, in microseconds since
    1970, if that is not the real time: the log of a service on a virtual clock has no other."""
    if format == "auto":
        format = "console" if sys.stderr is not None and sys.stderr.isatty() else "json"
    render = _json if format == "json" else _Console(dates)

    def add_timestamp(_logger: object, _method: str, line: Any) -> Any:
        line["timestamp"] = to_datetime((now or guard.wall_us)())
        return line

    drop_requests = [] if dates else [_drop_requests]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *drop_requests,
            add_timestamp,
            structlog.processors.format_exc_info,
            _clean,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # A line is written in one piece: other processes may be writing there too.
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _stderr)),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LibraryHandler())
    root.setLevel(logging.DEBUG if number <= logging.DEBUG else logging.WARNING)
    quiet = ("asyncio", "httpcore", "httpx", "urllib3", "sqlalchemy")
    for name in ("uvicorn.error", "uvicorn.access", *quiet):
        logging.getLogger(name).setLevel(logging.ERROR if "uvicorn" in name else logging.WARNING)


class _LibraryHandler(logging.Handler):
    """Log the records of libraries in the format of this log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            level = record.levelname.lower()
            write = getattr(log, level if level in LEVELS else "error")
            write(text, logger=record.name, exc_info=record.exc_info or None)
        except Exception:  # a broken log record must not stop the service
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - not our name
        with contextlib.suppress(Exception):
            log.error("a library's log record could not be formatted", logger=record.name)


class ServiceLog:
    """Log a line for each visible change when it is committed."""

    def __init__(self, store: Store) -> None:
        store.on_own_commit(self._on_commit)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for entry in commit.entries:
            group = changed[entry.group]
            moved: dict[str, EventMoved] = {}  # each event, as it is after the whole commit
            waiting: dict[str, Event] = {}  # approved, but not started
            for item in entry.items:
                match item:
                    case EventMoved(what=what, event=event) if what in SHOWN:
                        moved[event.id] = item
                    case EventMoved(what=Move.APPROVE, event=event):
                        waiting[event.id] = event
                    case Enabled():
                        self._write(commit, f"{group.name}: enabled, document 1", group=group.name)
                    case Disabled(why=why, by=by):
                        text = f"{group.name}: no longer enabled ({why})"
                        self._write(commit, text, group=group.name, by=by)
            for event in [e for id, e in waiting.items() if id not in moved]:
                by = event.approved.by if event.approved else "nobody"
                names = ", ".join(event.resources)
                text = (
                    f"{group.name}: {event.type.value} of {names} is approved by {by}, but has to"
                    f" wait: forewarn event explain {event.id}"
                )
                self._write(commit, text, **log_fields(event), status=event.status.value, by=by)
            for item in moved.values():
                event = item.event
                fields = log_fields(event) | {"status": event.status.value, "by": _by(item)}
                self._write(commit, _line(group, event, commit.at), **fields)

    def _write(self, commit: Commit, text: str, **fields: Any) -> None:
        given = {key: value for key, value in fields.items() if value != ""}
        log.info(text, **{_CHANGE: True}, at=to_datetime(commit.at), commit=commit.seq, **given)


def _by(item: EventMoved) -> str:
    event = item.event
    if event.status is Status.STARTED:
        return event.approved.by if event.approved else ""
    return item.by or (event.by if event.status is Status.SCHEDULED else event.cancelled_by)


def _line(group: Group, event: Event, at: int) -> str:
    document = f"document {group.incarnation}" if group.enabled else "not enabled"
    document = "unannounced" if event.unannounced else document
    names = ", ".join(event.resources)
    match event.status:
        case Status.SCHEDULED:
            detail = f"not before {_time(event.not_before, at)}"
        case Status.STARTED:
            detail = (
                f"approved by {event.approved.by}" if event.approved else "NotBefore has passed"
            )
            detail = "a failure" if event.failure else detail
        case _:
            detail = event.ending
    status = event.status.value
    return f"{group.name}: {status} {event.type.value} of {names} ({detail}; {document}) {event.id}"


def _time(at: int, now: int) -> str:
    """Format a time, with its date unless that is today's."""
    time = to_datetime(at)
    return f"{time:%H:%M:%S}" if time.date() == to_datetime(now).date() else utc(at)


# Processing of a line.


def _drop_requests(_logger: object, _method: str, line: Any) -> Any:
    """Drop the lines about requests: a developer sees their effects."""
    if line["level"] == "info" and "request_id" in line:
        raise structlog.DropEvent
    return line


def _clean(_logger: object, _method: str, line: Any) -> Any:
    """Hide secrets, and cut long values."""
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = hidden(value if key == "exception" else value[:MAX_VALUE])
    return line


def _json(_logger: object, _method: str, line: Any) -> str:
    line.pop(_CHANGE, None)
    first = {key: line.pop(key) for key in ("timestamp", "level", "event")}
    first["timestamp"] = first["timestamp"].isoformat().replace("+00:00", "Z")
    return escaped(_encode({**first, **line}).decode())


class _Console:
    """Render `2026-11-15 05:08:03Z  warning: what happened  key=value`. A change is rendered
    without its fields, since its text says everything, and with the time at which it happened.
    Without `dates`, only a line on another day than the line before has a date; the first line is
    compared with today."""

    def __init__(self, dates: bool) -> None:
        self._dates = dates
        self._day = to_datetime(guard.wall_us()).date()

    def _time(self, at: datetime) -> str:
        same_day = at.date() == self._day
        self._day = at.date()
        return f"{at:%H:%M:%S}" if same_day and not self._dates else f"{at:%Y-%m-%d %H:%M:%SZ}"

    def __call__(self, _logger: object, _method: str, line: Any) -> str:
        event, level = line.pop("event"), line.pop("level")
        at, exception = line.pop("timestamp"), line.pop("exception", "")
        if line.pop(_CHANGE, False):
            at, line = line["at"], {}
        fields = "".join(f"  {key}={_value(value)}" for key, value in line.items())
        level = "" if level == "info" else f"{level}: "
        text = visible(f"{self._time(at)}  {level}{event}{fields}")
        traceback = exception.splitlines() if exception else []
        return "\n".join([text, *(f"    {visible(line)}" for line in traceback)])


def _value(value: object) -> str:
    if isinstance(value, str):
        return value if value and not set(value) & set(" \"'=") else repr(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
