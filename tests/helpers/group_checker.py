"""An independent referee: it watches every decision and remembers the group in its own words.

It judges what was answered, what started, what ended and what guests were shown, commit by
commit. The rules it judges by are in `core_rules.py`.
"""

from __future__ import annotations

from forewarn.core import Changes, Group, Policy, Refused, World, commands, view
from forewarn.core.changes import Change, Disabled, EventMoved
from forewarn.core.events import Event, EventType, Source, Status
from forewarn.core.lifecycle import Move
from forewarn.core.time import HOUR, SECOND, Duration, Time
from helpers.group_invariants import check_document, check_group, check_waiting
from helpers.group_rules import (
    BY_USER,
    DELETES,
    NOTICE,
    back_within,
    closed,
    goes_at_once,
    grace_end,
    held_by,
    misworded,
    notice_is_wrong,
    obeys_windows,
    outside,
    paced,
    same_request,
    too_many,
    unheard,
    unsuitable,
    waits_for_domain,
)

STAGES = {Status.SCHEDULED: 0, Status.STARTED: 1, Status.FINISHED: 2, Status.WITHDRAWN: 2}


def constant_parts(event: Event) -> tuple[object, ...]:
    """What is said when an event is raised, and never otherwise afterwards."""
    when = (event.raised_at, event.duration)
    what = (event.group, event.type, event.source, event.domain, event.failure, event.cause)
    return (*what, *when, event.resources, event.by, event.description, event.unannounced)


def nobody_up(group: Group) -> bool:
    """Is every machine in something that takes it down, and is that a reason to go ahead?"""
    down = {
        name
        for event in group.events
        if event.status is Status.STARTED and event.type is not EventType.FREEZE
        for name in event.resources
    }
    alive = {machine.name for machine in group.machines if machine.alive}
    return group.policy.all_instances_down and bool(alive) and alive <= down


