"""Events over time: never backwards, never back, new ones last and announced in time.

Walks through the sightings and approvals of each group in the order that is certain, and lets
incarnations and waiting events be judged on the same walk.
"""

from collections.abc import Iterable

from .approvals import RETENTION, EarliestApprovals, Holds, Post, Waits
from .deletions import Deletions
from .dialect import SIGHT
from .disappearances import Disappearances, Evidence
from .document import Document, Event
from .facts import Facts
from .findings import Findings
from .fleet import Fleets
from .incarnation import Incarnations
from .joints import Company
from .notice import Notices
from .order import Order, Sighting
from .records import Trace
from .sightings import Sightings


class EventCourse:
    def __init__(
        self,
        trace: Trace,
        order: Order,
        fleets: Fleets,
        facts: Facts,
        holds: Holds,
        approvals: EarliestApprovals,
        sightings: Sightings,
        findings: Findings,
    ) -> None:
        self._holds = holds
        self._trace = trace
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
                case Sighting() if step.what == "judge":
                    group.incarnations.judge(item)
                    group.waits.judge(item)
                    group.judge(item)
                case Sighting():
                    group.incarnations.settle(item)
                    group.waits.settle(item)
                    group.settle(item)
                case Post() if step.what == "judge":
                    group.judge_refused(item)
                case Post():
                    group.waits.settle_post(item)
        for group in self._groups.values():
            group.disappearances.finish()

    def _group(self, key: str) -> "_GroupCourse":
        group = self._groups.get(key)
        if group is None:
            waits = Waits(
                self._trace, self._order, self._fleets, self._facts, self._holds, self._findings
            )
            found = Evidence(
                self._trace, self._order, self._approvals, self._sightings, self._facts
            )
            notices = Notices(
                self._trace, self._order, self._approvals, self._sightings, self._findings
            )
            disappearances = Disappearances(found, notices, waits, self._findings)
            company = self._holds.company
            group = self._groups[key] = _GroupCourse(
                self._findings, waits, notices, disappearances, company
            )
        return group

    def gone(self) -> dict[str, float]:
        """When each event was certainly gone, for those that certainly were."""
        found: dict[str, float] = {}
        for group in self._groups.values():
            for id, t in group.gone.items():
                found[id] = min(t, found.get(id, t))
        return found


class _GroupCourse:
    """What is certain about the events of one group so far."""

    def __init__(
        self,
        findings: Findings,
        waits: Waits,
        notices: Notices,
        disappearances: Disappearances,
        company: Company,
    ) -> None:
        self._findings = findings
        self._company = company
        self.waits = waits
        self.disappearances = disappearances
        self._notices = notices
        self.incarnations = Incarnations(findings)
        self._deletions = Deletions()
        self.gone: dict[str, float] = {}
        self._listed: dict[str, int] = {}  # the widest sight of a version that listed it
        self._started: set[str] = set()
        self._live: dict[str, str] = {}
        self._last = float("-inf")
        # Most polls repeat what is known; these make them cheap.
        self._settled: set[Document] = set()
        self._agreed: set[Document] = set()
        self._missing: dict[int, tuple[str, ...]] = {}

    def judge(self, sighting: Sighting) -> None:
        document = sighting.document
        if document in self._agreed:
            return
        assert document.events is not None
        agreed = True
        for event in document.events:
            if event.id in self.gone:
                message = "The event was gone and is listed again."
                self._findings.add_seen("came-back", message, sighting, event.id)
                agreed = False
            elif not event.started and event.id in self._started:
                message = "The event was Started and is Scheduled again."
                self._findings.add_seen("backwards", message, sighting, event.id)
                agreed = False
        newcomer = self._newcomer_ahead(document)
        if newcomer is not None:
            message = "A new event stands before one that was there already."
            self._findings.add_seen("events-order", message, sighting, newcomer.id)
            agreed = False
        missing = tuple(
            id
            for id, kind in self._live.items()
            if id not in document.ids and SIGHT[kind] <= document.version.sight
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
        elif agreed:
            self._agreed.add(document)

    def _newcomer_ahead(self, document: Document) -> Event | None:
        # Listed before by a version that would have listed the newcomer too, had it been there.
        assert document.events is not None
        widest = -1
        for event in reversed(document.events):
            known = self._listed.get(event.id)
            if known is not None:
                widest = max(widest, known)
            elif SIGHT[event.type] <= widest:
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
        self._agreed.clear()
        self._deletions.note(document)
        for id in missing:
            self.gone.setdefault(id, sighting.exchange.t)
            self._company.found_gone(id, sighting.exchange.t)
            self._live.pop(id, None)
        assert document.events is not None
        for event in document.events:
            self._listed[event.id] = max(self._listed.get(event.id, 0), document.version.sight)
            if event.started:
                self._started.add(event.id)
            if event.id not in self.gone:
                self._live[event.id] = event.type

    def judge_refused(self, post: Post) -> None:
        exchange = post.exchange
        if exchange.status != 400 or exchange.asked - self._last > RETENTION:
            return
        for id in post.request.approves:
            over = self.gone.get(id, exchange.asked)
            if id not in self._listed or exchange.asked - over > RETENTION:
                return
        self._findings.add(
            "approval-refused",
            "An approval was refused, though the group was shown every event it names.",
            t=exchange.t,
            event=post.request.approves[0],
            group=post.caller.group,
            machine=post.caller.machine,
        )
