"""Starts and impacts against NotBefore, approvals and what the event announced.

Absent an approval that could have arrived, nothing starts early, nor in the pause after an
interruption.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .assent import Assents
from .document import Document
from .facts import Facts, Known
from .order import TOLERANCE, Sighting
from .pauses import Pauses
from .records import Impact, Trace
from .verdict import Docket


@dataclass(slots=True)
class _Span:
    """When a document was seen: the first and last sightings, as far as they are certain."""

    seen: Sighting  # the one that was complete first
    first_asked: float
    last: Sighting  # the one that was asked for last


class Timing:
    def __init__(self, trace: Trace, assents: Assents, docket: Docket) -> None:
        self._docket = docket
        self._assents = assents
        self._pauses = Pauses(trace)
        self._blur = trace.backstep
        self._spans: dict[Document, _Span] = {}

    def note(self, sighting: Sighting) -> None:
        exchange = sighting.exchange
        span = self._spans.get(sighting.document)
        if span is None:
            self._spans[sighting.document] = _Span(sighting, exchange.asked, sighting)
            return
        if exchange.t < span.seen.exchange.t:
            span.seen = sighting
        span.first_asked = min(span.first_asked, exchange.asked)
        if span.last.exchange.asked < exchange.asked:
            span.last = sighting

    def judge(self, impacts: Iterable[Impact], facts: Facts, gone: Mapping[str, float]) -> None:
        started: dict[str, Sighting] = {}
        first_scheduled: dict[str, float] = {}
        last_scheduled: dict[str, Sighting] = {}
        for document, span in self._spans.items():
            for event in document.events or ():
                self._pauses.note(event.id, span.seen.exchange.t, span.last.exchange.asked)
                if event.started:
                    best = started.setdefault(event.id, span.seen)
                    if span.seen.exchange.t < best.exchange.t:
                        started[event.id] = span.seen
                else:
                    first = first_scheduled.get(event.id, math.inf)
                    first_scheduled[event.id] = min(first, span.first_asked)
                    last = last_scheduled.setdefault(event.id, span.last)
                    if last.exchange.asked < span.last.exchange.asked:
                        last_scheduled[event.id] = span.last
        for id, sighting in started.items():
            # First seen as Started and then as Scheduled: that went backwards, not early.
            if first_scheduled.get(id, math.inf) <= sighting.exchange.t:
                self._judge_start(id, facts.known[id], sighting, last_scheduled[id])
        touched: set[tuple[str, str]] = set()
        for impact in impacts:
            known = facts.known.get(impact.event)
            if known is not None:
                self._pauses.note(impact.event, impact.t, impact.t)
                scheduled = last_scheduled.get(impact.event)
                self._judge_impact(impact, known, scheduled, gone)
            for machine in impact.machines:
                if (impact.event, machine) in touched:
                    self._say("impact-twice", f"{machine} was touched a second time.", impact)
                touched.add((impact.event, machine))

    def _judge_start(self, id: str, known: Known, sighting: Sighting, scheduled: Sighting) -> None:
        t = sighting.exchange.t
        if not self._assents.none(id, t):
            return
        if self._early(known, t):
            early = _seconds(known, t)
            rule = "early-start"
            says = f"It was Started {early} s before its NotBefore, and nobody had approved."
        elif (began := self._paused(known, t, scheduled)) is not None:
            rule = "grace-start"
            says = (
                f"It was Started {t - began:.3f} s after an interruption, and nobody had approved."
            )
        else:
            return
        self._docket.add(
            rule,
            says,
            t=t,
            event=id,
            group=sighting.caller.group,
            machine=sighting.caller.machine,
        )

    def _early(self, known: Known, t: float) -> bool:
        not_before = known.not_before
        return not_before is not None and t + TOLERANCE + self._blur < not_before

    def _paused(self, known: Known, t: float, scheduled: Sighting) -> float | None:
        if t < scheduled.exchange.asked:
            return None  # it was still Scheduled after that, which is worse
        return self._pauses.began(t, known.not_before, scheduled)

    def _judge_impact(
        self,
        impact: Impact,
        known: Known,
        scheduled: Sighting | None,
        gone: Mapping[str, float],
    ) -> None:
        margin = TOLERANCE + self._blur
        if scheduled is not None and self._assents.none(impact.event, impact.t):
            self._judge_unapproved(impact, known, scheduled)
        if scheduled is not None and impact.t + margin < scheduled.exchange.asked:
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

    def _judge_unapproved(self, impact: Impact, known: Known, scheduled: Sighting) -> None:
        if self._early(known, impact.t):
            early = _seconds(known, impact.t)
            says = f"It was carried out {early} s before its NotBefore, and nobody had approved."
            self._say("impact-early", says, impact)
        elif (began := self._paused(known, impact.t, scheduled)) is not None:
            after = f"{impact.t - began:.3f} s after an interruption"
            self._say(
                "grace-start", f"It was carried out {after}, and nobody had approved.", impact
            )

    def _say(self, rule: str, says: str, impact: Impact) -> None:
        machine = impact.machines[0] if impact.machines else None
        self._docket.add(rule, says, t=impact.t, event=impact.event, machine=machine)


def _seconds(known: Known, t: float) -> str:
    assert known.not_before is not None
    return f"{known.not_before - t:.3f}".rstrip("0").rstrip(".")
