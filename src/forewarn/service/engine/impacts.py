"""What a driver has done to machines: the impact lines of a trace, and how long machines stood
still, as far as it was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from forewarn.core.commands import Done, Failed, Outcome
from forewarn.core.time import SECOND
from forewarn.drivers.port import Impact, Task
from forewarn.support.limits import MAX_DURATION_SECONDS

DECIMALS = 6  # of the seconds that are kept
MAX_SHOWN = 100  # characters of a value that cannot be used


def measured(away: object, machines: Collection[str]) -> tuple[dict[str, float], list[str]]:
    """Return for how many seconds machines stood still, and what cannot be used of that."""
    if not isinstance(away, Mapping):
        return {}, [f"{_short(away)} is not a mapping of machines to seconds"]
    good, bad = {}, []
    for name, seconds in away.items():
        if name not in machines:
            bad.append(f"{_short(name)} is not a machine of the event")
        elif isinstance(seconds, bool) or not isinstance(seconds, int | float):
            bad.append(f"{name}: {_short(seconds)} is not a number of seconds")
        elif not 0 <= seconds <= MAX_DURATION_SECONDS:
            bad.append(f"{name}: {_short(seconds)} is not from 0 to {MAX_DURATION_SECONDS} seconds")
        else:
            good[name] = round(float(seconds), DECIMALS)
    return good, bad


def with_measurements(outcome: Outcome, away: dict[str, float]) -> Outcome:
    """Return an outcome with these measurements, which its answer names as well."""
    if not isinstance(outcome, Done | Failed):
        return outcome
    return msgspec.structs.replace(outcome, away=away, answer=_naming(outcome.answer, away))


def _naming(answer: str, away: dict[str, float]) -> str:
    """Return the answer of a driver with its measurements, unless it names them itself."""
    if not away:
        return answer
    try:
        fields: dict[str, Any] = msgspec.json.decode(answer or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return answer  # it is no JSON object, and kept as it is
    return msgspec.json.encode({"away": away} | fields).decode()


def _short(value: object) -> str:
    return repr(value)[:MAX_SHOWN]


def impacts(
    task: Task, away: Mapping[str, float], machines: Iterable[str] | None, without: Iterable[str]
) -> tuple[Impact, ...]:
    """Return the impact of each event that a task carries out, on these of its machines (None:
    all), `without` some."""
    left_out = frozenset(without)
    wanted = None if machines is None else frozenset(machines)
    parts = (
        {part.event: part.machines for part in task.parts}
        if task.parts
        else {task.event: tuple(machine.name for machine in task.machines)}
    )
    found = []
    for event, names in parts.items():
        some = tuple(
            name for name in names if name not in left_out and (wanted is None or name in wanted)
        )
        seconds = max((away[name] for name in some if name in away), default=task.duration)
        if some:
            found.append(Impact(task.now / SECOND, event, task.type.value, some, seconds))
    return tuple(found)
