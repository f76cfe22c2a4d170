"""An independent referee of the core: it watches every decision and knows the promises by heart.

It takes no rule from the code it watches. What holds an event back, what ends one, who may
approve and when a document changes are written down here a second time, as plainly as possible.
"""

from __future__ import annotations

from forewarn.core import Changes, Group, Now, Refused, commands, due, view, why
from forewarn.core.changes import Change, Disabled, EventMoved
from forewarn.core.events import Event, EventType, Source, Status
from forewarn.core.holds import HoldKind
from forewarn.core.lifecycle import Move
from forewarn.core.time import SECOND, Duration, Time

NOTICE: dict[EventType, Duration] = {
    EventType.FREEZE: 15 * 60 * SECOND,
    EventType.REBOOT: 15 * 60 * SECOND,
    EventType.REDEPLOY: 10 * 60 * SECOND,
    EventType.PREEMPT: 30 * SECOND,
    EventType.TERMINATE: 5 * 60 * SECOND,
}
DELETES = (EventType.PREEMPT, EventType.TERMINATE)
STAGES = {Status.SCHEDULED: 0, Status.STARTED: 1, Status.FINISHED: 2, Status.WITHDRAWN: 2}


def grace_end(now: Now) -> Time:
    if now.steady_since is None:
        return 0
    return now.steady_since + round(now.rules.start_grace / now.rules.speed)


def expired(event: Event, now: Now) -> bool:
    return now.at >= event.not_before and now.at >= grace_end(now)


def waits_for_machine(event: Event) -> bool:
    return event.type not in DELETES and not event.failure


def waits_for_domain(event: Event) -> bool:
    return waits_for_machine(event) and event.source is Source.PLATFORM


def held_by(event: Event, events: tuple[Event, ...], now: Now) -> set[HoldKind]:
    """What holds a Scheduled event back, among these events of its group."""
    kinds: set[HoldKind] = set()
    others = [other for other in events if other.id != event.id]
    busy = [other for other in others if other.status is Status.STARTED]
    if event.approved is None:
        if now.at < event.not_before:
            kinds.add(HoldKind.NOTICE)
        if now.at < grace_end(now):
            kinds.add(HoldKind.GRACE)
    elif event.type is EventType.TERMINATE and not expired(event, now):
        for other in others:
            if (
                other.type is EventType.TERMINATE
                and other.status is Status.SCHEDULED
                and other.not_before <= event.not_before
                and other.approved is None
                and not expired(other, now)
            ):
                kinds.add(HoldKind.COUPLING)
    if waits_for_machine(event) and any(set(o.resources) & set(event.resources) for o in busy):
        kinds.add(HoldKind.MACHINE)
    if waits_for_domain(event) and any(o.domain != event.domain for o in busy):
        kinds.add(HoldKind.DOMAIN)
    return kinds


def facts(event: Event) -> tuple[object, ...]:
    """What is said once and never changes."""
    return (
        event.group,
        event.type,
        event.source,
        event.resources,
        event.domain,
        event.not_before,
        event.raised_at,
        event.by,
        event.description,
        event.duration,
        event.cause,
        event.failure,
    )


