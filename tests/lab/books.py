"""What was promised, and what came of it, in books that the service does not write: guests write
down what they were shown and when, operators what they have raised, the driver what it has done."""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Shown:
    """A document, from when it was asked for until it was answered."""

    asked: float
    t: float
    incarnation: int
    events: dict[str, tuple[str, float]]  # by id: status, and NotBefore, which is 0 once it started
    text: str


@dataclass(frozen=True)
class Wait:
    """A request of a guest."""

    machine: str
    asked: float
    t: float
    problem: str = ""  # why it has no answer

    @property
    def seconds(self) -> float:
        return self.t - self.asked


@dataclass(frozen=True)
class Raised:
    event: str
    machine: str


@dataclass
class Fault:
    name: str
    began: float
    ended: float = 0.0
    well: float = 0.0  # when all was well again


@dataclass
class Absence:
    """Of a process that was ended or stopped."""

    name: str
    began: float
    ended: float = math.inf


@dataclass
class Books:
    host_of: dict[str, str]  # by machine
    raised: list[Raised] = field(default_factory=list)
    shown: dict[str, list[Shown]] = field(default_factory=dict)  # by machine, whenever it changed
    polls: list[Wait] = field(default_factory=list)
    approvals: list[tuple[str, Wait]] = field(default_factory=list)
    impacts: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)  # of impacts, by event
    faults: list[Fault] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)  # events that a restore may have undone
    finished: set[str] = field(default_factory=set)
    approved: set[str] = field(default_factory=set)  # as the service says
    _sorted: dict[str, list[Wait]] = field(default_factory=dict)  # polls, by machine
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, line: dict[str, Any]) -> None:
        """Write down a request of a guest, as in a trace."""
        machine, method, status = line["machine"], line["method"], line["status"]
        problem = "" if status == 200 else str(status or line["trouble"])
        wait = Wait(machine, line["asked"], line["t"], problem)
        with self._writing:
            if method == "POST":
                asked = json.loads(line["body"])["StartRequests"]
                self.approvals += [(request["EventId"], wait) for request in asked]
                return
            self.polls.append(wait)
            if problem:
                return
            shown = self.shown.setdefault(machine, [])
            if not shown or shown[-1].text != line["answer"]:
                shown.append(_read(line))

    # What must not happen.

    def findings(self) -> list[str]:
        """All that was broken, in words."""
        return [
            *self._lost(),
            *self._twice(),
            *self._early(),
            *self._uninformed(),
            *self._backwards(),
            *self._unlike(),
            *self._refused(),
        ]

    def _lost(self) -> Iterable[str]:
        done = {impact["event"] for impact in self.impacts}
        for raised in self.raised:
            if raised.event in self.forgotten:
                continue
            if raised.event not in self.finished or raised.event not in done:
                yield f"lost: {raised.event} of {raised.machine} did not happen"
        answered = {event for event, wait in self.approvals if not wait.problem}
        for event in sorted(answered - self.approved - self.forgotten):
            yield f"lost: the approval of {event}, which was answered with 200"

    def _twice(self) -> Iterable[str]:
        for event, times in Counter(impact["event"] for impact in self.impacts).items():
            if times > 1:
                yield f"twice: {event} was carried out {times} times"

    def _early(self) -> Iterable[str]:
        for impact in self.impacts:
            event, t = impact["event"], impact["t"]
            asked = [wait.asked for approved, wait in self.approvals if approved == event]
            not_before = max((n for _, n in self._statuses(event)), default=0.0)
            if t < not_before and not any(a < t for a in asked):
                yield f"early: {event} was carried out {not_before - t:.1f} s before NotBefore"

    def _statuses(self, event: str) -> Iterable[tuple[str, float]]:
        for documents in self.shown.values():
            for document in documents:
                if event in document.events:
                    yield document.events[event]

    def _uninformed(self) -> Iterable[str]:
        """While it happens to a machine, that machine is shown it, so it was shown it before."""
        for impact in self.impacts:
            event, end = impact["event"], self.ends.get(impact["event"], 0.0)
            for machine in impact["machines"]:
                for poll in self._polls_within(machine, impact["t"], end):
                    if event not in self._document(machine, poll.asked).events:
                        yield f"uninformed: {machine} was not shown {event} when it happened"
                        break

    def _polls_within(self, machine: str, begin: float, end: float) -> Iterable[Wait]:
        polls = self._polls_of(machine)
        first = bisect_left(polls, begin, key=lambda poll: poll.asked)
        for poll in polls[first:]:
            if poll.asked > end:
                return
            if poll.t < end and not poll.problem:
                yield poll

    def _polls_of(self, machine: str) -> list[Wait]:
        if len(self._sorted) != len(self.shown):
            for poll in sorted(self.polls, key=lambda poll: poll.asked):
                self._sorted.setdefault(poll.machine, []).append(poll)
        return self._sorted.get(machine, [])

    def _document(self, machine: str, asked: float) -> Shown:
        """Return what a poll was answered with that was answered."""
        shown = self.shown[machine]
        return shown[bisect_right(shown, asked, key=lambda document: document.asked) - 1]

    def _backwards(self) -> Iterable[str]:
        for machine, documents in self.shown.items():
            for before, after in pairwise(documents):
                # Of two that were asked for at a time, either may be the earlier one.
                if after.incarnation < before.incarnation and after.asked > before.t:
                    yield (
                        f"backwards: {machine} was shown document {after.incarnation}"
                        f" after {before.incarnation}"
                    )

    def _unlike(self) -> Iterable[str]:
        texts: dict[tuple[str, int], set[str]] = {}
        for machine, documents in self.shown.items():
            for document in documents:
                key = (machine.partition("_")[0], document.incarnation)
                texts.setdefault(key, set()).add(document.text)
        for (group, incarnation), different in texts.items():
            if len(different) > 1:
                yield f"unlike: machines of {group} were shown different documents {incarnation}"

    def _refused(self) -> Iterable[str]:
        for poll in self._polls_of_nodes_that_ran():
            if poll.problem:
                yield f"refused: a poll of {poll.machine} at {poll.asked:.3f}: {poll.problem}"

    def _polls_of_nodes_that_ran(self) -> list[Wait]:
        return [
            poll
            for poll in self.polls
            if not any(
                absence.name == self.host_of[poll.machine]
                and absence.began <= poll.t
                and poll.asked <= absence.ended
                for absence in self.absences
            )
        ]

    # The figures.

    def table(self) -> str:
        """The faults in order of the longest wait that they caused."""
        rows = [("fault", "times", "longest poll", "longest approval", "well again after")]
        found = []
        polls = self._polls_of_nodes_that_ran()
        for name in sorted({fault.name for fault in self.faults}):
            faults = [fault for fault in self.faults if fault.name == name]
            waits = [_longest(polls, fault) for fault in faults]
            approvals = [_longest([w for _, w in self.approvals], fault) for fault in faults]
            again = max(fault.well - fault.ended for fault in faults)
            found.append((max(waits), max(approvals), again, name, len(faults)))
        for poll, approval, again, name, times in sorted(found, reverse=True):
            rows.append((name, str(times), f"{poll:.2f} s", f"{approval:.2f} s", f"{again:.1f} s"))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)


def _read(line: dict[str, Any]) -> Shown:
    document = json.loads(line["answer"])
    events = {
        event["EventId"]: (
            event["EventStatus"],
            parsedate_to_datetime(event["NotBefore"]).timestamp() if event["NotBefore"] else 0.0,
        )
        for event in document["Events"]
    }
    incarnation = document["DocumentIncarnation"]
    return Shown(line["asked"], line["t"], incarnation, events, line["answer"])


def _longest(waits: Iterable[Wait], fault: Fault) -> float:
    """The longest of the requests that were under way in a fault, or before all was well again."""
    during = [w.seconds for w in waits if w.t >= fault.began and w.asked <= fault.well]
    return max(during, default=0.0)
