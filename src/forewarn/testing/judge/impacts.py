"""Starts and impacts against NotBefore, approvals and what the event announced.

Absent an approval that could have arrived, nothing starts early. An approval without an answer
may have arrived; so may one that could not be read.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .document import Document
from .facts import Facts, Known
from .fleet import RECORD_SLACK
from .order import TOLERANCE, Sighting
from .records import Exchange, Impact, Trace
from .request import Request
from .verdict import Docket

# The answers after which an approval has, or may have, taken effect.
_EFFECTIVE = frozenset({200, 500, None})


@dataclass(slots=True)
class _Span:
    """When a document was seen: the first and last sightings, as far as they are certain."""

    seen: Sighting  # the one that was complete first
    first_asked: float
    last_asked: float


class Timing:
    def __init__(self, trace: Trace, docket: Docket) -> None:
        self._docket = docket
        self._slack = 0.0 if trace.complete else RECORD_SLACK
        self._blur = trace.backstep
        self._doubt = trace.doubt
        self._spans: dict[Document, _Span] = {}
        self._approved: dict[str, float] = {}  # the earliest moment it may have been
        for approval in trace.approvals:
            self._may_approve(approval.event, approval.t - self._slack)

    def note_post(self, exchange: Exchange, request: Request) -> None:
        # A fault may hide an answer, not undo what was asked.
        if exchange.status in _EFFECTIVE or exchange.fault:
            for id in request.mentions:
                self._may_approve(id, exchange.asked)

    def _may_approve(self, id: str, t: float) -> None:
        self._approved[id] = min(t, self._approved.get(id, math.inf))

    def _unapproved(self, id: str, t: float) -> bool:
        return t + self._blur < min(self._approved.get(id, math.inf), self._doubt)

    def note(self, sighting: Sighting) -> None:
        exchange = sighting.exchange
        span = self._spans.get(sighting.document)
        if span is None:
            self._spans[sighting.document] = _Span(sighting, exchange.asked, exchange.asked)
            return
        if exchange.t < span.seen.exchange.t:
            span.seen = sighting
        span.first_asked = min(span.first_asked, exchange.asked)
        span.last_asked = max(span.last_asked, exchange.asked)

    def judge(self, impacts: Iterable[Impact], facts: Facts, gone: Mapping[str, float]) -> None:
        started: dict[str, Sighting] = {}
        first_scheduled: dict[str, float] = {}
        last_scheduled: dict[str, float] = {}
        for document, span in self._spans.items():
            for event in document.events or ():
                if event.started:
                    best = started.setdefault(event.id, span.seen)
                    if span.seen.exchange.t < best.exchange.t:
                        started[event.id] = span.seen
                else:
                    first = first_scheduled.get(event.id, math.inf)
                    first_scheduled[event.id] = min(first, span.first_asked)
                    last = last_scheduled.get(event.id, -math.inf)
                    last_scheduled[event.id] = max(last, span.last_asked)
        for id, sighting in started.items():
            # First seen as Started and then as Scheduled: that went backwards, not early.
            if first_scheduled.get(id, math.inf) <= sighting.exchange.t:
                self._judge_start(id, facts.known[id], sighting)
        touched: set[tuple[str, str]] = set()
        for impact in impacts:
            known = facts.known.get(impact.event)
            if known is not None:
                self._judge_impact(impact, known, last_scheduled, gone)
            for machine in impact.machines:
                if (impact.event, machine) in touched:
                    self._say("impact-twice", f"{machine} was touched a second time.", impact)
                touched.add((impact.event, machine))

    def _judge_start(self, id: str, known: Known, sighting: Sighting) -> None:
        t = sighting.exchange.t
        if not self._early(known, t) or not self._unapproved(id, t):
            return
        self._docket.add(
            "early-start",
            f"It was Started {_early(known, t)} s before its NotBefore, and nobody had approved.",
            t=t,
            event=id,
            group=sighting.caller.group,
            machine=sighting.caller.machine,
        )

    def _early(self, known: Known, t: float) -> bool:
        not_before = known.not_before
        return not_before is not None and t + TOLERANCE + self._blur < not_before

    def _judge_impact(
        self,
        impact: Impact,
        known: Known,
        last_scheduled: Mapping[str, float],
        gone: Mapping[str, float],
    ) -> None:
        margin = TOLERANCE + self._blur
        if self._early(known, impact.t) and self._unapproved(impact.event, impact.t):
            early = _early(known, impact.t)
            says = f"It was carried out {early} s before its NotBefore, and nobody had approved."
            self._say("impact-early", says, impact)
        if impact.t + margin < last_scheduled.get(impact.event, -math.inf):
            says = "It was carried out, and after that it was still Scheduled."
            self._say("impact-while-scheduled", says, impact)
        if gone.get(impact.event, math.inf) + margin < impact.t:
            self._say("impact-after-gone", "It was gone, and then carried out.", impact)
        readings = known.machines()
        strays = [m for m in impact.machines if all(m not in names for names in readings)]
        if strays:
            says = f"{', '.join(strays)} was touched, which the event does not list."
            self._say("impact-stray", says, impact)
        if impact.type is not None and impact.type != known.facts["type"]:
            says = f"A {known.facts['type']} was announced, a {impact.type} was done."
            self._say("impact-type", says, impact)

    def _say(self, rule: str, says: str, impact: Impact) -> None:
        machine = impact.machines[0] if impact.machines else None
        self._docket.add(rule, says, t=impact.t, event=impact.event, machine=machine)


def _early(known: Known, t: float) -> str:
    assert known.not_before is not None
    return f"{known.not_before - t:.3f}".rstrip("0").rstrip(".")
