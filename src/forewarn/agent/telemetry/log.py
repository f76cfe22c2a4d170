"""The agent's log: one line for each occurrence, on standard error.

JSON for programs, text on a terminal, with fields as in the service's own log. Text that others
wrote cannot end a line, forge one or control a terminal; secrets are removed; and a log that is
not read never stops the agent. What is worth logging is decided by the callers.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TextIO

import msgspec

from forewarn.client.events import from_timestamp
from forewarn.support.guard import wall_us
from forewarn.support.text import escaped, visible

Level = Literal["debug", "info", "warning", "error"]
LEVELS: Mapping[str, int] = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # as systemd's

MAX_VALUE = 2_048  # characters of one value in a line
MAX_OUTPUT = 1_024  # characters of a command's output, its end
OUTPUT = "output"  # the field for it
LEAST_SECRET = 6  # characters; shorter ones occur in ordinary words
PIECE = 4_096  # bytes that a writable pipe takes without blocking
PATIENCE_MS = 50  # for a reader that is a little behind

_TOKEN = re.compile(r"fw_([0-9a-f]{8})_[A-Za-z0-9]{4,}", re.ASCII)
_PASSWORD = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*(?=@)", re.ASCII)
_SECRET = re.compile(r"(url|header|token|passw|secret|key|auth|credential)(?!.*_file$)", re.I)
_HIDDEN = "…"
_encode = msgspec.json.Encoder(enc_hook=str).encode


# Fields that the service's log has under another name; there, `event` is what happened.
NAMES = {"event": "event_id", "resources": "machines"}

# Levels of what is not just information.
SEVERITY: Mapping[str, Level] = {
    "hook given up": "error",
    "hook overdue": "error",
    "approval failed": "warning",
    "problem": "warning",
}


class Log(Protocol):
    """A function that logs what happened, in a word or two, with its facts."""

    def __call__(self, what: str, /, **facts: Any) -> None: ...


def level_of(what: str, facts: Mapping[str, Any]) -> Level:
    return "warning" if facts.get("ok") is False else SEVERITY.get(what, "info")


class OngoingProblems:
    """Logs each problem once when it begins, and once when it is resolved."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ongoing: dict[str, str] = {}

    def begin(self, about: str, reason: str) -> None:
        if self._ongoing.get(about) != reason:
            self._ongoing[about] = reason
            self._log("problem", about=about, why=reason)

    def is_ongoing(self, about: str) -> bool:
        return about in self._ongoing

    def end(self, about: str) -> None:
        if self._ongoing.pop(about, None) is not None:
            self._log("problem resolved", about=about)


