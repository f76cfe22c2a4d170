"""Writes a scenario from a recording: the fleet, each event with its times, and faults.

The text is meant to be read and edited, so assumptions are written as comments. Expectations are
left to the reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core.events import (
    MAX_NOTICE,
    EventType,
)
from forewarn.core.time import SECOND
from forewarn.support.limits import MAX_DESCRIPTION, MAX_DURATION_SECONDS
from forewarn.testing.recording.answer_faults import AnswerFault, answer_faults
from forewarn.testing.recording.event_lives import EventLife, EventLives, event_lives
from forewarn.testing.recording.fleets import RecordedFleet, recorded_fleet
from forewarn.testing.scenarios.file.shapes import MAX_STEPS
from forewarn.wire.versions import DELETING

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*|[0-9]+[smhd][0-9smhd.]*|-?[0-9]+")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
MAX_COMMENT = 500  # characters

Item = tuple[float, list[str]]


class NoScenarioError(Exception):
    """The recording cannot be made into a scenario; the message says why."""


def scenario_text(
    lines: Sequence[Mapping[str, Any]], *, name: str = "recording", notes: Sequence[str] = ()
) -> str:
    """Return a scenario in YAML that replays a recording.

    Args:
        lines: The lines of its trace, in the order of time.
        name: The name of the scenario.
        notes: Remarks that are written into it as comments.

    Raises:
        NoScenarioError: It contains nothing to replay.
    """
    recording = event_lives(lines)
    if not recording.polls and not recording.lives:
        raise NoScenarioError("it contains no document, so there is nothing to replay")
    try:
        fleet = recorded_fleet(recording)
    except ValueError as error:
        raise NoScenarioError(str(error)) from error
    return _Writer(recording, fleet, answer_faults(lines), notes).text(_scenario_name(name))


class _Writer:
    def __init__(
        self,
        recording: EventLives,
        fleet: RecordedFleet,
        faults: Sequence[AnswerFault],
        notes: Sequence[str],
    ) -> None:
        self._recording = recording
        self._fleet = fleet
        self._faults = faults
        self._start = math.floor(recording.begins)  # whole, so that NotBefore stays a whole second
        self._notes = [*notes, *fleet.notes]
        self._names = _event_names(recording.lives)

    def text(self, name: str) -> str:
        timeline = list(self._timeline())
        faults = [self._fault(fault) for fault in self._faults]
        if not timeline:
            ends = self._at(max(self._recording.ends, self._start + 1))
            timeline = [[f"- {{at: {ends}, do: wait}}"]]
        if len(timeline) + len(faults) > MAX_STEPS:
            raise NoScenarioError(
                f"it would have {len(timeline) + len(faults)} steps, and a scenario has at most"
                f" {MAX_STEPS}; take a shorter part of the recording"
            )
        count, length = len(self._recording.lives), _length(self._recording.ends - self._start)
        events = "1 event" if count == 1 else f"{count} events"
        out = [f"# Made from a recording of {length} with {events}. A replay has new"]
        out += ["# event ids and dates. Other differences from the recording:"]
        out += [_comment(note) for note in dict.fromkeys(self._notes)] or ["# (none)"]
        out += [f"scenario: {_scalar(name)}", "about: A replay of a recording.", "fleet:"]
        out += ["  groups:", *self._fleet_lines(), f"as: {_scalar(self._fleet.under_test)}"]
        if faults:
            out += ["faults:", *(f"  - {fault}" for fault in faults)]
        out += ["timeline:", *(f"  {line}" for item in timeline for line in item)]
        if any(life.over is None for life in self._recording.lives):
            out += [f"ends: {self._at(self._recording.ends)}  # where the recording ends"]
        out += ["# Add what you expect of the program under test, for example:", "# expect:"]
        out += [f"#   - {{event: {n}, in-time: true}}" for n in list(self._names.values())[:1]]
        return "\n".join([*out, "#   - no-complaints", ""])

    def _fleet_lines(self) -> Iterator[str]:
        for group in self._fleet.groups:
            yield f"    - name: {_scalar(group.name)}"
            yield f"      kind: {group.kind}"
            if group.scale_set:
                yield f"      scale_set: {_scalar(group.scale_set)}"
            yield "      machines:"
            for machine in group.machines:
                spot = ", spot: true" if machine.spot else ""
                domain = f"update_domain: {machine.update_domain}"
                yield f"        - {{name: {_scalar(machine.name)}, {domain}{spot}}}"

    def _timeline(self) -> Iterator[list[str]]:
        items: list[Item] = []
        deleted: dict[str, float] = {}  # machines, and when they were deleted
        for life in self._recording.lives:
            for machine in life.machines:
                if deleted.get(machine, math.inf) <= life.appeared:
                    del deleted[machine]
                    at, name = self._at(life.appeared), _scalar(machine)
                    items.append((life.appeared, [f"- {{at: {at}, do: restore, machine: {name}}}"]))
            items += self._event_steps(life)
            if life.type in DELETING and life.over and not life.withdrawn:
                deleted |= dict.fromkeys(life.machines, life.over)
        return (lines for _, lines in sorted(items, key=lambda item: item[0]))

    def _event_steps(self, life: EventLife) -> Iterator[Item]:
        name = self._names[life.id]
        entry = self._schedule_entry(life)
        yield (
            life.appeared,
            [_comment(life.id), f"- at: {self._at(life.appeared)}", "  do: schedule"]
            + [f"  {key}: {_scalar(value)}" for key, value in entry.items()]
            + [f"  name: {name}"],
        )
        if life.early and life.started is not None:
            at = self._at(life.started)
            yield life.started, [f"- {{at: {at}, do: approve, event: {name}}}"]
        if life.withdrawn and life.over is not None:
            yield life.over, [f"- {{at: {self._at(life.over)}, do: cancel, event: {name}}}"]

    def _schedule_entry(self, life: EventLife) -> dict[str, Any]:
        machines = list(life.machines)
        entry: dict[str, Any] = {"type": life.type}
        entry |= {"machine": machines[0]} if len(machines) == 1 else {"machines": machines}
        source = life.source
        if source == "User" and not EventType(life.type).traits.by_user:
            self._note(life, f"the source of a {life.type} is always Platform here")
            source = "Platform"
        if source != "Platform":
            entry["source"] = source
        entry |= self._notice(life)
        if life.description:
            entry["description"] = self._description(life)
        entry |= self._duration(life, source)
        if life.started is not None and life.over is not None:
            entry["lasts"] = _length(max(0.0, life.over - _replayed_start(life, life.started)))
        if (held := self._held(life)) is not None:
            entry["held"] = _length(held)
        return entry

    def _notice(self, life: EventLife) -> dict[str, Any]:
        if life.never_scheduled:
            if life.appeared <= self._recording.begins:
                self._note(life, "had already started when the recording began")
            return {"sudden": True}
        if life.not_before is None:
            self._note(life, "its NotBefore could not be read, so it has the usual notice")
            return {}
        appeared = round(life.appeared - self._start, 3)
        notice = max(0.0, life.not_before - self._start - appeared)
        if notice * SECOND > MAX_NOTICE:
            self._note(life, f"its notice of {_length(notice)} is longer than forewarn allows")
            notice = MAX_NOTICE / SECOND
        short = notice * SECOND < EventType(life.type).traits.notice
        return {"notice": _length(notice), **({"short-notice": True} if short else {})}

    def _held(self, life: EventLife) -> float | None:
        """Return how long an event was Scheduled, if that was beyond its NotBefore."""
        if life.late and life.started is not None:
            return life.started - life.appeared
        overdue = life.not_before is not None and life.not_before < self._recording.ends
        if overdue and life.started is None and life.over is None:
            return self._recording.ends - life.appeared + 1
        return None

    def _description(self, life: EventLife) -> str:
        if len(life.description) > MAX_DESCRIPTION:
            self._note(life, f"its description is cut after {MAX_DESCRIPTION} characters")
        return life.description[:MAX_DESCRIPTION]

    def _duration(self, life: EventLife, source: str) -> dict[str, Any]:
        if life.duration == -1:
            return {}
        if source == "User" or not 0 <= life.duration <= MAX_DURATION_SECONDS:
            self._note(
                life, f"its duration of {life.duration} is not possible here and was left out"
            )
            return {}
        return {"duration": life.duration}

    def _note(self, life: EventLife, message: str) -> None:
        self._notes.append(f"{self._names[life.id]}: {message}")

    def _fault(self, fault: AnswerFault) -> str:
        parts = [f"kind: {fault.kind}", f"at: {self._at(fault.at)}"]
        if fault.machine:
            parts.append(f"machine: {_scalar(fault.machine)}")
        if fault.method == "POST" or fault.kind in ("slow", "throttled", "gone", "error", "reset"):
            parts.append(f"method: {fault.method}")
        parts.append(f"times: {fault.times}")
        if fault.seconds is not None:
            parts.append(f"seconds: {fault.seconds:g}")
        if fault.status is not None:
            parts.append(f"status: {fault.status}")
        return "{" + ", ".join(parts) + "}"

    def _at(self, t: float) -> str:
        return _length(max(0.0, t - self._start))


def _replayed_start(life: EventLife, seen: float) -> float:
    """Return when an event starts in a replay.

    One that starts by itself does so at its NotBefore, not when a client first saw it as Started.
    """
    by_itself = not (life.never_scheduled or life.early or life.late)
    return life.not_before if by_itself and life.not_before is not None else seen


def _event_names(lives: Sequence[EventLife]) -> dict[str, str]:
    counts: dict[str, int] = {}
    names = {}
    for life in lives:
        kind = life.type.lower()
        counts[kind] = counts.get(kind, 0) + 1
        names[life.id] = f"{kind}-{counts[kind]}"
    return names


def _length(seconds: float) -> str:
    """Format a duration to the millisecond, for example `1h2m3.5s`."""
    thousandths = round(seconds * 1000)
    seconds_left = thousandths / 1000
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        count, thousandths = divmod(thousandths, size * 1000)
        if count:
            parts.append(f"{count}{unit}")
        seconds_left = thousandths / 1000
    if seconds_left or not parts:
        parts.append(f"{seconds_left:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def _scalar(value: Any) -> str:
    """Format a value as YAML: as JSON, but without quotes where none are needed."""
    if isinstance(value, list):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if isinstance(value, int) or (_PLAIN.fullmatch(text) and text.lower() not in _RESERVED):
        return text if not (isinstance(value, str) and text.isdecimal()) else f'"{text}"'
    quoted = msgspec.json.encode(text).decode()
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def _comment(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[:MAX_COMMENT])
    return f"# {printable}"


def _scenario_name(name: str) -> str:
    cleaned = _NOT_IN_NAMES.sub("-", name).strip("-._")[:60].strip("-._")
    return cleaned or "recording"
