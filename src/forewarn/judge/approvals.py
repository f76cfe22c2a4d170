"""Approvals, and events that may go: what must have started, and which ids may be named.

An event that was approved, or whose NotBefore has passed, may rightly wait for others. It is
accused only when a document shows that nothing it could wait for is there, and an unchanged
incarnation proves that nothing was there since it was free to go.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass

from .dialect import FULL_SIGHT, GUID, PATIENT
from .document import Document, Event
from .facts import Facts
from .findings import Findings
from .fleet import RECORD_SLACK, Caller, Fleets
from .joints import Company
from .order import TOLERANCE, Order, Period, Sighting
from .records import Exchange, Trace
from .request import Request
from .unannounced import UnannouncedEvents
from .windows import Windows

# The approver sees the start in the next GET; everyone else must see it this much later.
APPROVAL_GRACE = 5.0
# After an outage nothing starts by NotBefore for 60 s; twice that leaves no doubt.
NOT_BEFORE_GRACE = 120.0
# Who approved, what is over: kept for the history's retention, which is a day at the least.
RETENTION = 24 * 3600.0
# Responses after which an approval has, or may have, taken effect.
_EFFECTIVE = frozenset({200, 500, None})


class EarliestApprovals:
    """When each event may first have been approved.

    An approval without a response may have arrived, and so may one that could not be read.
    """

    def __init__(self, trace: Trace) -> None:
        self._blur = trace.backstep
        self._doubt = trace.doubt
        self._approved: dict[str, float] = {}  # the earliest moment it may have been
        slack = 0.0 if trace.complete else RECORD_SLACK
        for approval in trace.approvals:
            self._may_approve(approval.event, approval.t - slack)

    def note(self, exchange: Exchange, request: Request) -> None:
        """A POST, whatever came of it. A fault may hide an answer, not undo what was asked."""
        if exchange.status in _EFFECTIVE or exchange.fault:
            for id in request.mentions:
                self._may_approve(id, exchange.asked)

    def _may_approve(self, id: str, t: float) -> None:
        self._approved[id] = min(t, self._approved.get(id, math.inf))

    def named(self, id: str) -> bool:
        """Whether an approval of it is in the recording."""
        return id in self._approved

    def none(self, id: str, t: float) -> bool:
        """Whether nobody can have approved the event by then."""
        return t + self._blur < min(self._approved.get(id, math.inf), self._doubt)


@dataclass(frozen=True, eq=False, slots=True)
class Post:
    """A well-formed approval that was answered."""

    exchange: Exchange
    request: Request
    caller: Caller


@dataclass(frozen=True, slots=True)
class _Free:
    """Since when an event was seen free to go, under one unchanged array."""

    period: Period
    incarnation: int
    t: float


@dataclass(frozen=True, slots=True)
class Holds:
    """What may hold an event that no document of its group shows."""

    company: Company
    windows: Windows
    hidden: UnannouncedEvents


class Waits:
    """Of one group: who may go and does not."""

    def __init__(
        self,
        trace: Trace,
        order: Order,
        fleets: Fleets,
        facts: Facts,
        holds: Holds,
        findings: Findings,
    ) -> None:
        self._holds = holds
        self._breaks = trace.breaks
        slack = order.blur + (0.0 if trace.complete else RECORD_SLACK)
        self._approved_beside = {line.event: line.t + slack for line in trace.approvals}
        self._order = order
        self._fleets = fleets
        self._facts = facts
        self._findings = findings
        self._acknowledged: dict[str, dict[str | None, Exchange]] = {}
        self._first: dict[tuple[Period, int], Exchange] = {}
        self._free: dict[tuple[str, str], _Free] = {}
        self._seen_free: dict[int, tuple[tuple[tuple[str, str], float], ...]] = {}

    def settle_post(self, post: Post) -> None:
        if post.exchange.status == 200:
            for id in post.request.approves:
                by = self._acknowledged.setdefault(id, {})
                by.setdefault(post.caller.machine, post.exchange)

    def settle(self, sighting: Sighting) -> None:
        period, incarnation = sighting.period, sighting.document.incarnation
        if period is None or incarnation is None:
            return
        if sighting.document.version.sight == FULL_SIGHT:
            self._first.setdefault((period, incarnation), sighting.exchange)
        for key, cleared in self._seen_free.pop(sighting.exchange.index, ()):
            free = self._free.get(key)
            if free is None or (free.period, free.incarnation) != (period, incarnation):
                free = self._free[key] = _Free(period, incarnation, sighting.exchange.t)
            self._holds.company.found_free(key, max(free.t, cleared), sighting.exchange.asked)

    def judge(self, sighting: Sighting) -> None:
        document, asked = sighting.document, sighting.exchange.asked
        if sighting.period is None or document.incarnation is None:
            return
        if document.version.sight < FULL_SIGHT:
            return  # what holds the event may be of a kind that this version hides
        now = asked - TOLERANCE - self._order.blur
        due = document.first_due is not None and document.first_due < now
        if not due and self._acknowledged.keys().isdisjoint(document.scheduled):
            return
        assert document.events is not None
        seen: list[tuple[tuple[str, str], float]] = []
        for event in document.events:
            due = event.not_before is not None and event.not_before < now
            approved = event.id in self._acknowledged
            if event.started or not (due or approved) or self._held(event, document):
                continue
            if not self._holds.windows.open(event.id, asked, sighting.exchange.t):
                continue
            cleared = self._cleared(event, sighting)
            if due:
                seen.append((("due", event.id), cleared))
                self._judge_due(event, cleared, sighting)
            if approved and not self._coupled(event, document, None):
                seen.append((("approved", event.id), cleared))
                self._judge_approved(event, cleared, sighting)
        if seen:
            self._seen_free[sighting.exchange.index] = tuple(seen)

    def approved(self, id: str, sighting: Sighting) -> bool:
        """Whether it was certainly approved before this document was asked for."""
        asked = sighting.exchange.asked
        return id in self._acknowledged or self._approved_beside.get(id, math.inf) < asked

    def may_wait(self, event: Event, sighting: Sighting) -> bool:
        """Whether an approved event that this document shows Scheduled may have to wait."""
        return (
            self._held(event, sighting.document)
            or self._coupled(event, sighting.document, None)
            or not self._holds.company.goes_alone(event.id)
            or not self._holds.windows.open(event.id, sighting.exchange.asked, math.inf)
            or self._cleared(event, sighting) > -math.inf
        )

    def _judge_due(self, event: Event, cleared: float, sighting: Sighting) -> None:
        if self._waited(("due", event.id), cleared, sighting) > NOT_BEFORE_GRACE:
            message = "NotBefore has long passed, nothing holds it, and it is still Scheduled."
            self._findings.add_seen("late-start", message, sighting, event.id)

    def _judge_approved(self, event: Event, cleared: float, sighting: Sighting) -> None:
        assert sighting.period is not None
        assert sighting.document.incarnation is not None
        if self._waited(("approved", event.id), cleared, sighting) > APPROVAL_GRACE:
            message = "It was approved long since, nothing holds it, and it is still Scheduled."
            self._findings.add_seen("lost-approval", message, sighting, event.id)
            return
        machine = sighting.caller.machine
        approval = self._acknowledged[event.id].get(machine) if machine is not None else None
        first = self._first.get((sighting.period, sighting.document.incarnation))
        if approval is None or first is None or not self._order.before(first, approval):
            return
        # What no document of the group shows may have held it then.
        exchange = sighting.exchange
        if not self._holds.company.goes_alone(event.id) or cleared >= approval.asked:
            return
        if not self._holds.windows.open(event.id, approval.asked, exchange.t):
            return
        # The array was the same before the approval as it is now, so nothing held it then.
        if not self._coupled(event, sighting.document, approval):
            message = (
                "It was approved, nothing holds it, and the approver's next GET shows Scheduled."
            )
            self._findings.add_seen("lost-approval", message, sighting, event.id)

    def _waited(self, key: tuple[str, str], cleared: float, sighting: Sighting) -> float:
        """How long it certainly was free and served, up to this sighting: it and all that start
        with it. Until `cleared` something may have been there that no document shows."""
        free = self._free.get(key)
        if free is None or (free.period, free.incarnation) != (
            sighting.period,
            sighting.document.incarnation,
        ):
            return 0.0
        together = self._holds.company.free(key)
        if together is None:
            return 0.0
        # What was asked for before an interruption may have waited through all of it.
        broken = bisect_right(self._breaks, sighting.exchange.t + RECORD_SLACK)
        since = max(free.t, cleared, together[0])
        if broken:
            since = max(since, self._breaks[broken - 1])
        return min(sighting.exchange.asked, together[1]) - since - self._order.blur

    def _held(self, event: Event, document: Document) -> bool:
        """Whether another Started event may hold this one: its machines, or the domain slot."""
        if not self._fleets.moved.isdisjoint(event.resources):
            return True
        if event.type not in PATIENT:
            return False
        assert document.events is not None
        return any(
            other.started and self._in_the_way(event, other.resources) for other in document.events
        )

    def _in_the_way(self, event: Event, machines: tuple[str, ...] | None) -> bool:
        """Whether something done to these machines (None: to which, is not known) may hold it."""
        if machines is None or not set(event.resources).isdisjoint(machines):
            return True
        known = self._facts.known.get(event.id)
        if known is not None and known.facts.get("source") == "User":
            return False
        mine = self._fleets.domain(event.resources)
        return mine is None or mine != self._fleets.domain(machines)

    def _cleared(self, event: Event, sighting: Sighting) -> float:
        """When the last thing was certainly over that no document shows and that may hold it."""
        if event.type not in PATIENT:
            return -math.inf
        return self._holds.hidden.until(
            event.id,
            sighting.caller.group,
            sighting.exchange.t,
            lambda machines: self._in_the_way(event, machines),
        )

    def _coupled(self, event: Event, document: Document, since: Exchange | None) -> bool:
        """Whether a Terminate may wait for another one, not (since then) known as approved."""
        if event.type != "Terminate" or event.not_before is None:
            return False
        assert document.events is not None
        for other in document.events:
            if other.type != "Terminate" or other.id == event.id or other.not_before is None:
                continue
            if other.not_before > event.not_before:
                continue
            approvals = self._acknowledged.get(other.id, {}).values()
            if since is None and approvals:
                continue
            if since is not None and any(self._order.before(a, since) for a in approvals):
                continue
            return True
        return False


def judge_accepted(
    post: Post,
    facts: Facts,
    fleets: Fleets,
    hidden: UnannouncedEvents,
    gapless: bool,
    findings: Findings,
) -> None:
    """Accuse a 200 for an id that the group cannot have been shown."""
    group, machine = post.caller.group, post.caller.machine
    if post.exchange.status != 200:
        return
    for id in post.request.approves:
        known = facts.known.get(id)
        shown = known.groups if known is not None else {}
        if not GUID.fullmatch(id):
            message = f"An approval of {id[:60]!r}, which is no EventId, was accepted."
        elif group is not None and machine not in fleets.moved and shown and group not in shown:
            message = f"An approval from {group} of an event of {min(shown)} was accepted."
        elif id in hidden.ids and known is None:
            message = "An approval of an event that nobody is shown was accepted."
        elif gapless and known is None:
            message = "An approval of an event that was never shown was accepted."
        else:
            continue
        findings.add(
            "approval-accepted", message, t=post.exchange.t, event=id, group=group, machine=machine
        )
