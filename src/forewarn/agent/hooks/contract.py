"""One run of a hook, as its program sees it: what is said on standard input and in the environment,
how much time is left, and what is kept from prepare to undo. Knows no kind."""

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

MAX_INPUT = 1 << 20  # bytes on standard input
MARGIN = 1.0  # seconds that are kept for saying what happened, before the agent ends the command
FOREVER = 86_400.0  # seconds; where nobody says how much is left

T = TypeVar("T")


class Failure(Exception):
    """It could not be done; the text says why, and what to do."""


class Misused(Failure):
    """It was asked in a way that is never right; asking again will not help."""


class Event(msgspec.Struct, frozen=True):
    id: str
    type: str
    status: str = ""
    resources: list[str] = []
    not_before: str | None = None
    description: str = ""
    source: str = ""
    duration: float | None = None


class Call(msgspec.Struct, frozen=True):
    hook: str
    stage: Stage
    event: Event
    attempt: int = 1
    rule: str = ""
    machine: str = ""
    mine: bool = False
    seconds_left: float | None = None


class Run:
    """A call, when it must be over, and the hook's own directory."""

    def __init__(self, call: Call, body: bytes, environ: Mapping[str, str]) -> None:
        self.call = call
        self.body = body
        self._state = environ.get("FOREWARN_STATE", "")
        self.end = guard.monotonic() + _left(call, environ)  # by the guard's clock

    def left(self) -> float:
        """Seconds in which something may still be tried."""
        return max(0.0, self.end - guard.monotonic())

    def at_most(self, seconds: float) -> float:
        """Until when, by the guard's clock, if it may take so long."""
        return min(self.end, guard.monotonic() + seconds)

    def keep(self, name: str, value: object) -> None:
        """So that undo finds it, also after a loss of power."""
        durable.write(self._path(name), msgspec.json.encode(value))

    def kept(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise Failure(f"{self._path(name)} is not as it was written: {error}") from None

    def forget(self, name: str) -> None:
        durable.remove(self._path(name))

    def has_state(self) -> bool:
        return bool(self._state) and Path(self._state).is_dir()

    def key(self) -> str:
        """The same for every attempt at this stage of this event by this hook, and no other."""
        import hashlib  # a kind that only acts here does without

        call = self.call
        parts = (call.machine, call.hook, call.event.id, call.stage)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def _path(self, name: str) -> Path:
        if not self.has_state():
            raise Misused("FOREWARN_STATE names no directory, where undo would find what was")
        return Path(self._state) / f"{name}.json"


def received(environ: Mapping[str, str] = os.environ) -> Run:
    """The call that this process was started for."""
    body = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(body) > MAX_INPUT:
        raise Misused(f"there are more than {MAX_INPUT} bytes on standard input")
    try:
        call = msgspec.json.decode(body, type=Call)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Misused(f"standard input is not what a hook is given: {error}") from None
    return Run(call, body.strip(), environ)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def private(path: str, what: str) -> bytes:
    """What is in a file that has a secret in it. The error never says what."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure(f"{what} {path} cannot be read: {error.strerror}") from None


def exposed(path: str, what: str) -> list[str]:
    """What is wrong with a file that has a secret in it."""
    try:
        mode = Path(path).stat().st_mode
        Path(path).open("rb").close()
    except OSError as error:
        return [f"{what} {path} cannot be read: {error.strerror}"]
    if os.name == "posix" and mode & 0o007:
        return [f"{what} {path} is open to everybody on this machine; chmod o= {path}"]
    return []


def _left(call: Call, environ: Mapping[str, str]) -> float:
    said = environ.get("FOREWARN_SECONDS_LEFT", "")
    left = float(said) if said.isdecimal() else call.seconds_left
    return max(0.0, (FOREVER if left is None else left) - MARGIN)
