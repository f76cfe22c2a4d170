"""Reads a scenario file, or explains what is wrong with it, where, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from forewarn.core.fleet import MAX_NAME, NAME
from forewarn.core.labels import parse as parse_selector
from forewarn.service.faults.kinds import FaultKind
from forewarn.service.faults.validate import option_problem
from forewarn.service.fleet.read import Fleet
from forewarn.support.text import not_utf8
from forewarn.support.yaml.events import Events
from forewarn.support.yaml.positions import Problems, Where, YamlError, all_placed, lines, locate
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
MAX_PROBLEMS = 50  # of one file that are reported; further ones are counted


class ScenarioError(Exception):
    """A scenario that cannot be used; the message says where it is wrong, and what is right."""

    problems: tuple[str, ...]
    """A line for each mistake in the file; the message has all of them."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


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
        raise ScenarioError(f"{path}: {not_utf8(error)}") from error
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
    problems = Problems()
    try:
        scenario = _read(text, directory, problems)
    except YamlError as error:
        problems.add(error)
    if not problems.errors:
        return scenario
    raise ScenarioError(*_in_order(problems.errors, text, file))


def _in_order(errors: Sequence[YamlError], text: str, file: str) -> Iterator[str]:
    """Yield the errors in the order of their lines, each with its position."""
    shown = all_placed(errors[:MAX_PROBLEMS], text, YamlError)
    yield from dict.fromkeys(error.named(file) for error in shown)
    if len(errors) > MAX_PROBLEMS:
        yield f"{file}: and {len(errors) - MAX_PROBLEMS:,} more mistakes"


def _read(text: str, directory: Path | None, problems: Problems) -> Scenario:
    """Read a scenario, and collect everything that is wrong with it."""
    events = Events(text, "a scenario", _EMPTY)
    raw = events.value(events.next())
    events.finish()
    entry = convert_entry(raw, shapes.ScenarioEntry, (), "a scenario", problems)
    if entry.scenario or "scenario" in raw:
        with problems.collected():
            check_name(entry.scenario, _NAME, MAX_NAME, ("scenario",))
    fleet: Fleet | None = None
    if entry.fleet is not None or "fleet" in raw:
        with problems.collected():
            fleet = fleets.fleet(entry.fleet, directory, problems)
    reader = _Reader(text, fleet, problems)
    if len(entry.timeline) + len(entry.faults) > shapes.MAX_STEPS:
        raise YamlError(f"a timeline has at most {shapes.MAX_STEPS} steps, faults included")
    for i, raw_fault in enumerate(entry.faults):
        with problems.collected():
            reader.fault(raw_fault, ("faults", i))
        reader.remember_name(raw_fault)
    for i, raw_step in enumerate(entry.timeline):
        with problems.collected():
            reader.step(raw_step, ("timeline", i))
        reader.remember_name(raw_step)
    if not entry.timeline and not entry.faults and not problems.errors:
        problems.add(YamlError("a timeline has at least one step", ("timeline",)))
    reader.finish()
    if len(entry.expect) > shapes.MAX_EXPECTATIONS:
        raise YamlError(
            f"a scenario has at most {shapes.MAX_EXPECTATIONS} expectations", ("expect",)
        )
    expectations = []
    for i, expected in enumerate(entry.expect):
        with problems.collected():
            at = "expect", i
            expectations.append(
                expectation(expected, at, reader.names, reader.machines, reader.line, problems)
            )
    under_test: tuple[str, ...] = ()
    with problems.collected():
        under_test = reader.under_test(entry.as_)
    ends = None
    with problems.collected():
        ends = None if entry.ends is None else duration(entry.ends, ("ends",))
    return Scenario(
        name=entry.scenario,
        about=entry.about.strip(),
        fleet=fleet or Fleet({}),
        under_test=under_test,
        steps=tuple(reader.steps),
        expectations=tuple(expectations),
        ends=ends,
        text=text,
    )


