"""An operator's own program carries events out: what it is told, and what its exit codes mean.

It is called with a verb as its last argument and the task as JSON on standard input. How a
program is run is `support/program.py`; what follows from an answer is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from forewarn.core import Time
from forewarn.core.time import SECOND, Duration
from forewarn.drivers.command.slots import Slots
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Failed,
    Happened,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
    Unknown,
    Veto,
)
from forewarn.support.program import Ended, ProgramUnusable, found, inherited, run
from forewarn.support.task_file import NotStarted, StillAtWork, paper
from forewarn.support.text import in_words, listing, parse_duration

DONE, AGAIN, FAILED, HAPPENED, UNKNOWN = 0, 10, 20, 30, 40  # what a program ends with
ASK_AGAIN: Duration = 30 * SECOND  # after which a program that said AGAIN is asked, if it says none
CHECK_TIMEOUT = 30.0  # seconds of guard time: somebody waits to hear whether it is announced
MAX_REASON = 300  # characters of an answer's last line that are given as the reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]  # the program and its first arguments
    timeout: float = 600.0  # seconds of guard time that one call may take
    repeatable: bool = False  # may it be asked again when nobody knows whether it happened?
    max_at_once: int = 256  # programs that run at a time


class _Answer(msgspec.Struct, frozen=True):
    """What the last line of standard output may say beyond the exit code."""

    after: str | float | None = None
    moved: dict[str, str] = {}


class _Invalid(Exception):
    """The last line is an answer that cannot be used."""


class CommandDriver:
    """`papers` is where a task lies while a program is at work on it; without it, a service
    that was killed cannot know that an earlier program still runs."""

    def __init__(self, program: Program, papers: Path | None = None) -> None:
        self._program = program
        self._papers = papers
        self._room = Slots(program.max_at_once)

    def use(self, program: Program) -> None:
        """Another from the next call on; one that runs goes on as it was started."""
        self._program = program
        self._room.resize(program.max_at_once)

    @property
    def repeatable(self) -> bool:
        return self._program.repeatable

    def usable(self) -> bool:
        """Could it be started at all, as things are?"""
        try:
            found(self._program.words)
        except ProgramUnusable:
            return False
        return True

    async def check(self, task: Task) -> Checked:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                ended = await self._call("check", task)
        except TimeoutError:
            return Veto(f"the check itself failed: no answer within {CHECK_TIMEOUT:g} s")
        except (NotStarted, OSError) as error:
            return Veto(f"the check itself failed: {error}")
        if ended.late or ended.status not in (DONE, FAILED):
            return Veto(f"the check itself failed: {self._how(ended)}")
        return Ok() if ended.status == DONE else Veto(_reason(ended) or "the program said no")

    async def observe(self, task: Task) -> Observed:
        try:
            ended = await self._call("observe", task)
            if ended.late:
                return Unknown(self._how(ended), ended.said)
            if ended.status in (DONE, HAPPENED):
                return Happened(_moved(task, ended), ended.said)
            if ended.status in (AGAIN, FAILED):
                return NotYet()
        except (NotStarted, StillAtWork, OSError) as error:
            return Unknown(str(error))
        except _Invalid as error:
            return Unknown(str(error), ended.said)
        return Unknown(self._how(ended), ended.said)

    async def perform(self, task: Task) -> Performed:
        try:
            ended = await self._call("perform", task)
            if ended.late:
                return Unknown(self._how(ended), ended.said)
            match ended.status:
                case 0 | 30:
                    return Done(_moved(task, ended), ended.said)
                case 10:
                    return Again(task.now + _after(ended), ended.said)
                case 20:
                    return Failed(_reason(ended) or self._how(ended), ended.said)
        except NotStarted as error:
            return Failed(str(error))
        except (StillAtWork, OSError) as error:
            return Unknown(str(error))
        except _Invalid as error:
            return Unknown(str(error), ended.said)
        return Unknown(self._how(ended), ended.said)

    async def _call(self, verb: str, task: Task) -> Ended:
        """When there is room."""
        file = self._papers / task.event if self._papers and verb != "check" else None
        program = self._program
        limit = program.timeout
        room = self._room.entered(task.group)
        async with room, paper(told(verb, task), file, limit) as stdin:
            return await run([*program.words, verb], stdin, _environment(verb, task), limit)

    def _how(self, ended: Ended) -> str:
        """How it ended, in words, with its last line if there is one."""
        if ended.late:
            limit = in_words(round(self._program.timeout * SECOND))
            how = f"the program did not end within {limit} and was killed"
        elif ended.status < 0:
            how = f"the program was killed by {_signal_name(-ended.status)}"
        elif ended.status == UNKNOWN:
            how = f"the program cannot tell (exit code {UNKNOWN})"
        else:
            how = f"the program ended with exit code {ended.status}"
        reason = _reason(ended)
        return f"{how}: {reason}" if reason else how


def told(verb: str, task: Task) -> bytes:
    """The task as a program gets it: one JSON object, instants as RFC 3339."""
    said: dict[str, Any] = {"verb": verb, **msgspec.to_builtins(task)}
    del said["known_hosts"]  # for checking what it answers
    said["started_at"] = None if task.started_at is None else _rfc3339(task.started_at)
    said["now"] = _rfc3339(task.now)
    return msgspec.json.encode(said) + b"\n"


def _environment(verb: str, task: Task) -> dict[str, str]:
    return inherited() | {
        "FOREWARN_EVENT": task.event,
        "FOREWARN_VERB": verb,
        "FOREWARN_TYPE": task.type.value,
    }


def _rfc3339(at: Time) -> str:
    return (_EPOCH + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")


def _reason(ended: Ended) -> str:
    """Its last line that is not an answer for us."""
    lines = [line.strip() for line in ended.said.splitlines() if line.strip()]
    while lines and _object(lines[-1].encode()) is not None:
        lines.pop()
    return lines[-1][:MAX_REASON] if lines else ""


def _object(line: bytes) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _answer(ended: Ended) -> _Answer:
    """Any other line, a JSON object for somebody else's eyes among them, is just output."""
    said = _object(ended.answer)
    if said is None:
        return _Answer()
    try:
        return msgspec.convert(said, _Answer)
    except msgspec.ValidationError as error:
        raise _Invalid(f"the program's answer cannot be used: {error}") from error


def _after(ended: Ended) -> Duration:
    after = _answer(ended).after
    if after is None:
        return ASK_AGAIN
    try:
        return parse_duration(str(after))
    except ValueError as error:
        raise _Invalid(f"the program's answer cannot be used: after: {error}") from error


def _moved(task: Task, ended: Ended) -> dict[str, str]:
    moved = _answer(ended).moved
    if moved and not task.type.traits.relocates and not task.moves:
        raise _Invalid(
            f"the program says that machines have moved, but a {task.type.value} moves none;"
            " only a Redeploy or a live migration does"
        )
    hosts = {machine.name: machine.host for machine in task.machines}
    for machine, host in moved.items():
        if machine not in hosts:
            raise _Invalid(
                f"the program says that machine '{machine}' has moved;"
                f" the event is about {listing(list(hosts))}"
            )
        if host not in task.hosts and host not in task.known_hosts and host != hosts[machine]:
            raise _Invalid(
                f"the program says that '{machine}' is on host '{host}' now;"
                f" the hosts it could be on are {listing(task.hosts)}"
            )
    return moved


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
