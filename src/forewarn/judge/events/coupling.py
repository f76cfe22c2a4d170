"""Judges that Terminate events of one group start together with those that are due no later.

An approved Terminate waits for every other of its group that is due no later, until that one is
approved or its NotBefore has passed. Proof takes two sightings: both Scheduled side by side, and
later the one Started (or carried out) while the other is still Scheduled.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.judge.findings import Findings
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.order import TOLERANCE, Order, Period, Sighting
from forewarn.judge.reading.records import Impact, Trace

from .approvals import EarliestApprovals

_GroupPeriod = tuple[str, Period]  # a group in one enabled period


@dataclass(slots=True)
class _View:
    """A document that lists Terminate events, and when it was seen."""

    first_seen: Sighting  # the one that was complete first
    last_asked: float
    due: dict[str, int]  # the Scheduled ones, and their NotBefore
    started: tuple[str, ...]


class Couplings:
    def __init__(
        self, trace: Trace, order: Order, approvals: EarliestApprovals, findings: Findings
    ) -> None:
        self._order = order
        self._approvals = approvals
        self._findings = findings
        self._margin = TOLERANCE + trace.clock_error
        self._slack = 0.0 if trace.complete else RECORD_SLACK
        self._views: dict[_GroupPeriod, dict[object, _View | None]] = {}

    def add(self, sighting: Sighting) -> None:
        key, period, document = sighting.caller.key, sighting.period, sighting.document
        if key is None or period is None:
            return
        views = self._views.setdefault((key, period), {})
        if document not in views:
            views[document] = _view(sighting)
            return
        view = views[document]
        if view is None:
            return
        if sighting.exchange.t < view.first_seen.exchange.t:
            view.first_seen = sighting
        view.last_asked = max(view.last_asked, sighting.exchange.asked)

    def judge(self, impacts: Iterable[Impact]) -> None:
        impacts_by_event: dict[str, list[Impact]] = {}
        for impact in impacts:
            impacts_by_event.setdefault(impact.event, []).append(impact)
        for views in self._views.values():
            self._judge_group(
                [view for view in views.values() if view is not None], impacts_by_event
            )

    def _judge_group(self, views: list[_View], impacts_by_event: dict[str, list[Impact]]) -> None:
        waiting: dict[str, list[_View]] = {}  # by the deletes that they show Scheduled
        last: dict[str, float] = {}
        for view in views:
            for id in view.due:
                waiting.setdefault(id, []).append(view)
                last[id] = max(view.last_asked, last.get(id, view.last_asked))
        for view in views:
            for id in view.started:
                self._judge_start(id, view, waiting.get(id, ()))
        for id, before in waiting.items():
            for impact in impacts_by_event.get(id, ()):
                self._judge_impact(impact, before, last)

    def _judge_start(self, id: str, view: _View, before: Iterable[_View]) -> None:
        exchange = view.first_seen.exchange
        if self._approvals.certainly_unapproved(id, exchange.t):
            return  # then it started early, which another rule reports
        holding = {
            other
            for other, due in view.due.items()
            if exchange.t + self._margin < due
            and self._approvals.certainly_unapproved(other, exchange.t)
        }
        if not holding:
            return
        for earlier in before:
            if self._order.before(earlier.first_seen.exchange, exchange):
                for other in _no_later(id, earlier):
                    if other in holding and exchange.t + self._margin < earlier.due[other]:
                        self._report("It started", id, other, view.first_seen, exchange.t)
                        return

    def _judge_impact(
        self, impact: Impact, before: Iterable[_View], last: dict[str, float]
    ) -> None:
        margin = self._margin + self._slack
        if self._approvals.certainly_unapproved(impact.event, impact.t):
            return
        for earlier in before:
            if earlier.first_seen.exchange.t + margin >= impact.t:
                continue
            for other in _no_later(impact.event, earlier):
                if impact.t + margin < min(
                    earlier.due[other], last[other]
                ) and self._approvals.certainly_unapproved(other, impact.t + self._slack):
                    self._report(
                        "It was carried out", impact.event, other, earlier.first_seen, impact.t
                    )
                    return

    def _report(self, prefix: str, id: str, other: str, sighting: Sighting, t: float) -> None:
        message = f"{prefix}, though {other}, due no later, was neither approved nor expired."
        self._findings.add_seen("coupling", message, sighting, id, t=t)


def _view(sighting: Sighting) -> _View | None:
    deletes = [event for event in sighting.document.events or () if event.type == "Terminate"]
    if not deletes:
        return None
    return _View(
        sighting,
        sighting.exchange.asked,
        {event.id: event.not_before for event in deletes if event.not_before is not None},
        tuple(event.id for event in deletes if event.started),
    )


def _no_later(id: str, view: _View) -> list[str]:
    """Return the other Scheduled Terminate events in the view that are due no later."""
    return [other for other, due in view.due.items() if other != id and due <= view.due[id]]