class _Anything(Set[str]):
    """All names: those of a fleet that cannot be read, so that no reference to it is accused."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


class _Reader:
    """The names of a scenario that have been read so far, to check references to them."""

    def __init__(self, text: str, fleet: Fleet | None, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._lines = lines(text, 2)  # of faults, steps and expectations
        self.machines: Set[str] = _Anything()
        self._groups: Set[str] = _Anything()
        self._hosts: Set[str] = _Anything()
        self._first = ""
        if fleet is not None:
            self.machines = {machine.name for machine in fleet.machines}
            self._groups = set(fleets.groups_of(fleet))
            self._hosts = {host.name for host in fleet.hosts}
            self._first = next(machine.name for machine in fleet.machines)
        self.steps: list[Step] = []
        self.events: dict[str, Where] = {}  # names of events, and where they are defined
        self._faults: dict[str, Where] = {}
        self._unread: set[str] = set()  # names of entries that are wrong
        self._references: list[tuple[str, Where]] = []  # references to events
        self._cleared: list[tuple[str, Where]] = []  # references to faults
        self._waits_for: dict[
            str, tuple[str, Where]
        ] = {}  # by event: the event it waits for, and where

    @property
    def names(self) -> Set[str]:
        """The names of events, and of entries that could not be read."""
        return self.events.keys() | self._unread

    def line(self, at: Where) -> int:
        return self._lines.get(at) or locate(self._text, at)[0]

    def finish(self) -> None:
        """Check references, which may come before the step that they refer to."""
        for name, at in self._references:
            with self._problems.collected():
                check_known(name, self.names, at, "event")
        for name, at in self._cleared:
            with self._problems.collected():
                check_known(name, self._faults.keys() | self._unread, at, "fault")
        for name in self._waits_for:
            with self._problems.collected():
                self._check_reachable(name)

    def remember_name(self, raw: Any) -> None:
        """Remember the name of an entry that is wrong, so that what refers to it is not."""
        name = raw.get("name") if isinstance(raw, dict) else None
        if isinstance(name, str) and name not in self.events and name not in self._faults:
            self._unread.add(name)

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
            with self._problems.collected():
                check_known(name, self.machines, ("as",), "machine")
        return tuple(dict.fromkeys(names))

    def fault(self, raw: Any, at: Where) -> None:
        entry = convert_entry(raw, timeline_shapes.FaultEntry, at, "a fault", self._problems)
        times = (entry.at, entry.after, entry.when_approved)
        when = self._when(entry, at) if any(time is not None for time in times) else When(at=0)
        self._step(entry, "fault", when, at)

    def step(self, raw: Any, at: Where) -> None:
        values = mapping(raw, at, "a line of the timeline")
        verb = values.get("do")
        if verb is None:
            raise YamlError(f"'do' is missing; expected one of {_some(timeline_shapes.VERBS)}", at)
        if str(verb) not in timeline_shapes.VERBS:
            for key in ("at", "delay"):
                if key in values:
                    with self._problems.collected():
                        duration(values[key], (*at, key))
        check_known(str(verb), timeline_shapes.VERBS, (*at, "do"), "verb")
        mistakes = len(self._problems.errors)
        kind = timeline_shapes.VERBS[str(verb)]
        entry = convert_entry(values, kind, at, f"'{verb}'", self._problems, also=("do",))
        when = When()
        with self._problems.collected():
            when = self._when(entry, at)
        if len(self._problems.errors) == mistakes:
            self._check_alternatives(entry, str(verb), at)
        self._step(entry, str(verb), when, at)

    def _check_alternatives(self, entry: Any, verb: str, at: Where) -> None:
        if alternatives := _ALTERNATIVES.get(verb):
            given = [
                name for name in alternatives if getattr(entry, name, None) not in ("", [], None)
            ]
            if len(given) != 1:
                message = f"'{verb}' needs either {' or '.join(alternatives)}"
                self._problems.add(YamlError(message, at))

    def _step(self, entry: Any, verb: str, when: When, at: Where) -> None:
        self._check(entry, at)
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
        self.steps.append(
            Step(
                line=self.line(at),
                when=when,
                verb=verb,
                entry=entry,
                name=entry.name,
                every=every,
                times=times,
            )
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

    def _check(self, entry: Any, at: Where) -> None:
        """Check the names and values of a step."""
        names: list[tuple[str, Set[str], str]] = [
            ("machine", self.machines, "machine"),
            ("group", self._groups, "group"),
            ("host", self._hosts, "host"),
        ]
        collected = self._problems.collected
        for field, existing, noun in names:
            if value := getattr(entry, field, ""):
                with collected():
                    check_known(value, existing, (*at, field), noun)
        for field, existing, noun in (
            ("machines", self.machines, "machine"),
            ("groups", self._groups, "group"),
        ):
            for index, value in enumerate(getattr(entry, field, [])):
                with collected():
                    check_known(value, existing, (*at, field, index), noun)
        if event := getattr(entry, "event", ""):
            self._references.append((event, (*at, "event")))
        if fault := getattr(entry, "fault", ""):
            self._cleared.append((fault, (*at, "fault")))
        if kind := getattr(entry, "kind", ""):
            kinds = [fault_kind.value for fault_kind in FaultKind]
            with collected():
                check_known(kind, kinds, (*at, "kind"), "kind of fault")
        for field in ("notice", "bake", "lost", "lasts", "held"):
            if (value := getattr(entry, field, None)) is not None:
                with collected():
                    duration(value, (*at, field))
        if (
            isinstance(entry, timeline_shapes.FaultEntry)
            and kind in [fault_kind.value for fault_kind in FaultKind]
            and (problem := option_problem(timeline_shapes.fault(entry)))
        ):
            self._problems.add(YamlError(problem.message, at))
        if isinstance(entry, timeline_shapes.Rollout):
            self._check_rollout(entry, at)

    def _check_rollout(self, entry: timeline_shapes.Rollout, at: Where) -> None:
        if not (entry.groups or entry.labels or entry.hosts):
            self._problems.add(YamlError("'rollout' needs groups, labels or hosts", at))
        for index, label in enumerate(entry.labels):
            try:
                parse_selector(label)
            except ValueError as error:
                self._problems.add(YamlError(str(error), (*at, "labels", index)))
        for index, host in enumerate(entry.hosts):
            if not any(fnmatchcase(name, host) for name in self._hosts):
                with self._problems.collected():
                    check_known(host, self._hosts, (*at, "hosts", index), "host")


_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "evict": ("machine", "group"),
    "fail": ("machine", "host"),
    "schedule": ("machine", "machines"),
    "scale-in": ("count", "to"),
}


def _some(names: Any) -> str:
    return ", ".join(names)