class Referee:
    def __init__(self) -> None:
        self.order: list[str] = []  # every id there ever was, in the order of raising
        self.last: dict[str, Event] = {}  # the last record of each
        self.first: dict[str, Event] = {}
        self.approved: set[str] = set()
        self.listed: set[str] = set()
        self.left: dict[str, set[str]] = {}
        # What a machine last said of an event, and how often that was something else.
        self.words: dict[tuple[str, str], tuple[tuple[bool, str], int]] = {}
        self.last_get: Duration = 0  # in time served
        self.decisions = 0
        self.gets: dict[str, list[tuple[int, Time]]] = {}  # of each machine, after which decision
        self.expected: dict[str, set[str]] = {}  # by event: machines that polled before it
        # Events that were carried out: after which decision, when in time served, and whose
        # machines have to poll again.
        self.waiting: dict[str, tuple[int, Duration, set[str]]] = {}

    @property
    def over(self) -> frozenset[str]:
        return frozenset(id for id, event in self.last.items() if event.status.over)

    def heard(self, machine: str, at: Time) -> None:
        self.gets.setdefault(machine, []).append((self.decisions, at))

    def judge(
        self,
        before: Group,
        command: commands.Command,
        now: World,
        decision: Changes | Refused,
        after: Group,
        served: Duration,
    ) -> None:
        self._answered(before, command, now, decision)
        self.decisions += 1
        if isinstance(decision, Refused):
            return
        self._approvals(before, command, decision)
        self._enabling(before, command, now, decision, after, served)
        self._starts(before, decision.items, now, after)
        self._records(command, decision.items, now, after)
        self._endings(before, command, decision.items, after, now)
        active = [self.last[id] for id in self.order if not self.last[id].status.over]
        assert list(after.events) == active  # in the order of raising
        self.listed |= {event.id for event in view(after).events}
        check_group(before, command, after)
        check_document(before, after)
        check_waiting(after, now)

    def _answered(
        self,
        before: Group,
        command: commands.Command,
        now: World,
        decision: Changes | Refused,
    ) -> None:
        """Whoever may be answered is; whoever may not is refused, and told why."""
        refused = isinstance(decision, Refused)
        if isinstance(decision, Refused):
            assert len(decision.message) > 10
        active = {event.id: event for event in before.events}
        match command:
            case commands.Approve(ids=ids):
                assert refused == (not self.listed.issuperset(ids)), (ids, self.listed)
            case commands.OperatorApprove(id=id):
                assert refused == (id not in active)
            case commands.Postpone(id=id, not_before=not_before):
                waiting = id in active and active[id].status is Status.SCHEDULED
                assert refused == (not waiting or not_before <= active[id].not_before)
            case commands.Cancel(id=id):
                assert refused == (id not in active or active[id].status is Status.STARTED)
            case commands.Finish(id=id, reason=reason):
                running = id in active and active[id].status is Status.STARTED
                assert refused == (not running or not reason.strip())
            case commands.Abandon(id=id, reason=reason):
                running = id in active and active[id].status is Status.STARTED
                waits = id in self.waiting
                assert refused == (not running or not reason.strip() or active[id].failure or waits)
            case commands.Retry(id=id):
                attempt = active[id].attempt if id in active else None
                assert refused == (attempt is None or attempt.open or id in self.waiting)
            case commands.Restore(machine=name):
                found = [machine for machine in before.machines if machine.name == name]
                there = bool(found) and found[0].alive and found[0].not_back is None
                assert refused == (not found or there)
            case commands.SuspectMove(machine=name):
                assert refused == (name not in {machine.name for machine in before.machines})
            case commands.Prepare(id=id, machine=name):
                shown = id in active and active[id].listed and before.enabled
                there = name in before.alive and len(command.note) <= 1_024
                before_this = self.words.get((id, name), ((False, ""), 0))
                word = (command.ready, command.note if command.ready else "")
                allowed = word == before_this[0] or before_this[1] < 16
                assert refused == (not shown or not there or not allowed)
                if not refused and word != before_this[0]:
                    self.words[id, name] = (word, before_this[1] + 1)
            case commands.Fail(machines=names):
                assert refused == unsuitable(before, names)
            case commands.UserMaintenance(type=type, machine=name):
                same = same_request(before, command)
                if unsuitable(before, (name,)) or type not in BY_USER:
                    assert refused
                elif same:
                    assert isinstance(decision, Changes)
                    assert decision.event == same.id
                else:
                    assert refused == too_many(before, command)
            case commands.Raise(machines=names):
                wrong = notice_is_wrong(command, now)
                if (
                    unsuitable(before, names)
                    or misworded(command)
                    or (command.source is Source.USER and too_many(before, command))
                ):
                    assert refused
                elif wrong is not None:
                    assert refused == (wrong or outside(before, command))
            case _:
                assert not refused

    def _approvals(self, before: Group, command: commands.Command, decision: Changes) -> None:
        scheduled = {e.id for e in before.events if e.status is Status.SCHEDULED}
        match command:
            case commands.Approve(ids=ids) if before.enabled:
                self.approved |= scheduled & set(ids)
            case commands.OperatorApprove(id=id):
                self.approved |= scheduled & {id}
            case commands.UserMaintenance():
                same = same_request(before, command)
                if same is not None and not before.enabled:
                    return  # announced before, it keeps its NotBefore
                if goes_at_once(before, command):
                    self.approved.add(decision.event)
            case commands.Raise(source=Source.USER):
                if goes_at_once(before, command):
                    self.approved.add(decision.event)
            case _:
                pass

    def _enabling(
        self,
        before: Group,
        command: commands.Command,
        now: World,
        decision: Changes,
        after: Group,
        served: Duration,
    ) -> None:
        """A group listens from its first GET until it has been silent for long enough."""
        silence = now.rules.silence
        silent = silence is not None and served - self.last_get >= paced(silence, now)
        silent = silent and not unheard(before, now)
        if any(isinstance(item, Disabled) for item in decision.items):
            assert isinstance(command, commands.Disable) or silent or not after.machines
        if isinstance(command, commands.Tick) and before.enabled:
            assert after.enabled == (not silent)
        if isinstance(command, commands.Disable):
            assert not after.enabled
            assert after.enabling_until is None
        if isinstance(command, commands.Enable) and not before.enabled:
            assert after.enabled == (paced(now.rules.enable_delay, now) == 0)
        if after.enabled and not before.enabled:
            assert isinstance(command, commands.Enable | commands.Tick)
            self.last_get = served

    def _starts(self, before: Group, items: tuple[Change, ...], now: World, after: Group) -> None:
        """At the moment an event starts, nothing holds it and NotBefore is kept."""
        present = {event.id: event for event in before.events}
        for item in items:
            if not isinstance(item, EventMoved):
                continue
            event = item.event
            if item.what is Move.START:
                if event.id not in self.approved:
                    assert now.at >= event.not_before
                    assert now.at >= grace_end(now)
                assert not held_by(present[event.id], tuple(present.values()), now, after)
                assert event.started_at == now.at
            if item.what in (Move.START, Move.FAIL):
                self.expected[event.id] = self._polling(event, after.policy, now)
            if event.status.over:
                del present[event.id]
            else:
                present[event.id] = event

    def _records(
        self, command: commands.Command, items: tuple[Change, ...], now: World, after: Group
    ) -> None:
        """One way through life, and nothing said once is ever said otherwise."""
        for item in items:
            if not isinstance(item, EventMoved):
                continue
            event, id = item.event, item.event.id
            earlier = self.last.get(id)
            if earlier is None:
                assert item.what in (Move.RAISE, Move.FAIL)
                self._raised(command, event, now, after.policy)
                unannounced = event.source is Source.USER and not after.enabled
                assert event.unannounced == unannounced
            else:
                self._follows(earlier, event)
                assert event.ignore_windows >= earlier.ignore_windows
                if item.what is Move.POSTPONE:
                    assert event.not_before > earlier.not_before
                    assert event.postponed[:-1] == earlier.postponed
                else:
                    assert (event.not_before, event.postponed) == (
                        earlier.not_before,
                        earlier.postponed,
                    )
            if item.what is Move.APPROVE and event.source is Source.USER and nobody_up(after):
                self.approved.add(id)
            assert (event.approved is not None) == (id in self.approved)
            assert (event.ended_at is not None) == event.status.over
            assert bool(event.ending) == event.status.over
            self.last[id] = event
            assert constant_parts(event) == constant_parts(self.first.setdefault(id, event))

    @staticmethod
    def _follows(earlier: Event, event: Event) -> None:
        assert not earlier.status.over
        assert STAGES[event.status] >= STAGES[earlier.status]
        if event.status.over:
            begun = earlier.status is Status.STARTED
            assert event.status is (Status.FINISHED if begun else Status.WITHDRAWN)
        assert earlier.approved in (None, event.approved)
        assert earlier.started_at in (None, event.started_at)
        assert event.listed >= earlier.listed
        assert set(earlier.left) <= set(event.left) <= set(event.resources)
        if earlier.attempt:
            assert event.attempt
            assert 0 <= event.attempt.number - earlier.attempt.number <= 1

    def _raised(self, command: commands.Command, event: Event, now: World, policy: Policy) -> None:
        self.order.append(event.id)
        assert event.raised_at == now.at
        assert event.not_before % SECOND == 0
        asked = now.at
        match command:
            case commands.Raise(machines=machines, not_before=None, notice=notice):
                promised = NOTICE[event.type] if notice is None else notice
                asked += paced(promised, now) + (now.rules.telling if promised else 0)
            case commands.Raise(machines=machines, not_before=int(when)):
                asked = when
            case commands.UserMaintenance(machine=machine):
                machines = (machine,)
                asked += paced(NOTICE[event.type], now) + now.rules.telling
            case commands.Fail(machines=machines):
                assert event.status is Status.STARTED
            case _:
                raise AssertionError(f"{command} raised an event")
        if event.unannounced:  # at once
            asked = now.at
        if obeys_windows(event):
            assert not closed(policy, event.not_before)
            later = event.not_before - asked >= SECOND
            if later:  # the first time at which it may
                assert closed(policy, event.not_before - SECOND)
            assert event.not_before >= asked
        else:
            assert 0 <= event.not_before - asked < SECOND
        assert event.resources == machines

    def _endings(
        self,
        before: Group,
        command: commands.Command,
        items: tuple[Change, ...],
        after: Group,
        now: World,
    ) -> None:
        """What has to end with this commit does, and nothing else."""
        moves = [item for item in items if isinstance(item, EventMoved)]
        touched = {event.id for event in before.events} | {item.event.id for item in moves}
        alive = {machine.name for machine in after.machines if machine.alive}
        over = {command.id} if isinstance(command, commands.Cancel | commands.Abandon) else set()
        if done := self._carried_out(before, command):
            back = self.expected.get(done.id, set()) & alive
            waits = back_within(before.policy, done.type, now) and done.id not in self.waiting
            relocates = done.type is EventType.REDEPLOY and done.id not in self.waiting
            if back and waits and isinstance(command, commands.Answer):
                self.waiting[done.id] = self.decisions, now.served, back
            else:
                over.add(done.id)
            if done.type in DELETES:
                assert alive.isdisjoint(done.resources)
            if relocates:
                for event in before.events:
                    if event.id != done.id and waits_for_domain(event):
                        moved = set(event.resources) & set(done.resources)
                        self.left.setdefault(event.id, set()).update(moved)
        if isinstance(command, commands.Define):
            self._put_elsewhere(before, after)
        for event in [self.last[id] for id in touched]:
            assert set(event.left) == self.left.get(event.id, set())
            still_here = alive & set(event.resources)
            unbegun = event.status in (Status.SCHEDULED, Status.WITHDRAWN)
            if not still_here or (unbegun and still_here <= set(event.left)):
                over.add(event.id)
        for delete in [item.event for item in moves if item.what is Move.START]:
            if delete.type in DELETES:
                doomed = set(delete.resources)
                beside = {id for id in touched if set(self.last[id].resources) <= doomed}
                over |= beside - {delete.id}
        over |= self._returned(after, alive, now, over)
        assert {item.event.id for item in moves if item.event.status.over} == over

    def _polling(self, event: Event, policy: Policy, now: World) -> set[str]:
        """Its machines that have polled within the hour, and often enough."""
        within = back_within(policy, event.type, now)
        gets = {name: [at for _, at in self.gets.get(name, [])][-2:] for name in event.resources}
        return {
            name
            for name, times in gets.items()
            if within and times and times[-1] >= now.at - HOUR
            if 2 * (times[-1] - times[0]) <= within
        }

    def _returned(self, after: Group, alive: set[str], now: World, over: set[str]) -> set[str]:
        """The events that end because their machines are back, or because they are not in time."""
        ended = set()
        for id, (decision, served, machines) in list(self.waiting.items()):
            event = self.last[id]
            if id not in over:
                within = back_within(after.policy, event.type, now)
                missing = {
                    name
                    for name in machines & alive
                    if within and not any(get >= decision for get, _ in self.gets.get(name, []))
                }
                if missing and now.served < served + within:
                    assert event.status is Status.STARTED
                    continue
                ended.add(id)
                assert set(event.not_back) == missing
                for machine in after.machines:
                    if machine.name in missing:
                        assert machine.not_back is not None
                        assert machine.not_back.event == id
            del self.waiting[id]
        return ended

    def _put_elsewhere(self, before: Group, after: Group) -> None:
        """Whoever was said to be on a host, and now is not, has left what is planned there."""
        now = {machine.name: machine.host for machine in after.machines}
        was = {m.name: m.host for m in before.machines if m.host and m.name in now}
        for event in before.events:
            if event.status is Status.SCHEDULED and waits_for_domain(event):
                moved = {n for n in event.resources if n in was and was[n] != now[n]}
                moved = {name for name in moved if not event.host or now[name] != event.host}
                if moved:
                    self.left.setdefault(event.id, set()).update(moved)

    @staticmethod
    def _carried_out(before: Group, command: commands.Command) -> Event | None:
        """The event of which this command says that it has been carried out."""
        active = {event.id: event for event in before.events}
        match command:
            case commands.Finish(id=id):
                return active[id]
            case commands.Answer(id=id, attempt=number, outcome=commands.Done()) if id in active:
                attempt = active[id].attempt
                if attempt and attempt.open and attempt.number == number:
                    return active[id]
            case _:
                pass
        return None
