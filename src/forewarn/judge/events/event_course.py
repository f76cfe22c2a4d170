"""Judges the course of events over time: their status, their return, their position, their notice.

Goes through the sightings and approvals of each group in the order that is certain; incarnations
and waiting events are judged at the same time.
"""

from collections.abc import Iterable

from forewarn.judge.answers.incarnation import Incarnations
from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.dialect import WAVE
from forewarn.judge.findings import Findings
from forewarn.judge.reading.document import Document, Event
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import Fleets
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import Order, Sighting
from forewarn.judge.reading.records import Trace

from .approvals import RETENTION, EarliestApprovals, Holds, Post, WaitingEvents
from .deletions import Deletions
from .disappearances import Disappearances, Evidence
from .joints import JointProgress
from .notice import Notices


class EventCourse:
    def __init__(
        self,
        trace: Trace,
        order: Order,
        gaps: Gaps,
        fleets: Fleets,
        facts: Facts,
        holds: Holds,
        approvals: EarliestApprovals,
        sightings: Sightings,
        findings: Findings,
    ) -> None:
        self._holds = holds
        self._trace = trace
        self._gaps = gaps
        self._order = order
        self._fleets = fleets
        self._facts = facts
        self._approvals = approvals
        self._sightings = sightings
        self._findings = findings
        self._groups: dict[str, _GroupCourse] = {}

    def walk(self, items: Iterable[Sighting | Post]) -> None:
        for step in self._order.sweep(items):
            item = step.item
            group = self._group(item.caller.key or "")
            match item:
                case Sighting(disconnected=True):  # may be behind the others
                    if step.action == "judge":
                        group.incarnations.compare(item)
                case Sighting() if step.action == "judge":
                    group.incarnations.judge(item)
                    group.incarnations.compare(item)
                    group.waits.judge(item)
                    group.judge(item)
                case Sighting():
                    group.incarnations.settle(item)
                    group.waits.settle(item)
                    group.settle(item)
                case Post() if step.action == "judge":
                    if item.disconnected is None:
                        group.judge_refused(item)
                case Post():
                    group.waits.settle_post(item)
        for group in self._groups.values():
            group.disappearances.finish()

    def _group(self, key: str) -> "_GroupCourse":
        group = self._groups.get(key)
        if group is None:
            waits = WaitingEvents(
                self._trace, self._order, self._fleets, self._facts, self._holds, self._findings
            )
            known = self._trace, self._order, self._gaps, self._approvals, self._sightings
            evidence = Evidence(*known, self._facts)
            notices = Notices(*known, self._findings)
            disappearances = Disappearances(evidence, notices, waits, self._findings)
            joint_progress = self._holds.joint_progress
            group = self._groups[key] = _GroupCourse(
                self._findings, waits, notices, disappearances, joint_progress
            )
        return group

    def delisted(self) -> dict[str, float]:
        """Return when each event was first certainly not listed any more."""
        times: dict[str, float] = {}
        for group in self._groups.values():
            for id, t in group.delisted.items():
                times[id] = min(t, times.get(id, t))
        return times


class _GroupCourse:
    """The certain facts about the events of one group so far."""

    def __init__(
        self,
        findings: Findings,
        waits: WaitingEvents,
        notices: Notices,
        disappearances: Disappearances,
        joint_progress: JointProgress,
    ) -> None:
        self._findings = findings
        self._company = joint_progress
        self.waits = waits
        self.disappearances = disappearances
        self._notices = notices
        self.incarnations = Incarnations(findings)
        self._deletions = Deletions()
        self.delisted: dict[str, float] = {}
        self._listed: dict[str, int] = {}  # the highest wave of a version that listed it
        self._started: set[str] = set()
        self._live: dict[str, str] = {}
        self._last = float("-inf")
        # Most polls repeat a document; these sets make them cheap.
        self._settled: set[Document] = set()
        self._consistent: set[Document] = set()
        self._missing: dict[int, tuple[str, ...]] = {}

    def judge(self, sighting: Sighting) -> None:
        document = sighting.document
        if document in self._consistent:
            return
        assert document.events is not None
        consistent = True
        for event in document.events:
            if event.id in self.delisted:
                message = "The event had ended and is listed again."
                self._findings.add_seen("came-back", message, sighting, event.id)
                consistent = False
            elif not event.started and event.id in self._started:
                message = "The event was Started and is Scheduled again."
                self._findings.add_seen("backwards", message, sighting, event.id)
                consistent = False
        newcomer = self._newcomer_ahead(document)
        if newcomer is not None:
            message = "A new event is listed before an older one."
            self._findings.add_seen("events-order", message, sighting, newcomer.id)
            consistent = False
        missing = tuple(
            id
            for id, kind in self._live.items()
            if id not in document.ids and WAVE[kind] <= document.version.wave
        )
        for event in self._deletions.outlived(document, missing):
            message = (
                "It is still Scheduled, though its machines were deleted by an event that is over."
            )
            self._findings.add_seen("outlived", message, sighting, event.id)
        newcomers = [event for event in document.events if event.id not in self._listed]
        renamed = self.disappearances.judge(sighting, missing, newcomers)
        for event in newcomers:
            if event.id not in renamed:
                self._notices.judge(event, sighting)
        if missing:
            self._missing[sighting.exchange.index] = missing
        elif consistent:
            self._consistent.add(document)

    def _newcomer_ahead(self, document: Document) -> Event | None:
        # Listed before by a version that would also have listed the newcomer, had it existed.
        assert document.events is not None
        widest = -1
        for event in reversed(document.events):
            wave = self._listed.get(event.id)
            if wave is not None:
                widest = max(widest, wave)
            elif WAVE[event.type] <= widest:
                return event
        return None

    def settle(self, sighting: Sighting) -> None:
        document = sighting.document
        self._last = max(self._last, sighting.exchange.t)
        missing = self._missing.pop(sighting.exchange.index, ())
        self._notices.settle(sighting)
        self.disappearances.settle(sighting, missing)
        if not missing and document in self._settled:
            return
        self._settled.add(document)
        self._consistent.clear()
        self._deletions.add(document)
        for id in missing:
            self.delisted.setdefault(id, sighting.exchange.t)
            self._company.set_gone(id, sighting.exchange.t)
            self._live.pop(id, None)
        assert document.events is not None
        for event in document.events:
            self._listed[event.id] = max(self._listed.get(event.id, 0), document.version.wave)
            if event.started:
                self._started.add(event.id)
            if event.id not in self.delisted:
                self._live[event.id] = event.type

    def judge_refused(self, post: Post) -> None:
        exchange = post.exchange
        if exchange.status != 400 or exchange.asked - self._last > RETENTION:
            return
        for id in post.request.approves:
            ended = self.delisted.get(id, exchange.asked)
            if id not in self._listed or exchange.asked - ended > RETENTION:
                return
        self._findings.add(
            "approval-refused",
            "An approval was refused, though the group was shown every event it names.",
            t=exchange.t,
            event=post.request.approves[0],
            group=post.caller.group,
            machine=post.caller.machine,
        )
