"""Judges approvals: which events must have started, and which ids may be approved.

An event that was approved, or whose NotBefore has passed, may correctly wait for others. It is
reported only if a document shows nothing that it could wait for, and an unchanged incarnation
proves that there was nothing since the event was free to start.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass

from forewarn.judge.answers.request import Request
from forewarn.judge.dialect import GUID, LAST_WAVE, WAITING_TYPES
from forewarn.judge.findings import Findings
from forewarn.judge.holds.standing_holds import StandingHolds
from forewarn.judge.holds.unannounced import UnannouncedEvents
from forewarn.judge.holds.windows import Windows
from forewarn.judge.reading.disconnected_times import DisconnectedTime
from forewarn.judge.reading.document import Document, Event
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK, Caller, Fleets
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import TOLERANCE, Order, Period, Sighting
from forewarn.judge.reading.records import Exchange, Trace

from .joints import JointProgress

# The approver sees the start in the next GET; everyone else must see it this much later.
APPROVAL_GRACE = 5.0
# After an outage nothing starts by NotBefore for 60 s; twice that leaves no doubt.
NOT_BEFORE_GRACE = 120.0
# Approvals and ended events are remembered for the retention of the history, at least a day.
RETENTION = 24 * 3600.0
# Responses after which an approval has, or may have, taken effect.
_EFFECTIVE = frozenset({200, 500, None})


class EarliestApprovals:
    """When each event may first have been approved.

    An approval without a response may have arrived, and so may one that could not be read.
    """

    def __init__(self, trace: Trace, gaps: Gaps) -> None:
        self._clock_error = trace.clock_error
        self._definite = trace.definite
        self._stops = (*trace.downs, *(gap.t for gap in trace.gaps))  # killed, it may have stopped
        self._gaps = gaps
        self._uncertain_from = trace.approvals_uncertain_from
        self._recorded = trace.recorded
        self._approved: dict[str, float] = {}  # the earliest possible time, by event
        self._by_failure: set[str] = set()  # approved by a request that has failed
        slack = 0.0 if trace.complete else RECORD_SLACK
        for approval in trace.approvals:
            self._may_approve(approval.event, approval.t - slack)

    def add(self, exchange: Exchange, request: Request) -> None:
        """Add a POST, whatever its answer was: a fault may hide that it took effect."""
        if exchange.fault or (exchange.status in _EFFECTIVE and not self._failed(exchange)):
            for id in request.mentions:
                self._may_approve(id, exchange.asked)
        elif exchange.status == 500:
            self._by_failure.update(id for id in request.mentions if self._caused(exchange, id))

    def _caused(self, exchange: Exchange, id: str) -> bool:
        """Return whether the service says that the event was approved by just this request."""
        event = self._recorded.get(id)
        return (
            event is not None
            and event.approved is not None
            and exchange.machine is not None
            and event.approved_by == exchange.machine
            and exchange.asked - TOLERANCE <= event.approved <= exchange.t + TOLERANCE
        )

    def _failed(self, exchange: Exchange) -> bool:
        """Return whether a 500 means that nothing has happened: it comes from the process that has
        the store, which is not being stopped."""
        return (
            exchange.status == 500
            and self._definite
            and exchange.host is None
            and not any(exchange.asked <= t <= exchange.t + RECORD_SLACK for t in self._stops)
        )

    def _may_approve(self, id: str, t: float) -> None:
        self._approved[id] = min(t, self._approved.get(id, math.inf))

    def is_recorded(self, id: str) -> bool:
        """Return whether an approval of the event is in the recording."""
        return id in self._approved

    def certainly_unapproved(self, id: str, t: float) -> bool:
        """Return whether the event cannot have been approved by then."""
        return t + self._clock_error < min(
            self._approved.get(id, math.inf),
            math.inf if id in self._by_failure else self._gaps.hidden_approval(id),
            self._uncertain_from,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Post:
    """A well-formed approval that was answered."""

    exchange: Exchange
    request: Request
    caller: Caller
    # It may have been answered while the machine was disconnected.
    disconnected: DisconnectedTime | None = None
    certainly_disconnected: bool = False


@dataclass(frozen=True, slots=True)
class _FreeSince:
    """Since when an event was seen free to start, with an unchanged list of events."""

    period: Period
    incarnation: int
    t: float


@dataclass(frozen=True, slots=True)
class Holds:
    """What may hold an event although no document of its group shows it."""

    joint_progress: JointProgress
    windows: Windows
    unannounced: UnannouncedEvents
    standing: StandingHolds


class WaitingEvents:
    """The events of one group that should have started and have not."""

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
        self._interruptions = trace.interruptions
        slack = order.clock_error + (0.0 if trace.complete else RECORD_SLACK)
        self._operator_approvals = {line.event: line.t + slack for line in trace.approvals}
        self._order = order
        self._fleets = fleets
        self._facts = facts
        self._findings = findings
        self._acknowledged: dict[str, dict[str | None, Exchange]] = {}
        self._first: dict[tuple[Period, int], Exchange] = {}
        self._free: dict[tuple[str, str], _FreeSince] = {}
        self._seen_free: dict[int, tuple[tuple[tuple[str, str], float], ...]] = {}

    def settle_post(self, post: Post) -> None:
        if post.exchange.status == 200:
            for id in post.request.approves:
                approvals = self._acknowledged.setdefault(id, {})
                approvals.setdefault(post.caller.machine, post.exchange)

    def settle(self, sighting: Sighting) -> None:
        period, incarnation = sighting.period, sighting.document.incarnation
        if period is None or incarnation is None:
            return
        if sighting.document.version.wave == LAST_WAVE:
            self._first.setdefault((period, incarnation), sighting.exchange)
        for key, clear_since in self._seen_free.pop(sighting.exchange.index, ()):
            free = self._free.get(key)
            if free is None or (free.period, free.incarnation) != (period, incarnation):
                free = self._free[key] = _FreeSince(period, incarnation, sighting.exchange.t)
            self._holds.joint_progress.set_free(
                key, max(free.t, clear_since), sighting.exchange.asked
            )

    def judge(self, sighting: Sighting) -> None:
        document, asked = sighting.document, sighting.exchange.asked
        if sighting.period is None or document.incarnation is None:
            return
        if document.version.wave < LAST_WAVE:
            return  # what holds the event may be of a kind that this version hides
        now = asked - TOLERANCE - self._order.clock_error
        due = document.first_due is not None and document.first_due < now
        if not due and self._acknowledged.keys().isdisjoint(document.scheduled):
            return
        assert document.events is not None
        free_events: list[tuple[tuple[str, str], float]] = []
        for event in document.events:
            due = event.not_before is not None and event.not_before < now
            approved = event.id in self._acknowledged
            if event.started or not (due or approved) or self._may_be_held(event, document):
                continue
            if not self._holds.windows.open(event.id, asked, sighting.exchange.t):
                continue
            if event.source != "User" and self._holds.windows.may_hold(sighting.caller.group):
                continue
            clear_since = self._held_until(event, sighting)
            if due:
                free_events.append((("due", event.id), clear_since))
                self._judge_due(event, clear_since, sighting)
            if approved and not self._coupled(event, document, None):
                free_events.append((("approved", event.id), clear_since))
                self._judge_approved(event, clear_since, sighting)
        if free_events:
            self._seen_free[sighting.exchange.index] = tuple(free_events)

    def approved(self, id: str, sighting: Sighting) -> bool:
        """Return whether it was certainly approved before this document was asked for."""
        asked = sighting.exchange.asked
        return id in self._acknowledged or self._operator_approvals.get(id, math.inf) < asked

    def may_wait(self, event: Event, sighting: Sighting) -> bool:
        """Return whether an approved event that this document shows Scheduled may have to wait."""
        return (
            self._may_be_held(event, sighting.document)
            or self._coupled(event, sighting.document, None)
            or not self._holds.joint_progress.is_single(event.id)
            or not self._holds.windows.open(event.id, sighting.exchange.asked, math.inf)
            or (event.source != "User" and self._holds.windows.may_hold(sighting.caller.group))
            or self._unannounced_until(event, sighting) > -math.inf
            or self._holds.standing.until(event.id, math.inf) > -math.inf
        )

    def _judge_due(self, event: Event, clear_since: float, sighting: Sighting) -> None:
        if self._time_free(("due", event.id), clear_since, sighting) > NOT_BEFORE_GRACE:
            message = "NotBefore has long passed, nothing holds it, and it is still Scheduled."
            self._findings.add_seen("late-start", message, sighting, event.id)

    def _judge_approved(self, event: Event, clear_since: float, sighting: Sighting) -> None:
        assert sighting.period is not None
        assert sighting.document.incarnation is not None
        if self._time_free(("approved", event.id), clear_since, sighting) > APPROVAL_GRACE:
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
        if not self._holds.joint_progress.is_single(event.id) or clear_since >= approval.asked:
            return
        if not self._holds.windows.open(event.id, approval.asked, exchange.t):
            return
        # The array was the same before the approval as it is now, so nothing held it then.
        if not self._coupled(event, sighting.document, approval):
            message = (
                "It was approved, nothing holds it, and the approver's next GET shows Scheduled."
            )
            self._findings.add_seen("lost-approval", message, sighting, event.id)

    def _time_free(self, key: tuple[str, str], clear_since: float, sighting: Sighting) -> float:
        """Return for how long the event, and all that start with it, were certainly free to start.

        Until `clear_since` something may have held it that no document shows.
        """
        free = self._free.get(key)
        if free is None or (free.period, free.incarnation) != (
            sighting.period,
            sighting.document.incarnation,
        ):
            return 0.0
        together = self._holds.joint_progress.all_free(key)
        if together is None:
            return 0.0
        # What was asked for before an interruption may have waited through all of it.
        count = bisect_right(self._interruptions, sighting.exchange.t + RECORD_SLACK)
        since = max(free.t, clear_since, together[0])
        if count:
            since = max(since, self._interruptions[count - 1])
        return min(sighting.exchange.asked, together[1]) - since - self._order.clock_error

    def _may_be_held(self, event: Event, document: Document) -> bool:
        """Return whether another Started event may hold this one, by its machines or domain."""
        if not self._fleets.moved.isdisjoint(event.resources):
            return True
        if event.type not in WAITING_TYPES:
            return False
        assert document.events is not None
        return any(
            other.started and self._may_hold(event, other.resources) for other in document.events
        )

    def _may_hold(self, event: Event, machines: tuple[str, ...] | None) -> bool:
        """Return whether an impact on these machines (None: unknown) may hold the event."""
        if machines is None or not set(event.resources).isdisjoint(machines):
            return True
        facts = self._facts.events.get(event.id)
        if facts is not None and facts.facts.get("source") == "User":
            return False
        domains = self._fleets.domain(event.resources)
        return domains is None or domains != self._fleets.domain(machines)

    def _held_until(self, event: Event, sighting: Sighting) -> float:
        """When the last thing was certainly over that no document shows and that may hold it."""
        standing = self._holds.standing.until(event.id, sighting.exchange.t)
        return max(standing, self._unannounced_until(event, sighting))

    def _unannounced_until(self, event: Event, sighting: Sighting) -> float:
        """When the last unannounced event was certainly over that may hold it."""
        if event.type not in WAITING_TYPES:
            return -math.inf
        return self._holds.unannounced.until(
            event.id,
            sighting.caller.group,
            sighting.exchange.t,
            lambda machines: self._may_hold(event, machines),
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
    unannounced: UnannouncedEvents,
    gapless: bool,
    findings: Findings,
) -> None:
    """Report a 200 for an id that the group cannot have been shown."""
    group, machine = post.caller.group, post.caller.machine
    if post.exchange.status != 200:
        return
    for id in post.request.approves:
        facts_of_event = facts.events.get(id)
        groups_shown = facts_of_event.groups if facts_of_event is not None else {}
        if not GUID.fullmatch(id):
            message = f"An approval of {id[:60]!r}, which is not an EventId, was accepted."
        elif (
            group is not None
            and machine not in fleets.moved
            and groups_shown
            and group not in groups_shown
        ):
            message = f"An approval from {group} of an event of {min(groups_shown)} was accepted."
        elif id in unannounced.ids and facts_of_event is None:
            message = "An approval of an unannounced event was accepted."
        elif gapless and facts_of_event is None:
            message = "An approval of an event that was never shown was accepted."
        else:
            continue
        findings.add(
            "approval-accepted", message, t=post.exchange.t, event=id, group=group, machine=machine
        )