class AgentLog:
    """The log on a stream. `format` is `auto`, `json` or `text`; `secrets` are never written."""

    def __init__(
        self,
        format: str = "auto",
        *,
        level: Level = "info",
        secrets: Collection[str] = (),
        stream: TextIO | None = None,
    ) -> None:
        self._stream = stream
        self._format = format
        self._least = LEVELS[level]
        self._secrets: list[str] = []
        self.hide(secrets)
        self._unwritten = b""  # of a line that was written in part
        self._dropped = 0  # lines that were not written

    def hide(self, secrets: Collection[str]) -> None:
        """Never write these, either."""
        long_enough = (secret for secret in secrets if len(secret) >= LEAST_SECRET)
        known = {*self._secrets, *long_enough}  # the longest first: one may be part of another
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, what: str, /, **facts: Any) -> None:
        level = level_of(what, facts)
        if LEVELS[level] > self._least:
            return
        stream = self._stream if self._stream is not None else sys.stderr
        if stream is None:
            return
        named = {NAMES.get(name, name): value for name, value in facts.items()}
        try:
            if self._dropped and self._write(stream, _dropped_line(self._dropped)):
                self._dropped = 0
            self._dropped += not self._write(stream, {"event": what, "level": level, **named})
        except (OSError, ValueError):  # a closed or full stream is no reason to stop
            self._dropped += 1

    def _write(self, stream: TextIO, fields: dict[str, Any]) -> bool:
        """Write a line; return whether any of it was written. A reader that does not read is waited
        for once, for a moment."""
        patience = 0 if self._dropped or self._unwritten else PATIENCE_MS
        if self._unwritten:
            self._unwritten = _write(stream, self._unwritten, patience)
        if self._unwritten:
            return False
        line = self._line(stream, fields).encode(errors="backslashreplace")
        rest = _write(stream, line, patience)
        self._unwritten = b"" if rest == line else rest
        return rest != line

    def _line(self, stream: TextIO, fields: dict[str, Any]) -> str:
        at = from_timestamp(wall_us() / 1_000_000)
        level = fields["level"]
        fields = {key: self._clean(key, value) for key, value in fields.items() if _is_set(value)}
        as_text = self._format == "text" or (self._format == "auto" and stream.isatty())
        text = _text(at, fields) if as_text else _json(at, fields)
        return f"{_priority(stream, level)}{text}\n"

    def _clean(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            return _shortened(key, self.without_secrets(value))
        if isinstance(value, list | tuple):
            return [self._clean(key, item) for item in value]
        if isinstance(value, dict):
            return {name: self._clean(key, item) for name, item in value.items()}
        return value

    def without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        if "fw_" in text:
            text = _TOKEN.sub(rf"fw_\1_{_HIDDEN}", text)
        return _PASSWORD.sub(_HIDDEN, text) if "@" in text else text


def secrets_in(options: Any, *, secret: bool = False) -> set[str]:
    """Return the texts among a hook's options that are secrets, by the names they have there. A URL
    counts: most of those that take messages contain a key."""
    if isinstance(options, str):
        return {options} if secret else set()
    if isinstance(options, dict):
        values = [(secret or bool(_SECRET.search(str(key))), item) for key, item in options.items()]
        return {text for hide, item in values for text in secrets_in(item, secret=hide)}
    if isinstance(options, list | tuple):
        return {text for item in options for text in secrets_in(item, secret=secret)}
    return set()


def _is_set(value: Any) -> bool:
    return value is not None and value != "" and value != () and value != {}


def _shortened(key: str, value: str) -> str:
    """Shorten a long value to its beginning, or a command's output to its end, which has the
    reason of a failure."""
    if key == OUTPUT:
        return value if len(value) <= MAX_OUTPUT else _HIDDEN + value[1 - MAX_OUTPUT :]
    return value if len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + _HIDDEN


def _json(at: datetime, fields: dict[str, Any]) -> str:
    first = {
        "timestamp": at.isoformat().replace("+00:00", "Z"),
        "level": fields.pop("level"),
        "event": fields.pop("event"),
    }
    return escaped(_encode({**first, **fields}).decode())


def _text(at: datetime, fields: dict[str, Any]) -> str:
    what, level = fields.pop("event"), fields.pop("level")
    prefix = "" if level == "info" else f"{level}: "
    rest = "".join(f"  {key}={_value(value)}" for key, value in fields.items())
    return visible(f"{at:%Y-%m-%d %H:%M:%SZ}  {prefix}{what}{rest}")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value if value and not set(value) & set(" \"'=") else repr(value)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _priority(stream: TextIO, level: str) -> str:
    """Return the prefix by which systemd knows the level; empty unless the stream goes to its
    journal."""
    journal = os.environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(stream.fileno()) if journal else None
    except (OSError, ValueError):
        return ""
    is_journal = status is not None and journal == f"{status.st_dev}:{status.st_ino}"
    return f"<{LEVELS[level]}>" if is_journal else ""


def _dropped_line(lines: int) -> dict[str, Any]:
    return {
        "event": "log lines were dropped because nothing read them",
        "level": "warning",
        "lines": lines,
    }


def _write(stream: TextIO, line: bytes, patience: int) -> bytes:
    """Return what of the line could not be written."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file
        number = -1
    if number < 0 or not hasattr(select, "poll"):
        stream.write(line.decode())
        stream.flush()
        return b""
    ready = select.poll()
    ready.register(number, select.POLLOUT)
    while line and ready.poll(patience):
        line = line[os.write(number, line[:PIECE]) :]
    return line
