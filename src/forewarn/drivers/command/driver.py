"""The driver `command`: an operator's program carries events out.

The program is called with a verb as its last argument and the task as JSON on standard input; its
exit code is the answer. How a program is run is `support/program.py`; what follows from an answer
is decided by the service.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forewarn.core import Time
from forewarn.core.time import SECOND, Duration
from forewarn.drivers.command.options import CommandOptions, Program
from forewarn.drivers.command.slots import Slots
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    DriverContext,
    DriverOptions,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support.convert import convert
from forewarn.support.files.task import NotStarted, StillAtWork, task_input
from forewarn.support.guardian import Guardian
from forewarn.support.instants import to_datetime
from forewarn.support.process_mark import mark
from forewarn.support.program import (
    CUT,
    Ended,
    ProgramUnusable,
    find_program,
    inherited_environment,
    run,
    visible,
)
from forewarn.support.suggest import value_problem
from forewarn.support.text import in_words, listing, parse_duration

DONE, AGAIN, FAILED, HAPPENED, UNKNOWN = 0, 10, 20, 30, 40  # exit codes of a program
# The verb for work on an empty host, instead of the one for an event.
WORK_VERBS = {"check": "check-work", "perform": "work", "observe": "observe-work"}
ASK_AGAIN: Duration = 30 * SECOND  # before the next call after AGAIN, unless the program says when
CHECK_TIMEOUT = 30.0  # seconds of guard time: a caller of the API is waiting for it
PROGRESS = b'"progress"'  # in a line of output that says how far the program is
MAX_REASON = 300  # characters of the last line of output that are given as the reason


_Default = TypeVar("_Default", Duration, None)


class _Answer(msgspec.Struct, frozen=True):
    """The JSON object that the last line of standard output may be."""

    after: str | float | None = None
    moved: dict[str, str] = {}
    unsuitable: tuple[str, ...] = ()
    away: Any = {}  # checked by the service: a bad measurement holds no event


class _Invalid(Exception):
    """The last line is an answer that cannot be used."""


class CommandDriver(Driver):
    """Runs a program for each call.

    A task is a file in `task_files` while a program works on it; without that directory, a service
    that was killed cannot know that an earlier program is still running.
    """

    def __init__(
        self,
        program: Program,
        task_files: Path | None = None,
        may_act: Callable[[], bool] = lambda: True,
        service_pid: int = 0,
        watch_lease: Callable[[Callable[[float], None]], None] | None = None,
        on_progress: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._program = program
        self._task_files = task_files
        self._may_act = may_act
        self._on_progress = on_progress
        self._mark = mark(service_pid or os.getpid())
        self._slots = Slots(program.max_at_once)
        self._guardian: Guardian | None = None
        if watch_lease is not None:
            self._guardian = Guardian(service_pid or os.getpid())
            watch_lease(self._guardian.renew)

    @property
    def repeatable(self) -> bool:
        return self._program.repeatable

    @property
    def works(self) -> bool:
        return self._program.work

    def problem(self) -> str:
        try:
            find_program(self._program.words)
        except ProgramUnusable:
            return "its program cannot be started"
        return ""

    def reload(self, options: DriverOptions) -> bool:
        """Use another program from the next call on; programs that are running go on."""
        if not isinstance(options, CommandOptions):
            return False
        self._program = options.resolve()
        self._slots.resize(self._program.max_at_once)
        return True

    async def aclose(self) -> None:
        if self._guardian is not None:
            self._guardian.close()

    async def check(self, task: Task) -> Checked:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                ended = await self._call("check", task)
        except TimeoutError:
            return Veto(f"the check itself failed: no answer within {CHECK_TIMEOUT:g} s")
        except (NotStarted, OSError) as error:
            return Veto(f"the check itself failed: {error}")
        if ended.timed_out or ended.status not in (DONE, FAILED):
            return Veto(f"the check itself failed: {self._how(ended)}")
        return (
            Ok()
            if ended.status == DONE
            else Veto(_reason(ended) or "the program refused, and gave no reason")
        )

    async def observe(self, task: Task) -> Observed:
        try:
            ended = await self._call("observe", task)
            if ended.timed_out:
                return Later(None, self._how(ended))
            match ended.status:
                case 0 | 30:
                    return Happened(_moved(task, ended), *_record(ended), _answer(ended).away)
                case 10 | 20:
                    return NotYet()
                case 40:
                    return Unknown(self._how(ended), *_record(ended))
            after = _after(ended, None)
            return Later(None if after is None else task.now + after, self._how(ended))
        except (NotStarted, StillAtWork, OSError) as error:
            return Later(None, str(error))
        except _Invalid as error:
            return Unknown(str(error), *_record(ended))

    async def perform(self, task: Task) -> Performed:
        try:
            ended = await self._call("perform", task)
            if ended.timed_out:
                return Unknown(self._how(ended), *_record(ended))
            match ended.status:
                case 0 | 30:
                    return Done(_moved(task, ended), *_record(ended), _answer(ended).away)
                case 10:
                    return Again(task.now + _after(ended, ASK_AGAIN), *_record(ended))
                case 20:
                    why = _reason(ended) or self._how(ended)
                    return Failed(why, *_record(ended), unsuitable=_answer(ended).unsuitable)
        except NotStarted as error:
            return Failed(str(error))
        except (StillAtWork, OSError) as error:
            return Unknown(str(error))
        except _Invalid as error:
            return Unknown(str(error), *_record(ended))
        return Unknown(self._how(ended), *_record(ended))

    async def _call(self, verb: str, task: Task) -> Ended:
        """Run the program as soon as a slot is free. Work on a host has verbs of its own, so that a
        program that does not know of it does not take it for an event without machines."""
        if task.work:
            verb = WORK_VERBS[verb]
        if task.work and not self.works:
            raise NotStarted("the program is not one that works on hosts: command.work is not set")
        file = (
            self._task_files / task.event
            if self._task_files and not verb.startswith("check")
            else None
        )
        program = self._program
        limit = program.timeout
        slot = self._slots.take(task.group)
        async with slot, task_input(encode_task(verb, task), file, limit) as stdin:
            if not verb.startswith("check") and not self._may_act():  # it may have waited for long
                raise NotStarted("this control node does not decide any more")
            self._start_guardian()
            environment = _environment(verb, task) | self._mark

            def report(output: bytearray) -> None:
                if progress := _latest_progress(output):
                    self._on_progress(task.event, progress)

            words = [*program.words, verb]
            return await run(words, stdin, environment, limit, on_lines=report)

    def _start_guardian(self) -> None:
        try:
            if self._guardian is not None:
                self._guardian.start()
        except OSError as error:
            raise NotStarted(f"what would end the program could not be started: {error}") from error

    def _how(self, ended: Ended) -> str:
        """Return how the program ended, with the last line of its output if there is one."""
        if ended.timed_out:
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


def encode_task(verb: str, task: Task) -> bytes:
    """Return the task as a program gets it: one JSON object, times in RFC 3339."""
    fields: dict[str, Any] = {"verb": verb, **msgspec.to_builtins(task)}
    del fields["known_hosts"]  # only for checking the answer
    if task.work:
        fields["type"] = ""
    fields["started_at"] = None if task.started_at is None else _rfc3339(task.started_at)
    fields["now"] = _rfc3339(task.now)
    return msgspec.json.encode(fields) + b"\n"


def _environment(verb: str, task: Task) -> dict[str, str]:
    variables = {
        "FOREWARN_EVENT": task.event,
        "FOREWARN_VERB": verb,
        "FOREWARN_TYPE": "" if task.work else task.type.value,
        "FOREWARN_HOST": task.host,
        "FOREWARN_GROUP": task.group,
        "FOREWARN_TICKET": task.ticket,
        "FOREWARN_ROLLOUT": task.rollout,
        "FOREWARN_STEP": task.step,
        "FOREWARN_FENCE": str(task.fence),
    }
    # A variable cannot contain a NUL; in the JSON object it is escaped.
    plain = {name: value.replace("\0", "") for name, value in variables.items()}
    return inherited_environment() | plain


def _rfc3339(at: Time) -> str:
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def _latest_progress(output: bytearray) -> str:
    """Return what the last whole line about progress says; empty: there is none."""
    at = output.rfind(PROGRESS, 0, output.rfind(b"\n") + 1)
    line = output[output.rfind(b"\n", 0, at) + 1 : output.find(b"\n", at)] if at >= 0 else b""
    return _progress(bytes(line))


def _progress(line: bytes) -> str:
    progress = (_object(line) or {}).get("progress") if PROGRESS in line else None
    return visible(progress.encode()) if isinstance(progress, str) else ""


def _record(ended: Ended) -> tuple[str, str]:
    """Return what the history keeps: the output without progress and answer, and the answer."""
    lines = [line for line in ended.output.splitlines() if not _progress(line.encode())]
    if not (_object(ended.answer) or {}).keys() & set(_Answer.__struct_fields__):
        return "\n".join(lines), ""
    answer = visible(ended.answer)
    for number, line in reversed(list(enumerate(lines))):
        # The beginning of a long answer may have been cut off.
        cut = line.startswith(CUT) and answer.endswith(line.removeprefix(CUT))
        if line.strip() == answer or cut:
            del lines[number]
            break
    return "\n".join(lines).strip(), answer


def _reason(ended: Ended) -> str:
    """Return the last line of output that is not a JSON object."""
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    while lines and _object(lines[-1].encode()) is not None:
        lines.pop()
    return lines[-1][:MAX_REASON] if lines else ""


def _object(line: bytes) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _answer(ended: Ended) -> _Answer:
    """Return what the last line says, if it is a JSON object; other lines are only output."""
    fields = _object(ended.answer)
    if fields is None:
        return _Answer()
    try:
        return convert(fields, _Answer)
    except msgspec.ValidationError as error:
        problem = value_problem(str(error), fields, _Answer)
        place = "".join(f"{step}: " for step in problem.steps)
        raise _Invalid(f"the program's answer cannot be used: {place}{problem.message}") from error


def _after(ended: Ended, default: _Default) -> Duration | _Default:
    after = _answer(ended).after
    if after is None:
        return default
    try:
        return parse_duration(str(after))
    except ValueError as error:
        raise _Invalid(f"the program's answer cannot be used: after: {error}") from error


def _moved(task: Task, ended: Ended) -> dict[str, str]:
    moved = _answer(ended).moved
    relocates = task.type.traits.relocates and not task.in_place
    if moved and not relocates and not task.moves:
        raise _Invalid(
            f"the program says that machines have moved, but a {task.type.value} moves none;"
            " only a Redeploy or a live migration does"
        )
    machines = {machine.name: machine for machine in task.machines}
    for name, host in moved.items():
        machine = machines.get(name)
        if machine is None:
            raise _Invalid(
                f"the program says that machine '{name}' has moved;"
                f" the event is about {listing(list(machines))}"
            )
        if host not in task.known_hosts and host != machine.host:
            raise _Invalid(
                f"the program says that '{name}' is on host '{host}' now, which is no host of the"
                f" fleet; its target is '{machine.target}'"
            )
    return moved


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _make(options: CommandOptions, context: DriverContext) -> CommandDriver:
    return CommandDriver(
        options.resolve(),
        context.file("programs"),
        context.may_act,
        context.service_pid,
        context.watch_lease,
        context.on_progress,
    )


DRIVER = DriverType(_make, CommandOptions)
