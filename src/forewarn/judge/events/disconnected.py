"""Judges what happens to machines that are disconnected, which are shown what their node was last
told.

Their documents are compared with each other only: they may be behind those of other machines until
they have joined again, and they never go back. An approval needs control, so a node that is
disconnected cannot accept one; and since the guests cannot be reached, nothing is begun that
concerns them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from forewarn.judge.dialect import WAVE
from forewarn.judge.findings import Findings
from forewarn.judge.reading.disconnected_times import DisconnectedTimes
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.order import TOLERANCE, Order, Period, Sighting
from forewarn.judge.reading.records import Trace

from .approvals import Post

BACKWARDS = "disconnected-backwards"
APPROVED = "disconnected-approved"
IMPACT = "disconnected-impact"


@dataclass(slots=True)
class _Shown:
    """What a machine was shown so far."""

    highest: dict[Period, int] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Course:
    """The documents of one machine so far: all of them, and those that it got while
    disconnected."""

    shown: _Shown = field(default_factory=_Shown)
    shown_while_disconnected: _Shown = field(default_factory=_Shown)
    live: dict[str, str] = field(default_factory=dict)  # the type of each event
    missing: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by exchange


class DisconnectedMachines:
    def __init__(
        self, trace: Trace, times: DisconnectedTimes, order: Order, findings: Findings
    ) -> None:
        self._trace = trace
        self._times = times
        self._order = order
        self._findings = findings
        self._margin = TOLERANCE + trace.clock_error + (0.0 if trace.complete else RECORD_SLACK)
        # By machine and event: when it was last shown the event as Scheduled, and when it was first
        # shown it as Started or no longer.
        self._scheduled: dict[tuple[str, str], Sighting] = {}
        self._begun: dict[tuple[str, str], float] = {}

    def judge(self, sightings: Iterable[Sighting], posts: Iterable[Post]) -> None:
        """Judge the documents of machines that were ever disconnected, their approvals, and
        impacts."""
        if not self._times.exist:
            return
        self._walk([s for s in sightings if self._times.of(s.caller.machine or "")])
        self._judge_approvals(posts)
        self._judge_impacts()

    def _walk(self, sightings: list[Sighting]) -> None:
        courses: dict[tuple[str | None, str | None], _Course] = {}
        for step in self._order.sweep(sightings):
            sighting = step.item
            key = sighting.caller.machine, sighting.caller.key
            course = courses.setdefault(key, _Course())
            if step.action == "judge":
                # What is wrong between two documents of a machine that is not disconnected is found
                # among those of its group.
                shown = course.shown if sighting.disconnected else course.shown_while_disconnected
                self._judge_document(sighting, shown)
                course.missing[sighting.exchange.index] = _missing(sighting, course)
            else:
                self._settle(sighting, course)

    def _judge_document(self, sighting: Sighting, shown: _Shown) -> None:
        document, period = sighting.document, sighting.period
        highest = shown.highest.get(period) if period is not None else None
        incarnation = document.incarnation
        if highest is not None and incarnation is not None and incarnation < highest:
            message = f"Its incarnation went down from {highest} to {incarnation}."
            self._findings.add_seen(BACKWARDS, message, sighting)
        for event in document.events or ():
            if event.id in shown.gone:
                message = "It was shown that the event had ended, and is shown it again."
                self._findings.add_seen(BACKWARDS, message, sighting, event.id)
            elif not event.started and event.id in shown.started:
                message = "It was shown the event as Started, and is shown it as Scheduled again."
                self._findings.add_seen(BACKWARDS, message, sighting, event.id)

    def _settle(self, sighting: Sighting, course: _Course) -> None:
        document, exchange = sighting.document, sighting.exchange
        machine = sighting.caller.machine or ""
        missing = course.missing.pop(exchange.index, ())
        for id in missing:
            course.live.pop(id, None)
            self._begun.setdefault((machine, id), exchange.t)
        for shown in (course.shown, course.shown_while_disconnected)[: 1 + sighting.disconnected]:
            shown.gone.update(missing)
            if sighting.period is not None and document.incarnation is not None:
                highest = shown.highest.get(sighting.period, 0)
                shown.highest[sighting.period] = max(highest, document.incarnation)
            shown.started.update(event.id for event in document.events or () if event.started)
        for event in document.events or ():
            if event.id not in course.shown.gone:
                course.live[event.id] = event.type
            if event.started:
                self._begun.setdefault((machine, event.id), exchange.t)
            else:
                last = self._scheduled.setdefault((machine, event.id), sighting)
                if last.exchange.asked < exchange.asked:
                    self._scheduled[machine, event.id] = sighting

    def _judge_approvals(self, posts: Iterable[Post]) -> None:
        posts = list(posts)
        approved: dict[str, float] = {line.event: line.t for line in self._trace.approvals}
        for post in posts:
            if post.exchange.status == 200 and not post.certainly_disconnected:
                for id in post.request.approves:
                    approved[id] = min(post.exchange.asked, approved.get(id, math.inf))
        for post in posts:
            if (
                post.exchange.status != 200
                or post.disconnected is None
                or not post.certainly_disconnected
            ):
                continue
            machine = post.caller.machine or ""
            for id in post.request.approves:
                # What is approved, started or over needs no approval any more; the node may have
                # been told so.
                known = approved.get(id, math.inf) <= post.disconnected.begin + self._margin
                begun = self._begun.get((machine, id), math.inf)
                if known or begun <= post.exchange.t:
                    continue
                message = "An approval was accepted while the machine was disconnected."
                self._findings.add(
                    APPROVED,
                    message,
                    t=post.exchange.t,
                    event=id,
                    group=post.caller.group,
                    machine=machine,
                )

    def _judge_impacts(self) -> None:
        """Report what was done to a machine that, disconnected, was still shown it as Scheduled.
        What was started while a machine was disconnected is reported by `held_starts.py`."""
        for impact in self._trace.impacts:
            for machine in impact.machines:
                scheduled = self._scheduled.get((machine, impact.event))
                if scheduled is None or not scheduled.disconnected:
                    continue
                if impact.t + self._margin < scheduled.exchange.asked and any(
                    time.certain
                    and time.begin + self._margin < impact.t
                    and impact.t + self._margin < time.end
                    for time in self._times.of(machine)
                ):
                    message = (
                        "It was carried out while the machine was disconnected and was shown it as"
                        " Scheduled."
                    )
                    self._findings.add(
                        IMPACT, message, t=impact.t, event=impact.event, machine=machine
                    )


def _missing(sighting: Sighting, course: _Course) -> tuple[str, ...]:
    """Return the events that the machine was shown before, and is not any more."""
    document = sighting.document
    return tuple(
        id
        for id, type in course.live.items()
        if id not in document.ids and WAVE[type] <= document.version.wave
    )
