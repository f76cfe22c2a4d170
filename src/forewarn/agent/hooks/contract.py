"""A run of a built-in hook: its input and environment, the time that is left, and what it saves
from prepare to undo. Independent of the kind of hook."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from forewarn.agent.hooks.options import Stage
from forewarn.agent.system import durable
from forewarn.support import guard
from forewarn.support.files import secret
from forewarn.support.files.replace import replace

MAX_INPUT = 1 << 20  # bytes on standard input
MARGIN = 1.0  # seconds reserved for reporting the outcome before the agent ends the command
FOREVER = 86_400.0  # seconds that a run may take if it has no limit

T = TypeVar("T")


class Failure(Exception):
    """The hook failed; the message says why, and what to do."""


class Misused(Failure):
    """The hook was called wrongly; another attempt will not help."""


class Event(msgspec.Struct, frozen=True):
    """The event, as the agent passes it to hooks."""

    id: str
    type: str
    status: str = ""
    resources: list[str] = []
    not_before: str | None = None
    description: str = ""
    source: str = ""
    duration: float | None = None


class Call(msgspec.Struct, frozen=True):
    """The content of standard input: which hook and stage to run, and for which event."""

    hook: str
    stage: Stage
    event: Event
    attempt: int = 1
    rule: str = ""
    machine: str = ""
    mine: bool = False
    seconds_left: float | None = None


class Run:
    """A call, the time by which it has to end, and the hook's own directory."""

    def __init__(self, call: Call, body: bytes, environ: Mapping[str, str]) -> None:
        self.call = call
        self.body = body
        self._state = environ.get("FOREWARN_STATE", "")
        self.end = guard.monotonic() + _seconds_left(call, environ)  # in guard time

    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self.end - guard.monotonic())

    def at_most(self, seconds: float) -> float:
        """Return the guard time after so many seconds, or the end of the run if that is earlier."""
        return min(self.end, guard.monotonic() + seconds)

    def save(self, name: str, value: object) -> None:
        """Save a value for undo, durably."""
        replace(self._path(name), msgspec.json.encode(value))

    def load(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise Failure(f"{self._path(name)} is damaged: {error}") from None

    def forget(self, name: str) -> None:
        durable.remove(self._path(name))

    def has_state(self) -> bool:
        return bool(self._state) and Path(self._state).is_dir()

    def key(self) -> str:
        """Return a key for this stage of this event by this hook on this machine, which is the same
        for every attempt."""
        import hashlib  # most kinds do not need it

        call = self.call
        parts = (call.machine, call.hook, call.event.id, call.stage)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def _path(self, name: str) -> Path:
        if not self.has_state():
            raise Misused("FOREWARN_STATE is not a directory; the hook saves there what undo needs")
        return Path(self._state) / f"{name}.json"


def read_run(environ: Mapping[str, str] = os.environ) -> Run:
    """Read the call that this process was started for."""
    body = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(body) > MAX_INPUT:
        raise Misused(f"standard input has more than {MAX_INPUT} bytes")
    try:
        call = msgspec.json.decode(body, type=Call)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Misused(f"standard input is not a valid call of a hook: {error}") from None
    return Run(call, body.strip(), environ)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def read_secret(path: str, what: str) -> bytes:
    """Return the content of a file with a secret, which never appears in an error."""
    try:
        return secret.read_secret(path, what)
    except secret.SecretUnreadable as error:
        raise Failure(str(error)) from None


def _seconds_left(call: Call, environ: Mapping[str, str]) -> float:
    text = environ.get("FOREWARN_SECONDS_LEFT", "")
    left = float(text) if text.isdecimal() else call.seconds_left
    return max(0.0, (FOREVER if left is None else left) - MARGIN)