class Referee:
    """Remembers one group's past in its own words, and judges each commit against it."""

    def __init__(self) -> None:
        self.order: list[str] = []  # every id there ever was, in the order of raising
        self.last: dict[str, Event] = {}  # the last that is known of each
        self.facts: dict[str, tuple[object, ...]] = {}
        self.approved: set[str] = set()
        self.listed: set[str] = set()
        self.left: dict[str, set[str]] = {}
        self.last_get: Duration = 0

    @property
    def over(self) -> frozenset[str]:
        return frozenset(id for id in self.order if self.last[id].status.over)

    def polled(self, served: Duration) -> None:
        self.last_get = served

    def judge(
        self,
        before: Group,
        command: commands.Command,
        now: Now,
        decision: Changes | Refused,
        after: Group,
        served: Duration,
    ) -> None:
        self._answered(before, command, decision)
        if isinstance(decision, Refused):
            assert len(decision.says) > 10
            return
        self._notice_approvals(before, command, decision)
        self._enabling(before, command, now, decision, after, served)
        self._starts(before, decision.items, now)
        self._records(decision.items, now)
        self._endings(before, command, decision.items, after)
        self._standing(after)
        self._document(before, after)
        self._nothing_left_to_start(after, now)

    def _answered(
        self, before: Group, command: commands.Command, decision: Changes | Refused
    ) -> None:
        """Whoever may be answered is; whoever may not is refused."""
        refused = isinstance(decision, Refused)
        active = {event.id: event for event in before.events}
        match command:
            case commands.Approve(ids=ids):
                assert refused == (not self.listed.issuperset(ids)), (ids, self.listed)
            case commands.Overrule(id=id):
                assert refused == (id not in active)
            case commands.Cancel(id=id):
                assert refused == (id not in active or active[id].status is Status.STARTED)
            case commands.Finish(id=id, reason=reason):
                running = id in active and active[id].status is Status.STARTED
                assert refused == (not running or not reason.strip())
            case commands.Retry(id=id):
                attempt = active[id].attempt if id in active else None
                assert refused == (attempt is None or attempt.open)
            case commands.Restore(machine=name):
                found = [machine for machine in before.machines if machine.name == name]
                assert refused == (not found or found[0].alive)
            case commands.Maintain() | commands.Raise() | commands.Strike():
                pass  # judged by what comes of them
            case _:
                assert not refused

    def _notice_approvals(
        self, before: Group, command: commands.Command, decision: Changes
    ) -> None:
        scheduled = {e.id for e in before.events if e.status is Status.SCHEDULED}
        match command:
            case commands.Approve(ids=ids) if before.enabled:
                self.approved |= scheduled & set(ids)
            case commands.Overrule(id=id):
                self.approved |= scheduled & {id}
            case commands.Maintain(id=id, type=type):
                if not before.enabled or type in before.policy.auto_approve:
                    self.approved |= {id} & {decision.event}

    def _enabling(
        self,
        before: Group,
        command: commands.Command,
        now: Now,
        decision: Changes,
        after: Group,
        served: Duration,
    ) -> None:
        silence = now.rules.silence
        if silence is not None:
            silence = round(silence / now.rules.speed)
        silent = silence is not None and served - self.last_get >= silence
        if any(isinstance(item, Disabled) for item in decision.items):
            assert isinstance(command, commands.Disable) or silent
        if isinstance(command, commands.Tick) and before.enabled:
            assert after.enabled == (not silent)
        if isinstance(command, commands.Disable):
            assert not after.enabled
            assert after.enabling_until is None
        if isinstance(command, commands.Enable) and not before.enabled:
            delay = round(now.rules.enable_delay / now.rules.speed)
            assert after.enabled == (delay == 0)
        if after.enabled and not before.enabled:
            assert isinstance(command, commands.Enable | commands.Tick)
            self.polled(served)

    def _starts(self, before: Group, items: tuple[Change, ...], now: Now) -> None:
        """Walk through the commit: at the moment an event starts, nothing may hold it."""
        running = {event.id: event for event in before.events}
        for item in items:
            if not isinstance(item, EventMoved):
                continue
            event = item.event
            if item.what is Move.START:
                assert running[event.id].status is Status.SCHEDULED
                if event.id not in self.approved:
                    assert now.at >= event.not_before
                    assert now.at >= grace_end(now)
                assert not held_by(running[event.id], tuple(running.values()), now)
                assert event.started_at == now.at
            if event.status.over:
                del running[event.id]
            else:
                running[event.id] = event

    def _records(self, items: tuple[Change, ...], now: Now) -> None:
        """One event, one way through life, and nothing said once is ever said otherwise."""
        for item in items:
            if not isinstance(item, EventMoved):
                continue
            event = item.event
            if event.id not in self.last:
                assert item.what in (Move.RAISE, Move.STRIKE)
                self._raised(event, now)
            earlier = self.last.get(event.id)
            if earlier is not None:
                assert not earlier.status.over
                step = STAGES[event.status] - STAGES[earlier.status]
                assert step >= 0
                if event.status is Status.FINISHED:
                    assert earlier.status is Status.STARTED
                if event.status is Status.WITHDRAWN:
                    assert earlier.status is Status.SCHEDULED
                assert earlier.approved in (None, event.approved)
                assert earlier.started_at in (None, event.started_at)
                assert event.listed >= earlier.listed
                assert set(earlier.left) <= set(event.left) <= set(event.resources)
                if earlier.attempt:
                    assert event.attempt is not None
                    assert 0 <= event.attempt.number - earlier.attempt.number <= 1
            assert (event.approved is not None) == (event.id in self.approved)
            assert (event.ended_at is not None) == event.status.over
            assert bool(event.ending) == event.status.over
            self.last[event.id] = event
            self.facts.setdefault(event.id, facts(event))
            assert facts(event) == self.facts[event.id]

    def _raised(self, event: Event, now: Now) -> None:
        self.order.append(event.id)
        assert event.raised_at == now.at
        assert event.not_before % SECOND == 0
        assert event.not_before >= now.at
        assert len(set(event.resources)) == len(event.resources) > 0

    def _endings(
        self,
        before: Group,
        command: commands.Command,
        items: tuple[Change, ...],
        after: Group,
    ) -> None:
        moves = [item for item in items if isinstance(item, EventMoved)]
        ended = {item.event.id for item in moves if item.event.status.over}
        touched = {event.id for event in before.events} | {item.event.id for item in moves}
        alive = {machine.name for machine in after.machines if machine.alive}
        expected: set[str] = set()
        finished = self._finished(before, command)
        match command:
            case commands.Cancel(id=id):
                expected.add(id)
            case _ if finished is not None:
                expected.add(finished.id)
        if finished is not None and finished.type is EventType.REDEPLOY:
            for event in before.events:
                if event.id != finished.id and waits_for_domain(event):
                    moved = set(event.resources) & set(finished.resources)
                    self.left.setdefault(event.id, set()).update(moved)
        for id in touched:
            event = self.last[id]
            assert set(event.left) == self.left.get(id, set())
            staying = alive & set(event.resources) - set(event.left)
            if not alive & set(event.resources):
                expected.add(id)
            if event.left and not staying and event.status is not Status.STARTED:
                expected |= {id} - {i for i in touched if self.last[i].status is Status.FINISHED}
        for start in (item.event for item in moves if item.what is Move.START):
            if start.type in DELETES:
                beside = {i for i in touched if set(self.last[i].resources) <= set(start.resources)}
                expected |= beside - {start.id}
        assert ended == expected, (ended, expected)
        if finished is not None and finished.type in DELETES:
            assert not alive & set(finished.resources)

    @staticmethod
    def _finished(before: Group, command: commands.Command) -> Event | None:
        """The event that this command says is carried out."""
        active = {event.id: event for event in before.events}
        match command:
            case commands.Finish(id=id):
                return active[id]
            case commands.Answer(id=id, attempt=number, outcome=commands.Done()) if id in active:
                attempt = active[id].attempt
                if attempt and attempt.open and attempt.number == number:
                    return active[id]
        return None

    def _standing(self, after: Group) -> None:
        """What must be true of a group at any time."""
        ids = [event.id for event in after.events]
        assert ids == [id for id in self.order if not self.last[id].status.over]
        assert all(event == self.last[event.id] for event in after.events)
        for event in after.events:
            assert event.listed or not after.enabled
            assert (event.status is Status.STARTED) == (event.attempt is not None)
            for delete in after.events:
                if delete.type in DELETES and delete.status is Status.STARTED:
                    assert delete == event or not set(event.resources) <= set(delete.resources)

    def _document(self, before: Group, after: Group) -> None:
        """The incarnation changes with the events shown, and with nothing else."""
        was, is_ = view(before), view(after)
        if not is_.enabled:
            assert is_.events == ()
            return
        self.listed |= {event.id for event in is_.events}
        assert [event.id for event in is_.events] == [event.id for event in after.events]
        for shown, event in zip(is_.events, after.events, strict=True):
            assert shown.status is event.status
            assert shown.not_before == (
                event.not_before if event.status is Status.SCHEDULED else None
            )
            assert (shown.type, shown.resources) == (event.type, event.resources)
            assert (shown.source, shown.duration) == (event.source, event.duration)
            assert shown.description == event.description
        if not was.enabled:
            assert is_.incarnation == 1
        elif was.events == is_.events:
            assert is_.incarnation == was.incarnation
        else:
            assert is_.incarnation > was.incarnation

    def _nothing_left_to_start(self, after: Group, now: Now) -> None:
        """Every decision starts all that it sets free; whatever still waits can say why."""
        for event in after.events:
            if event.status is not Status.SCHEDULED:
                assert why(after, event.id, now) == ()
                continue
            kinds = held_by(event, after.events, now)
            assert kinds, event
            holds = why(after, event.id, now)
            assert {hold.kind for hold in holds} == kinds
            assert len(holds) == len(kinds)
            for hold in holds:
                assert hold.says
                assert hold.movers
                assert event.raised_at <= hold.since <= now.at
                assert hold.until is None or hold.until > now.at
                assert {after.event(id) for id in hold.waits_for}.isdisjoint({None, event})
        at = due(after, now)
        if at is not None and at <= now.at:  # only the driver, or silence, can be this close
            assert any(event.attempt and event.attempt.next_at for event in after.events) or (
                after.enabling_until is not None or after.enabled
            )
