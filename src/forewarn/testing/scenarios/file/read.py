"""From a text to a scenario, or what is wrong with it: where, and what would be right."""

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
from forewarn.testing.scenarios.file import fleets
from forewarn.testing.scenarios.file import shapes as e
from forewarn.testing.scenarios.file import timeline_shapes as d
from forewarn.testing.scenarios.file.convert import duration, entry, known, mapping, named
from forewarn.testing.scenarios.file.read_expectations import expectation
from forewarn.testing.scenarios.model import Moment, Scenario, Step, When

_NAME = re.compile(NAME)
_AFTER = re.compile(rf"\s*({NAME})\s+([a-z]+)(?:\s+by\s+({NAME}))?\s*")
_EMPTY = "it is empty; a scenario has at least scenario, fleet and timeline"
RAISING = (
    *("restart", "redeploy", "evict", "delete", "scale-in", "fail", "degrade", "maintain"),
    *("schedule", "rollout"),
)


class ScenarioError(Exception):
    """The scenario cannot be used: where, and what would be right."""


def load(path: Path) -> Scenario:
    try:
        if path.stat().st_size > e.MAX_SIZE:
            raise ScenarioError(f"{path}: a scenario has at most {e.MAX_SIZE:,} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from error
    return parse(text, str(path), path.parent)


def parse(text: str, file: str = "", beside: Path | None = None) -> Scenario:
    """The scenario that the text says. `file` is what errors call it; `beside` is where the files
    are that it names."""
    try:
        return _read(text, beside)
    except YamlError as error:
        raise ScenarioError(placed(error, text, YamlError).named(file)) from error


def _read(text: str, beside: Path | None) -> Scenario:
    events = Events(text, "a scenario", _EMPTY)
    raw = events.value(events.next())
    events.finish()
    said = entry(raw, e.ScenarioEntry, (), "a scenario")
    named(said.scenario, _NAME, MAX_NAME, ("scenario",))
    made = fleets.fleet(said.fleet, beside)
    reading = _Reading(text, made)
    if len(said.timeline) + len(said.faults) > e.MAX_STEPS:
        raise YamlError(f"a timeline has at most {e.MAX_STEPS} lines, faults included")
    steps = [reading.fault(raw, ("faults", i)) for i, raw in enumerate(said.faults)]
    steps += [reading.step(raw, ("timeline", i)) for i, raw in enumerate(said.timeline)]
    if not steps:
        raise YamlError("nothing happens; a timeline has at least one line", ("timeline",))
    reading.finish()
    if len(said.expect) > e.MAX_EXPECTATIONS:
        raise YamlError(f"at most {e.MAX_EXPECTATIONS} things are expected", ("expect",))
    return Scenario(
        name=said.scenario,
        about=said.about.strip(),
        fleet=made,
        speakers=reading.speakers(said.as_),
        steps=tuple(steps),
        expectations=tuple(
            expectation(raw, ("expect", i), reading.raised, reading.machines, reading.line)
            for i, raw in enumerate(said.expect)
        ),
        ends=None if said.ends is None else duration(said.ends, ("ends",)),
        text=text,
    )


class _Reading:
    """What is known of a scenario while its lines are read."""

    def __init__(self, text: str, made: Fleet) -> None:
        self._text = text
        self._lines = lines(text, 2)  # of faults, of the timeline, of what is expected
        self.machines = {machine.name for machine in made.machines}
        self._groups = fleets.groups_of(made)
        self._hosts = {host.name for host in made.hosts}
        self._first = next(machine.name for machine in made.machines)
        self.raised: dict[str, Where] = {}  # names of events, and where they are given
        self._faults: dict[str, Where] = {}
        self._mentioned: list[tuple[str, Where]] = []  # names that must be somebody's
        self._cleared: list[tuple[str, Where]] = []
        self._waits: dict[str, tuple[str, Where]] = {}  # by name: for which, and where it says so

    def line(self, at: Where) -> int:
        return self._lines.get(at) or locate(self._text, at)[0]

    def finish(self) -> None:
        """Names may be used before the line that gives them."""
        for name, at in self._mentioned:
            known(name, self.raised, at, "line with the name")
        for name, at in self._cleared:
            known(name, self._faults, at, "fault with the name")
        for name in self._waits:
            self._reachable(name)

    def _reachable(self, name: str) -> None:
        """Is there a time at the beginning of what it waits for?"""
        way = [name]
        while (last := self._waits.get(way[-1])) is not None and last[0] not in way:
            way.append(last[0])
        if last is not None:
            by_way = "".join(f", by way of '{one}'" for one in way[1:])
            raise YamlError(f"'{name}' waits for itself{by_way}", self._waits[name][1])

    def speakers(self, said: str | list[str] | None) -> tuple[str, ...]:
        if said is None:
            return (self._first,)
        found = [said] if isinstance(said, str) else said
        if not found:
            raise YamlError("name at least one machine", ("as",))
        for name in found:
            known(name, self.machines, ("as",), "machine")
        return tuple(dict.fromkeys(found))

    def fault(self, raw: Any, at: Where) -> Step:
        words = entry(raw, d.FaultEntry, at, "a fault")
        said = (words.at, words.after, words.when_approved)
        when = self._when(words, at) if any(one is not None for one in said) else When(at=0)
        return self._made(words, "fault", when, at)

    def step(self, raw: Any, at: Where) -> Step:
        said = mapping(raw, at, "a line of the timeline")
        verb = said.get("do")
        if verb is None:
            raise YamlError(f"it does not say what happens; do: {_some(d.VERBS)}", at)
        known(str(verb), d.VERBS, (*at, "do"), "thing to do called")
        kind = d.VERBS[str(verb)]
        words = entry(said, kind, at, f"'{verb}'", also=("do",))
        return self._made(words, str(verb), self._when(words, at), at)

    def _made(self, words: Any, verb: str, when: When, at: Where) -> Step:
        self._check(words, verb, at)
        if words.name:
            self._name(words.name, verb, at)
            if when.name:
                key = "after" if words.after is not None else "when-approved"
                self._waits[words.name] = when.name, (*at, key)
        repeat = getattr(words, "repeat", None)
        every, times = 0, 1
        if repeat is not None:
            every, times = duration(repeat.every, (*at, "repeat", "every")), repeat.times
            if every <= 0:
                raise YamlError("some time passes in between", (*at, "repeat", "every"))
        return Step(
            line=self.line(at),
            when=when,
            verb=verb,
            words=words,
            name=words.name,
            every=every,
            times=times,
        )

    def _name(self, name: str, verb: str, at: Where) -> None:
        at = (*at, "name")
        named(name, _NAME, MAX_NAME, at)
        if name in self.raised or name in self._faults:
            raise YamlError(f"the name '{name}' is given twice", at)
        if verb == "fault":
            self._faults[name] = at
        elif verb in RAISING:
            self.raised[name] = at
        else:
            raise YamlError(f"'{verb}' raises no event that could have a name", at)

    def _when(self, words: d.StepEntry, at: Where) -> When:
        said = [k for k in ("at", "after", "when_approved") if getattr(words, k) is not None]
        if len(said) != 1:
            raise YamlError(
                "say when, in one way: at: 10s, after: <name> started, or when-approved: <name>", at
            )
        if words.at is not None:
            if words.delay is not None:
                raise YamlError("a delay is counted from something; at is a time", (*at, "delay"))
            return When(at=duration(words.at, (*at, "at")))
        delay = 0 if words.delay is None else duration(words.delay, (*at, "delay"))
        if words.when_approved is not None:
            self._mentioned.append((words.when_approved, (*at, "when-approved")))
            return When(name=words.when_approved, moment=Moment.APPROVED, delay=delay)
        return self._after(str(words.after), delay, (*at, "after"))

    def _after(self, said: str, delay: int, at: Where) -> When:
        moments = [moment.value for moment in Moment]
        found = _AFTER.fullmatch(said)
        if found is None:
            raise YamlError(f"'{said}' is not '<name> <what>', where what is {_some(moments)}", at)
        name, moment, by = found[1], found[2], found[3] or ""
        known(moment, moments, at, "moment called")
        self._mentioned.append((name, at))
        if by:
            known(by, self.machines, at, "machine")
            if Moment(moment) not in (Moment.SEEN, Moment.PREPARED, Moment.APPROVED):
                raise YamlError(f"nobody is '{moment}' by a machine; leave 'by {by}' out", at)
        return When(name=name, moment=Moment(moment), by=by, delay=delay)

    def _check(self, words: Any, verb: str, at: Where) -> None:
        """Are those that it names there?"""
        names: list[tuple[str, set[str], str]] = [
            ("machine", self.machines, "machine"),
            ("group", self._groups, "group"),
            ("host", self._hosts, "host"),
        ]
        for field, there, what in names:
            if said := getattr(words, field, ""):
                known(said, there, (*at, field), what)
        for field, there, what in (
            ("machines", self.machines, "machine"),
            ("groups", self._groups, "group"),
        ):
            for index, said in enumerate(getattr(words, field, [])):
                known(said, there, (*at, field, index), what)
        if event := getattr(words, "event", ""):
            self._mentioned.append((event, (*at, "event")))
        if fault := getattr(words, "fault", ""):
            self._cleared.append((fault, (*at, "fault")))
        if wanted := _EITHER.get(verb):
            said_of = [name for name in wanted if getattr(words, name, None) not in ("", [], None)]
            if len(said_of) != 1:
                raise YamlError(f"'{verb}' needs one of {' and '.join(wanted)}", at)
        if kind := getattr(words, "kind", ""):
            known(kind, [one.value for one in FaultKind], (*at, "kind"), "kind of fault called")
        for field in ("notice", "bake", "lost", "lasts", "held"):
            if (said := getattr(words, field, None)) is not None:
                duration(said, (*at, field))
        if isinstance(words, d.FaultEntry) and (refused := option_problem(d.fault(words))):
            raise YamlError(refused.message, at)
        if isinstance(words, d.Rollout):
            self._check_rollout(words, at)

    def _check_rollout(self, words: d.Rollout, at: Where) -> None:
        if not (words.groups or words.labels or words.hosts):
            raise YamlError("'rollout' needs groups, labels or hosts", at)
        for index, label in enumerate(words.labels):
            try:
                parse_selector(label)
            except ValueError as error:
                raise YamlError(str(error), (*at, "labels", index)) from error
        for index, host in enumerate(words.hosts):
            if not any(fnmatchcase(name, host) for name in self._hosts):
                known(host, self._hosts, (*at, "hosts", index), "host")


_EITHER: dict[str, tuple[str, ...]] = {
    "evict": ("machine", "group"),
    "fail": ("machine", "host"),
    "schedule": ("machine", "machines"),
    "scale-in": ("count", "to"),
}


def _some(names: Any) -> str:
    return ", ".join(names)
