"""Reads a scenario file, or explains what is wrong with it, where, and what would be right."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from forewarn.core.fleet import MAX_NAME, NAME
from forewarn.core.labels import parse as parse_selector
from forewarn.service.faults.kinds import FaultKind
from forewarn.service.faults.validate import option_problem
from forewarn.service.fleet.read import Fleet
from forewarn.support.yaml_events import Events
from forewarn.support.yaml_positions import Where, YamlError, lines, locate, placed
from forewarn.testing.scenarios.file import fleets, shapes, timeline_shapes
from forewarn.testing.scenarios.file.convert import (
    check_known,
    check_name,
    convert_entry,
    duration,
    mapping,
)
from forewarn.testing.scenarios.file.read_expectations import expectation
from forewarn.testing.scenarios.model import Moment, Scenario, Step, When

_NAME = re.compile(NAME)
_AFTER = re.compile(rf"\s*({NAME})\s+([a-z]+)(?:\s+by\s+({NAME}))?\s*")
_EMPTY = "the file is empty; a scenario has at least scenario, fleet and timeline"
RAISING_VERBS = (
    *("restart", "redeploy", "evict", "delete", "scale-in", "fail", "degrade", "maintain"),
    *("schedule", "rollout"),
)


class ScenarioError(Exception):
    """The scenario file is not valid; the message says where and what would be right."""


def load(path: str | Path) -> Scenario:
    """Read a scenario from a file.

    Args:
        path: The file.

    Raises:
        ScenarioError: It cannot be read, or is not valid.
    """
    path = Path(path)
    try:
        if path.stat().st_size > shapes.MAX_SIZE:
            raise ScenarioError(f"{path}: a scenario has at most {shapes.MAX_SIZE:,} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from error
    return parse(text, str(path), path.parent)


def parse(text: str, file: str = "", directory: Path | None = None) -> Scenario:
    """Read a scenario from a text.

    Args:
        text: The text, in YAML.
        file: The name of the file in error messages.
        directory: Where the files are that the scenario names.

    Raises:
        ScenarioError: It is not valid.
    """
    try:
        return _read(text, directory)
    except YamlError as error:
        raise ScenarioError(placed(error, text, YamlError).named(file)) from error


def _read(text: str, directory: Path | None) -> Scenario:
    events = Events(text, "a scenario", _EMPTY)
    raw = events.value(events.next())
    events.finish()
    entry = convert_entry(raw, shapes.ScenarioEntry, (), "a scenario")
    check_name(entry.scenario, _NAME, MAX_NAME, ("scenario",))
    fleet = fleets.fleet(entry.fleet, directory)
    reader = _Reader(text, fleet)
    if len(entry.timeline) + len(entry.faults) > shapes.MAX_STEPS:
        raise YamlError(f"a timeline has at most {shapes.MAX_STEPS} steps, faults included")
    steps = [reader.fault(raw, ("faults", i)) for i, raw in enumerate(entry.faults)]
    steps += [reader.step(raw, ("timeline", i)) for i, raw in enumerate(entry.timeline)]
    if not steps:
        raise YamlError("a timeline has at least one step", ("timeline",))
    reader.finish()
    if len(entry.expect) > shapes.MAX_EXPECTATIONS:
        raise YamlError(
            f"a scenario has at most {shapes.MAX_EXPECTATIONS} expectations", ("expect",)
        )
    return Scenario(
        name=entry.scenario,
        about=entry.about.strip(),
        fleet=fleet,
        under_test=reader.under_test(entry.as_),
        steps=tuple(steps),
        expectations=tuple(
            expectation(raw, ("expect", i), reader.events, reader.machines, reader.line)
            for i, raw in enumerate(entry.expect)
        ),
        ends=None if entry.ends is None else duration(entry.ends, ("ends",)),
        text=text,
    )


class _Reader:
    """The names of a scenario that have been read so far, to check references to them."""

    def __init__(self, text: str, fleet: Fleet) -> None:
        self._text = text
        self._lines = lines(text, 2)  # of faults, steps and expectations
        self.machines = {machine.name for machine in fleet.machines}
        self._groups = fleets.groups_of(fleet)
        self._hosts = {host.name for host in fleet.hosts}
        self._first = next(machine.name for machine in fleet.machines)
        self.events: dict[str, Where] = {}  # names of events, and where they are defined
        self._faults: dict[str, Where] = {}
        self._references: list[tuple[str, Where]] = []  # references to events
        self._cleared: list[tuple[str, Where]] = []  # references to faults
        self._waits_for: dict[
            str, tuple[str, Where]
        ] = {}  # by event: the event it waits for, and where

    def line(self, at: Where) -> int:
        return self._lines.get(at) or locate(self._text, at)[0]

    def finish(self) -> None:
        """Check references, which may come before the step that they refer to."""
        for name, at in self._references:
            check_known(name, self.events, at, "event")
        for name, at in self._cleared:
            check_known(name, self._faults, at, "fault")
        for name in self._waits_for:
            self._check_reachable(name)

    def _check_reachable(self, name: str) -> None:
        """Check that the chain of events that this one waits for does not lead back to itself."""
        chain = [name]
        while (last := self._waits_for.get(chain[-1])) is not None and last[0] not in chain:
            chain.append(last[0])
        if last is not None:
            via = "".join(f", via '{link}'" for link in chain[1:])
            raise YamlError(f"'{name}' waits for itself{via}", self._waits_for[name][1])

    def under_test(self, value: str | list[str] | None) -> tuple[str, ...]:
        if value is None:
            return (self._first,)
        names = [value] if isinstance(value, str) else value
        if not names:
            raise YamlError("name at least one machine", ("as",))
        for name in names:
            check_known(name, self.machines, ("as",), "machine")
        return tuple(dict.fromkeys(names))

    def fault(self, raw: Any, at: Where) -> Step:
        entry = convert_entry(raw, timeline_shapes.FaultEntry, at, "a fault")
        times = (entry.at, entry.after, entry.when_approved)
        when = self._when(entry, at) if any(time is not None for time in times) else When(at=0)
        return self._step(entry, "fault", when, at)

    def step(self, raw: Any, at: Where) -> Step:
        values = mapping(raw, at, "a line of the timeline")
        verb = values.get("do")
        if verb is None:
            raise YamlError(f"'do' is missing; expected one of {_some(timeline_shapes.VERBS)}", at)
        check_known(str(verb), timeline_shapes.VERBS, (*at, "do"), "verb")
        kind = timeline_shapes.VERBS[str(verb)]
        entry = convert_entry(values, kind, at, f"'{verb}'", also=("do",))
        return self._step(entry, str(verb), self._when(entry, at), at)

    def _step(self, entry: Any, verb: str, when: When, at: Where) -> Step:
        self._check(entry, verb, at)
        if entry.name:
            self._name(entry.name, verb, at)
            if when.name:
                key = "after" if entry.after is not None else "when-approved"
                self._waits_for[entry.name] = when.name, (*at, key)
        repeat = getattr(entry, "repeat", None)
        every, times = 0, 1
        if repeat is not None:
            every, times = duration(repeat.every, (*at, "repeat", "every")), repeat.times
            if every <= 0:
                raise YamlError("must be more than 0s", (*at, "repeat", "every"))
        return Step(
            line=self.line(at),
            when=when,
            verb=verb,
            entry=entry,
            name=entry.name,
            every=every,
            times=times,
        )

    def _name(self, name: str, verb: str, at: Where) -> None:
        at = (*at, "name")
        check_name(name, _NAME, MAX_NAME, at)
        if name in self.events or name in self._faults:
            raise YamlError(f"the name '{name}' is used twice", at)
        if verb == "fault":
            self._faults[name] = at
        elif verb in RAISING_VERBS:
            self.events[name] = at
        else:
            raise YamlError(f"'{verb}' raises no event; remove 'name'", at)

    def _when(self, entry: timeline_shapes.StepEntry, at: Where) -> When:
        keys = [key for key in ("at", "after", "when_approved") if getattr(entry, key) is not None]
        if len(keys) != 1:
            raise YamlError(
                "expected exactly one of at: 10s, after: <name> started, when-approved: <name>", at
            )
        if entry.at is not None:
            if entry.delay is not None:
                raise YamlError(
                    "'delay' needs 'after' or 'when-approved'; with 'at', add it to the time",
                    (*at, "delay"),
                )
            return When(at=duration(entry.at, (*at, "at")))
        delay = 0 if entry.delay is None else duration(entry.delay, (*at, "delay"))
        if entry.when_approved is not None:
            self._references.append((entry.when_approved, (*at, "when-approved")))
            return When(name=entry.when_approved, moment=Moment.APPROVED, delay=delay)
        return self._after(str(entry.after), delay, (*at, "after"))

    def _after(self, text: str, delay: int, at: Where) -> When:
        moments = [moment.value for moment in Moment]
        match = _AFTER.fullmatch(text)
        if match is None:
            raise YamlError(
                f"expected '<name> <moment>', not '{text}'; moments are {_some(moments)}", at
            )
        name, moment, by = match[1], match[2], match[3] or ""
        check_known(moment, moments, at, "moment")
        self._references.append((name, at))
        if by:
            check_known(by, self.machines, at, "machine")
            if Moment(moment) not in (Moment.SEEN, Moment.PREPARED, Moment.APPROVED):
                raise YamlError(
                    f"'{moment}' has no 'by': machines only see, prepare and approve; remove"
                    f" 'by {by}'",
                    at,
                )
        return When(name=name, moment=Moment(moment), by=by, delay=delay)

    def _check(self, entry: Any, verb: str, at: Where) -> None:
        """Check the names and values of a step."""
        names: list[tuple[str, set[str], str]] = [
            ("machine", self.machines, "machine"),
            ("group", self._groups, "group"),
            ("host", self._hosts, "host"),
        ]
        for field, existing, noun in names:
            if value := getattr(entry, field, ""):
                check_known(value, existing, (*at, field), noun)
        for field, existing, noun in (
            ("machines", self.machines, "machine"),
            ("groups", self._groups, "group"),
        ):
            for index, value in enumerate(getattr(entry, field, [])):
                check_known(value, existing, (*at, field, index), noun)
        if event := getattr(entry, "event", ""):
            self._references.append((event, (*at, "event")))
        if fault := getattr(entry, "fault", ""):
            self._cleared.append((fault, (*at, "fault")))
        if alternatives := _ALTERNATIVES.get(verb):
            given = [
                name for name in alternatives if getattr(entry, name, None) not in ("", [], None)
            ]
            if len(given) != 1:
                raise YamlError(f"'{verb}' needs either {' or '.join(alternatives)}", at)
        if kind := getattr(entry, "kind", ""):
            check_known(
                kind, [fault_kind.value for fault_kind in FaultKind], (*at, "kind"), "kind of fault"
            )
        for field in ("notice", "bake", "lost", "lasts", "held"):
            if (value := getattr(entry, field, None)) is not None:
                duration(value, (*at, field))
        if isinstance(entry, timeline_shapes.FaultEntry) and (
            problem := option_problem(timeline_shapes.fault(entry))
        ):
            raise YamlError(problem.message, at)
        if isinstance(entry, timeline_shapes.Rollout):
            self._check_rollout(entry, at)

    def _check_rollout(self, entry: timeline_shapes.Rollout, at: Where) -> None:
        if not (entry.groups or entry.labels or entry.hosts):
            raise YamlError("'rollout' needs groups, labels or hosts", at)
        for index, label in enumerate(entry.labels):
            try:
                parse_selector(label)
            except ValueError as error:
                raise YamlError(str(error), (*at, "labels", index)) from error
        for index, host in enumerate(entry.hosts):
            if not any(fnmatchcase(name, host) for name in self._hosts):
                check_known(host, self._hosts, (*at, "hosts", index), "host")


_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "evict": ("machine", "group"),
    "fail": ("machine", "host"),
    "schedule": ("machine", "machines"),
    "scale-in": ("count", "to"),
}


def _some(names: Any) -> str:
    return ", ".join(names)
