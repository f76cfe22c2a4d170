"""Answers of driver processes: which are accepted, and what several of them mean together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from forewarn.core.time import MAX_TIME
from forewarn.drivers.hosts.messages import MAX_TEXT, Answer, Verb
from forewarn.drivers.port import (
    Again,
    Done,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Performed,
    Running,
    Task,
    TaskMachine,
    Unknown,
    Veto,
)

T = TypeVar("T")

MAX_OUTPUT = 4_096  # characters of output, of which the end is kept


def refused(verb: Verb, why: str) -> Answer:
    """Return the answer to a call that was not carried out."""
    match verb:
        case Verb.CHECK:
            return Veto(why)
        case Verb.PERFORM:
            return Failed(why)
        case Verb.OBSERVE:
            return Later(None, why)


def shortened(answer: Answer) -> Answer:
    """Return an answer with texts that are not too long."""
    changes = {}
    for key in ("why", "progress"):
        if len(text := getattr(answer, key, "")) > MAX_TEXT:
            changes[key] = text[:MAX_TEXT]
    if len(output := getattr(answer, "output", "")) > MAX_OUTPUT:
        changes["output"] = output[-MAX_OUTPUT:]
    if len(getattr(answer, "answer", "")) > MAX_OUTPUT:
        changes["answer"] = ""  # a part of a JSON object is none
    return msgspec.structs.replace(answer, **changes) if changes else answer


def checked(answer: Answer, task: Task) -> Answer:
    """Return an answer of a process to a task, or Unknown if it says something about machines that
    are not of the task, or that they are where they cannot be."""
    answer = shortened(answer)
    if problem := _problem(answer, task):
        return Unknown(f"the answer of its driver process cannot be used: {problem}")
    if not isinstance(answer, Done | Failed | Happened):
        return answer
    names = {machine.name for machine in task.machines}
    away = {name: seconds for name, seconds in answer.away.items() if name in names}
    return msgspec.structs.replace(answer, away=away)


def _problem(answer: Answer, task: Task) -> str:
    if isinstance(answer, Again | Later) and not 0 <= (answer.at or 0) <= MAX_TIME:
        return "it names a time that there is not"
    if isinstance(answer, Running) and not 0 <= answer.after <= MAX_TIME:
        return "it names a duration that there is not"
    machines = {machine.name: machine for machine in task.machines}
    moved = answer.moved if isinstance(answer, Done | Failed | Happened) else {}
    if moved and not moves(task):
        return f"it says that machines have moved, but a {task.type.value} moves none"
    for name, host in moved.items():
        machine = machines.get(name)
        if machine is None:
            return f"it was not asked about machine '{name[:MAX_TEXT]}', which it says has moved"
        if host not in hosts_of(machine):
            return (
                f"it says that '{name}' is on host '{host[:MAX_TEXT]}'; its target is"
                f" '{machine.target}'"
            )
    if isinstance(answer, Failed):
        offered = {host for machine in task.machines for host in hosts_of(machine)}
        if not offered.issuperset(answer.unsuitable):
            return "it calls hosts unsuitable that no machine is to move to"
    return ""


def moves(task: Task) -> bool:
    return task.moves or (not task.work and not task.in_place and task.type.traits.relocates)


def hosts_of(machine: TaskMachine) -> set[str]:
    """Return the hosts that a machine may be on when it has been moved."""
    return {machine.host, machine.target, *machine.alternatives} - {""}


def performed(answers: Sequence[Performed]) -> Performed:
    """Return what the answers to the parts of a task mean for the whole."""
    if unknown := [answer for answer in answers if isinstance(answer, Unknown)]:
        return Unknown(_joined(unknown, "why"), _joined(answers, "output"))
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    over = [answer for answer in answers if isinstance(answer, Done | Failed)]
    if failed:
        return Failed(
            _joined(failed, "why"),
            _joined(answers, "output"),
            unsuitable=tuple(dict.fromkeys(h for answer in failed for h in answer.unsuitable)),
            moved=_merged(answer.moved for answer in over),
            away=_merged(answer.away for answer in over),
        )
    # Those that are at work are asked again together: all of them may be.
    if again := [answer for answer in answers if isinstance(answer, Again)]:
        return Again(min(answer.at for answer in again), _joined(answers, "output"))
    if running := [answer for answer in answers if isinstance(answer, Running)]:
        after = min(answer.after for answer in running)
        return Running(after, _joined(running, "progress"))
    return Done(
        _merged(answer.moved for answer in over),
        _joined(over, "output"),
        _only(over, "answer"),
        _merged(answer.away for answer in over),
    )


def observed(answers: Sequence[Observed]) -> Observed:
    """The same for what is observed."""
    happened = [answer for answer in answers if isinstance(answer, Happened)]
    if later := [answer for answer in answers if isinstance(answer, Later)]:
        times = [answer.at for answer in later if answer.at is not None]
        return Later(min(times, default=None), _joined(later, "why"))
    if unknown := [answer for answer in answers if isinstance(answer, Unknown)]:
        return Unknown(_joined(unknown, "why"), _joined(answers, "output"))
    if any(isinstance(answer, NotYet) for answer in answers):
        return NotYet()
    return Happened(
        _merged(answer.moved for answer in happened),
        _joined(happened, "output"),
        _only(happened, "answer"),
        _merged(answer.away for answer in happened),
    )


def _joined(answers: Iterable[msgspec.Struct], key: str) -> str:
    texts = (getattr(answer, key, "") for answer in answers)
    return ("\n" if key == "output" else "; ").join(dict.fromkeys(text for text in texts if text))


def _only(answers: Collection[msgspec.Struct], key: str) -> str:
    """Return the text of the only answer; several JSON objects are none."""
    return next((getattr(answer, key) for answer in answers if len(answers) == 1), "")


def _merged(maps: Iterable[dict[str, T]]) -> dict[str, T]:
    return {key: value for one in maps for key, value in one.items()}
