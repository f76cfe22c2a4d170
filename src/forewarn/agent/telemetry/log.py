"""What the agent says about itself: one line for each happening, on standard error.

JSON for programs, text on a terminal, fields as in the service's own log. Nothing that somebody
else wrote can end a line, forge one or act upon a terminal; secrets are taken out; and a log that
nobody reads never stops the agent. What is worth telling is decided by whoever tells it.
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

from forewarn.client.events import moment
from forewarn.support.guard import wall_us
from forewarn.support.text import escaped, visible

Level = Literal["debug", "info", "warning", "error"]
LEVELS: Mapping[str, int] = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # as systemd's

MAX_VALUE = 2_048  # characters of one value in a line
MAX_OUTPUT = 1_024  # characters of what a command said, its end
OUTPUT = "output"  # the field for it
LEAST_SECRET = 6  # characters; shorter ones would be found in every second word
PIECE = 4_096  # bytes that a pipe that can be written to takes without letting anybody wait
PATIENCE_MS = 50  # for a reader who is a little behind

_TOKEN = re.compile(r"fw_([0-9a-f]{8})_[A-Za-z0-9]{4,}", re.ASCII)
_PASSWORD = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*(?=@)", re.ASCII)
_SECRET = re.compile(r"(url|header|token|passw|secret|key|auth|credential)(?!.*_file$)", re.I)
_HIDDEN = "…"
_encode = msgspec.json.Encoder(enc_hook=str).encode


# Fields that the service's log has under another name; there, `event` is what happened.
NAMES = {"event": "event_id", "resources": "machines", "said": OUTPUT}

# How grave it is, where it is not just told.
GRAVE: Mapping[str, Level] = {
    "hook given up": "error",
    "hook overdue": "error",
    "not approved": "warning",
    "trouble": "warning",
}


class Tell(Protocol):
    """What happened, in a word or two, and its facts."""

    def __call__(self, what: str, **facts: Any) -> None: ...


def level_of(what: str, facts: Mapping[str, Any]) -> Level:
    return "warning" if facts.get("ok") is False else GRAVE.get(what, "info")


class AgentLog:
    """`form` is `auto`, `json` or `text`; `secrets` are never told, whoever says them."""

    def __init__(
        self,
        form: str = "auto",
        *,
        level: Level = "info",
        secrets: Collection[str] = (),
        stream: TextIO | None = None,
    ) -> None:
        self._stream = stream
        self._form = form
        self._least = LEVELS[level]
        self._secrets: list[str] = []
        self.hide(secrets)
        self._rest = b""  # of a line that was written in part
        self._lost = 0  # lines that nobody will read

    def hide(self, secrets: Collection[str]) -> None:
        """These, too; the longest first, as one may be part of another."""
        known = {*self._secrets, *(one for one in secrets if len(one) >= LEAST_SECRET)}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, what: str, **facts: Any) -> None:
        level = level_of(what, facts)
        if LEVELS[level] > self._least:
            return
        stream = self._stream if self._stream is not None else sys.stderr
        if stream is None:
            return
        named = {NAMES.get(name, name): value for name, value in facts.items()}
        try:
            if self._lost and self._written(stream, _dropped(self._lost)):
                self._lost = 0
            self._lost += not self._written(stream, {"event": what, "level": level, **named})
        except (OSError, ValueError):  # closed, full: no reason to stop
            self._lost += 1

    def _written(self, stream: TextIO, said: dict[str, Any]) -> bool:
        """Whether it was begun. A reader who does not read is waited for once, for a moment."""
        patience = 0 if self._lost or self._rest else PATIENCE_MS
        if self._rest:
            self._rest = _write(stream, self._rest, patience)
        if self._rest:
            return False
        line = self._line(stream, said).encode(errors="backslashreplace")
        rest = _write(stream, line, patience)
        self._rest = b"" if rest == line else rest
        return rest != line

    def _line(self, stream: TextIO, said: dict[str, Any]) -> str:
        at = moment(wall_us() / 1_000_000)
        fields = {key: self._cleaned(key, value) for key, value in said.items() if _says(value)}
        as_text = self._form == "text" or (self._form == "auto" and stream.isatty())
        text = _text(at, fields) if as_text else _json(at, fields)
        return f"{_priority(stream, said['level'])}{text}\n"

    def _cleaned(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            return _shortened(key, self.without_secrets(value))
        if isinstance(value, list | tuple):
            return [self._cleaned(key, one) for one in value]
        if isinstance(value, dict):
            return {name: self._cleaned(key, one) for name, one in value.items()}
        return value

    def without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        if "fw_" in text:
            text = _TOKEN.sub(rf"fw_\1_{_HIDDEN}", text)
        return _PASSWORD.sub(_HIDDEN, text) if "@" in text else text


def secrets_in(options: Any, *, secret: bool = False) -> set[str]:
    """The texts among a hook's options that are nobody's business, by the names they have there.
    An address counts: most of those that take messages have a key in them."""
    if isinstance(options, str):
        return {options} if secret else set()
    if isinstance(options, dict):
        named = [(secret or bool(_SECRET.search(str(key))), one) for key, one in options.items()]
        return {found for hide, one in named for found in secrets_in(one, secret=hide)}
    if isinstance(options, list | tuple):
        return {found for one in options for found in secrets_in(one, secret=secret)}
    return set()


def _says(value: Any) -> bool:
    return value is not None and value != "" and value != () and value != {}


def _shortened(key: str, value: str) -> str:
    """Of what a command said the end, which has the reason; of anything else the beginning."""
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
    said, level = fields.pop("event"), fields.pop("level")
    grave = "" if level == "info" else f"{level}: "
    rest = "".join(f"  {key}={_value(value)}" for key, value in fields.items())
    return visible(f"{at:%Y-%m-%d %H:%M:%SZ}  {grave}{said}{rest}")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value if value and not set(value) & set(" \"'=") else repr(value)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _priority(stream: TextIO, level: str) -> str:
    """systemd takes it off again, where standard error is a line to its journal."""
    said = os.environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(stream.fileno()) if said else None
    except (OSError, ValueError):
        return ""
    is_it = found is not None and said == f"{found.st_dev}:{found.st_ino}"
    return f"<{LEVELS[level]}>" if is_it else ""


def _dropped(lines: int) -> dict[str, Any]:
    return {
        "event": "lines of this log were dropped, since nobody read it",
        "level": "warning",
        "lines": lines,
    }


def _write(stream: TextIO, line: bytes, patience: int) -> bytes:
    """What of it could not be written."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file: somebody reads along
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
