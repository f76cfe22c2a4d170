"""A group in a world of its own: a clock that is moved by hand, outages, and a referee who
watches every decision. Examples and properties act on the core through this alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from forewarn.core import (
    Changes,
    Durations,
    Event,
    EventType,
    Group,
    GroupKind,
    GroupView,
    Machine,
    Policy,
    Refused,
    Status,
    World,
    apply,
    commands,
    decide,
    due,
    view,
    why,
)
from forewarn.core.changes import Change, EventMoved
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.fleet import Placement
from forewarn.core.halts import Halt
from forewarn.core.lifecycle import Move
from forewarn.core.time import DAY, SECOND, Duration, Time
from helpers.group_checker import Referee
from helpers.group_rules import unheard, with_left

START: Time = 1_700_000_000 * SECOND + 123_456  # not a whole second, on purpose


class Polled(NamedTuple):
    last: Time
    interval: Duration


class GroupWorld:
    def __init__(self, rules: Durations | None = None, name: str = "web") -> None:
        self.group = Group(name=name)
        self.now = World(at=START, rules=rules or Durations())
        self.served: Duration = START
        self.history: list[tuple[Change, ...]] = []
        self.referee = Referee()
        self.sound = True  # until the referee objects
        self._ids = 0

    # Asking.

    def ask(self, command: commands.Command) -> Changes | Refused:
        """Decide, let the referee judge, and make it so."""
        before = self.group
        self.sound = False
        decision = decide(before, command, self.now)
        assert decide(before, command, self.now) == decision
        if isinstance(decision, Changes):
            self.group = apply(before, decision.items)
            self.history.append(decision.items)
            self.now = with_left(self.now, before, self.group)
        self.referee.judge(before, command, self.now, decision, self.group, self.served)
        self.sound = True
        return decision

    def do(self, command: commands.Command) -> Changes:
        decision = self.ask(command)
        assert isinstance(decision, Changes), decision
        return decision

    def refused(self, command: commands.Command) -> Refused:
        decision = self.ask(command)
        assert isinstance(decision, Refused), decision
        return decision

    def new_id(self) -> str:
        self._ids += 1
        return f"E{self._ids}"

    def halt(self, **scope: Any) -> str:
        """An operator halts what has not started."""
        id = self.new_id()
        made = Halt(id=id, by="ops", at=self.now.at, **scope)
        self.now = msgspec.structs.replace(self.now, halts=(*self.now.halts, made))
        return id

    def release(self, *ids: str) -> None:
        left = tuple(halt for halt in self.now.halts if halt.id not in ids)
        self.now = msgspec.structs.replace(self.now, halts=left)

    def cut_off(self, host: str) -> None:
        """The node of a host is disconnected from now on."""
        self.now = msgspec.structs.replace(
            self.now,
            unreachable={**self.now.unreachable, host: None},
            unreachable_since={**self.now.unreachable_since, host: self.now.at},
        )

    def joined(self, host: str) -> None:
        """The node of a host that was unreachable is back; what it was asked meanwhile is known
        now."""
        if unheard(self.group, self.now):
            self.referee.last_get = self.served
        self.now = msgspec.structs.replace(
            self.now, unreachable={**self.now.unreachable, host: self.now.at}
        )

    # Everyday commands.

    def define(
        self,
        *machines: Machine,
        kind: GroupKind = GroupKind.SCALE_SET,
        policy: Policy | None = None,
        placement: Placement | None = None,
    ) -> Changes:
        return self.do(
            commands.Define(
                kind=kind,
                machines=machines,
                policy=policy or self.group.policy,
                force=True,
                observed=placement is not None,
                placement=placement,
            )
        )

    def poll(self) -> GroupView:
        """A GET: it enables a group, or is a sign of life of one that listens already."""
        if self.group.enabled:
            self.referee.last_get = self.served
        self.do(commands.Enable())
        return self.view

    def hear(self, *names: str) -> None:
        """These machines poll, and nobody ticks."""
        at, polls = self.now.at, dict(self.now.polls)
        for name in dict.fromkeys(names):
            before = polls.get(name)
            polls[name] = Polled(at, at - before.last if before else 0)
            self.referee.heard(name, at)
        awaited = {n for e in self.group.events if e.waiting for n in e.waiting.machines}
        heard = {**self.now.heard, **{name: at for name in names if name in awaited}}
        self.now = msgspec.structs.replace(self.now, polls=polls, heard=heard)

    def tick(self) -> Changes:
        return self.do(commands.Tick(seen=self.referee.last_get))

    def raised(
        self,
        type: EventType,
        *machines: str,
        notice: Duration | None = None,
        short_notice: bool = False,
    ) -> str:
        command = commands.Raise(
            id=self.new_id(),
            type=type,
            machines=machines,
            by="ops",
            notice=notice,
            short_notice=short_notice,
        )
        return self.do(command).event

    def maintained(self, type: EventType, machine: str) -> str:
        return self.do(
            commands.UserMaintenance(id=self.new_id(), type=type, machine=machine, by="ann")
        ).event

    def struck(self, *machines: str, type: EventType = EventType.REBOOT) -> str:
        command = commands.Fail(id=self.new_id(), type=type, machines=machines, by="watchdog")
        return self.do(command).event

    def approve(self, *ids: str, by: str = "m0") -> Changes:
        return self.do(self.approval(*ids, by=by))

    def approval(self, *ids: str, by: str = "m0") -> commands.Approve:
        over = self.referee.over & self.referee.listed
        return commands.Approve(ids=ids, by=by, over=over & set(ids))

    def answer(self, id: str, outcome: commands.Outcome) -> Changes:
        attempt = self.event(id).attempt
        assert attempt is not None
        return self.do(commands.Answer(id=id, attempt=attempt.number, outcome=outcome))

    def carried_out(self, id: str, **moved: str) -> Changes:
        return self.answer(id, commands.Done(moved))

    # Time.

    def at(self, at: Time) -> None:
        """Only the clock moves; nobody ticks."""
        assert at >= self.now.at
        self.served += at - self.now.at
        self.now = msgspec.structs.replace(self.now, at=at)

    def later(self, by: Duration) -> None:
        self.at(self.now.at + by)

    def outage(self, length: Duration) -> None:
        """The endpoint was away for so long and is back."""
        back = self.now.at + length
        grace = self.now.grace_ends
        self.now = msgspec.structs.replace(
            self.now,
            at=back,
            steady_since=back,
            lost=self.now.lost + length,
            restored=None if grace is None or self.now.at >= grace else self.now.restored,
        )

    def restored(self, length: Duration) -> None:
        """The group is from a copy that ends so long ago, and is served again."""
        self.outage(length)
        self.now = msgspec.structs.replace(self.now, restored=self.now.at)

    def run_to(self, at: Time) -> None:
        """As a scheduler does: tick whenever something is due, until `at`."""
        while (next_due := due(self.group, self.now)) is not None and next_due <= at:
            self.at(max(next_due, self.now.at))
            assert self.tick().items
            after = due(self.group, self.now)
            assert after is None or after > self.now.at
        self.at(at)

    def run(self, length: Duration) -> None:
        self.run_to(self.now.at + length)

    # Looking.

    def event(self, id: str) -> Event:
        found = self.group.event(id)
        assert found is not None, f"{id} is gone: {self.referee.last[id].ending}"
        return found

    def status(self, id: str) -> Status:
        return self.referee.last[id].status

    def ending(self, id: str) -> str:
        return self.referee.last[id].ending

    def holds(self, id: str) -> set[HoldKind]:
        return {hold.kind for hold in why(self.group, id, self.now)}

    @property
    def view(self) -> GroupView:
        return view(self.group)

    def shown(self) -> list[tuple[str, str]]:
        return [(event.id, event.status.value) for event in self.view.events]

    # What holds at any time, whatever has happened.

    def check_time(self) -> None:
        """A Tick changes nothing before `due` and something at `due`; `why` knows which."""
        at = due(self.group, self.now)
        far = self.now.at + 100 * DAY if at is None else at
        for instant in {self.now.at, (self.now.at + far) // 2, far - 1, far}:
            if instant >= self.now.at:
                self._check_tick(instant, changes=at is not None and instant >= at)

    def _check_tick(self, instant: Time, *, changes: bool) -> None:
        now = msgspec.structs.replace(self.now, at=instant)
        decision = decide(self.group, commands.Tick(seen=self.referee.last_get), now)
        assert isinstance(decision, Changes)
        assert bool(decision.items) == changes
        after = apply(self.group, decision.items)
        again = due(after, now)
        assert again is None or again > instant
        for event in self.group.events:
            if event.status is Status.SCHEDULED:
                begun = {
                    item.event.id
                    for item in decision.items
                    if isinstance(item, EventMoved) and item.what is Move.START
                }
                assert (why(self.group, event.id, now) == ()) == (event.id in begun)

    def check_history(self) -> None:
        """The history, written down and read again, tells the whole state."""
        reported = msgspec.json.decode(
            msgspec.json.encode(self.history), type=list[tuple[Change, ...]]
        )
        replayed = Group(name=self.group.name)
        for items in reported:
            replayed = apply(replayed, items)
        assert replayed == self.group

    def check_pending_survives(self) -> None:
        """Nothing pending is lost when a group is disabled and enabled again."""
        self.tick()
        pending = self.group.events
        self.do(commands.Disable(by="ops"))
        assert self.group.events == pending
        self.poll()
        if self.group.enabling_until is not None:
            self.at(max(self.now.at, self.group.enabling_until))
            self.tick()
        assert self.view.incarnation == 1
        last = self.referee.last
        active = [id for id in self.referee.order if not self.status(id).over]
        announced = [id for id in active if not last[id].unannounced]
        assert [event.id for event in self.view.events] == announced
        assert {event.id for event in pending} >= set(active)
        self.approve(*self.referee.listed)


def machines(domains: dict[str, int], *, host: str = "h", spot: bool = False) -> list[Machine]:
    return [
        Machine(name=name, update_domain=domain, host=f"{host}{domain}", spot=spot)
        for name, domain in domains.items()
    ]


def world(
    rules: Durations | None = None, *, policy: Policy | None = None, enabled: bool = True
) -> GroupWorld:
    """Four machines in two update domains, listening: m0 and m1 in 0, m2 and m3 in 1."""
    made = GroupWorld(rules)
    made.define(*machines({"m0": 0, "m1": 0, "m2": 1, "m3": 1}), policy=policy)
    if enabled:
        made.poll()
    return made
