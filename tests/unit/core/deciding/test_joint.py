"""Events of several groups that go as one: all or none, never early, never in each other's way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forewarn.core import EventType, Group, GroupKind, Machine, Refused, Source, Status, World
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved, apply
from forewarn.core.deciding.decide import CommitChanges, decide_all
from forewarn.core.deciding.due import due
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.deciding.joint import JointsDue, holds, members
from forewarn.core.events import Event, Joint
from forewarn.core.fleet import NotBack
from forewarn.core.lifecycle import Move
from forewarn.core.time import MINUTE, SECOND, Duration
from helpers.examples import examples
from helpers.group_model import Polled

START = 1_700_000_000 * SECOND
DOMAINS = (0, 1)
GROUPS = ("a", "b", "c")
HOSTS = ("h0", "h1")  # of the machines of each domain, as far as reaching them is concerned


class Fleet:
    """Three groups with a machine in each of two domains, and hosts that hold one of each."""

    def __init__(self) -> None:
        self.now = World(at=START)
        self.groups: dict[str, Group] = {name: Group(name=name) for name in GROUPS}
        self._ids = 0
        for name in GROUPS:
            machines = tuple(
                Machine(name=f"{name}_{d}", update_domain=d, host=HOSTS[d]) for d in DOMAINS
            )
            self.do((name, c.Define(kind=GroupKind.SCALE_SET, machines=machines)))

    def new_id(self) -> str:
        self._ids += 1
        return f"E{self._ids}"

    def ask(self, *commands: tuple[str, c.Command]) -> CommitChanges | Refused:
        decided = decide_all(self.groups, commands, self.now)
        if isinstance(decided, CommitChanges):
            before = dict(self.groups)
            for name, items in decided.items.items():
                self.groups[name] = apply(self.groups[name], items)
            for name, after in decided.after.items():
                assert after == self.groups[name]  # what is known already is what comes of it
            self._judge(before, decided)
        return decided

    def do(self, *commands: tuple[str, c.Command]) -> CommitChanges:
        decided = self.ask(*commands)
        assert isinstance(decided, CommitChanges), decided
        return decided

    def _judge(self, before: dict[str, Group], decided: CommitChanges) -> None:
        """Whatever starts was allowed to."""
        for name, items in decided.items.items():
            for item in items:
                if not isinstance(item, EventMoved) or item.what is not Move.START:
                    continue
                event = item.event
                if event.joint is None or event.not_before <= self.now.at:
                    continue
                peers = members(self.groups, event.joint)
                assert any(peer.approved for peer in peers.values())
                for other, peer in peers.items():
                    assert peer.approved or not self.groups[other].enabled, (name, other)

    def maintain(self, places: dict[str, int], notice: Duration = 15 * MINUTE) -> Joint:
        """The maintenance of a host that holds one machine of each of these groups."""
        joint = Joint(self.new_id(), tuple(sorted(places)))
        self.do(
            *(
                (
                    name,
                    c.Raise(
                        id=self.new_id(),
                        type=EventType.REBOOT,
                        machines=(f"{name}_{places[name]}",),
                        by="ops",
                        notice=notice,
                        host=joint.id,
                        joint=joint,
                        cause=joint.id,
                    ),
                )
                for name in joint.groups
            )
        )
        return joint

    def events(self, joint: Joint) -> dict[str, Event]:
        return members(self.groups, joint)

    def statuses(self, joint: Joint) -> set[Status]:
        return {event.status for event in self.events(joint).values()}

    def enable(self, *names: str) -> None:
        for name in names:
            self.do((name, c.Enable()))

    def approve(self, joint: Joint, *names: str) -> None:
        for name in names:
            event = self.events(joint)[name]
            self.do((name, c.Approve(ids=(event.id,), by=f"{name}_0")))

    def pass_time(self, by: Duration) -> None:
        """Time goes by, and every deadline on the way is kept."""
        target = self.now.at + by
        for _ in range(1_000):
            due = [(at, name) for name in GROUPS if (at := self.due(name)) is not None]
            at, name = min(due, default=(target + 1, ""))
            if at > target:
                break
            self.now = msgspec.structs.replace(self.now, at=max(at, self.now.at))
            self.do((name, c.Tick(seen=self.now.served)))
        else:
            raise AssertionError("the deadlines never end")
        self.now = msgspec.structs.replace(self.now, at=target)

    def restored(self) -> None:
        """The fleet is from a copy that has just become the state."""
        at = self.now.at
        self.now = msgspec.structs.replace(self.now, steady_since=at, restored=at)

    def cut_off(self, host: str) -> None:
        """The node of a host is disconnected from now on."""
        unreachable = {**self.now.unreachable, host: None}
        since = {**self.now.unreachable_since, host: self.now.at}
        self.now = msgspec.structs.replace(
            self.now, unreachable=unreachable, unreachable_since=since
        )

    def joined(self, host: str) -> None:
        """The node of a host that was unreachable is back."""
        unreachable = {**self.now.unreachable, host: self.now.at}
        self.now = msgspec.structs.replace(self.now, unreachable=unreachable)

    def due(self, name: str) -> int | None:
        return JointsDue(self.groups, self.now).next(self.groups[name])

    def lead(self, joint: Joint) -> Event:
        (lead,) = [event for event in self.events(joint).values() if event.attempt is not None]
        return lead

    def carried_out(self, joint: Joint) -> None:
        lead = self.lead(joint)
        assert lead.attempt is not None
        answer = c.Answer(id=lead.id, attempt=lead.attempt.number, outcome=c.Done())
        self.do((lead.group, answer))


def test_all_start_in_the_commit_of_the_last_approval() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 1})
    fleet.approve(joint, "a")
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    fleet.approve(joint, "b")
    assert fleet.statuses(joint) == {Status.STARTED}


def test_a_group_that_is_not_enabled_neither_holds_nor_starts_a_joint_event() -> None:
    fleet = Fleet()
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.pass_time(14 * MINUTE)
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    fleet.enable("a")
    fleet.approve(joint, "a")
    assert fleet.statuses(joint) == {Status.STARTED}


def test_without_approvals_all_start_at_not_before() -> None:
    fleet = Fleet()
    fleet.enable(*GROUPS)
    joint = fleet.maintain({"a": 0, "b": 1, "c": 0})
    fleet.pass_time(15 * MINUTE - 1)
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    fleet.pass_time(SECOND)
    assert fleet.statuses(joint) == {Status.STARTED}


def test_joint_events_end_when_the_lead_event_is_carried_out() -> None:
    fleet = Fleet()
    fleet.enable(*GROUPS)
    joint = fleet.maintain({"a": 0, "b": 1, "c": 0})
    fleet.approve(joint, *GROUPS)
    assert fleet.lead(joint).group == "a"
    fleet.carried_out(joint)
    assert fleet.events(joint) == {}
    assert all(not group.events for group in fleet.groups.values())


def test_a_slot_that_is_taken_in_one_group_holds_all() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    user = c.Raise(
        id="U",
        type=EventType.REBOOT,
        machines=("b_1",),
        by="ann",
        source=Source.USER,
        notice=None,
    )
    fleet.do(("b", user), ("b", c.OperatorApprove(id="U", by="ops")))
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a", "b")
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    (held,) = holds(fleet.groups, joint, fleet.now)
    assert held.waits_for == ("U",)
    assert held.message.endswith(" (group b)")
    fleet.do(("b", c.Answer(id="U", attempt=1, outcome=c.Done())))
    assert fleet.statuses(joint) == {Status.STARTED}


def test_a_hold_that_several_groups_have_is_named_once() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    for group in ("a", "b"):
        busy = c.Raise(
            id=f"U{group}",
            type=EventType.REBOOT,
            machines=(f"{group}_0",),
            by="ann",
            source=Source.USER,
            notice=None,
        )
        fleet.do((group, busy), (group, c.OperatorApprove(id=busy.id, by="ops")))
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a", "b")
    (held,) = holds(fleet.groups, joint, fleet.now)
    assert held.waits_for == ("Ua", "Ub")
    assert held.message.endswith(" (group a, b)")


def test_groups_that_all_have_not_approved_are_named_once() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    (held,) = holds(fleet.groups, joint, fleet.now)
    assert held.message.count("a, b") == 1
    assert held.message.endswith("not yet approved by any of them")
    fleet.approve(joint, "a")
    (held,) = holds(fleet.groups, joint, fleet.now)
    assert held.message.endswith("not yet approved by group b")
    assert "has not approved (b)" in held.unblocked_by


@pytest.mark.parametrize("arrives", [True, False])
def test_a_machine_that_comes_to_the_host_in_the_same_commit_holds_its_maintenance(
    arrives: bool,
) -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    redeploy = c.Raise(
        id="U",
        type=EventType.REDEPLOY,
        machines=("b_1",),
        by="ann",
        source=Source.USER,
        notice=None,
    )
    fleet.do(("b", redeploy), ("b", c.OperatorApprove(id="U", by="ops")))
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a", "b")
    moved = {"b_1": joint.id if arrives else "elsewhere"}
    fleet.do(("b", c.Finish(id="U", by="ops", reason="by hand", moved=moved)))
    assert fleet.statuses(joint) == {Status.SCHEDULED if arrives else Status.STARTED}


def test_two_hosts_that_share_two_groups_crosswise_do_not_block_each_other() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    one = fleet.maintain({"a": 0, "b": 1})
    two = fleet.maintain({"a": 1, "b": 0})
    fleet.approve(one, "a")
    fleet.approve(two, "b")
    fleet.approve(one, "b")
    fleet.approve(two, "a")
    assert fleet.statuses(one) == {Status.STARTED}
    assert fleet.statuses(two) == {Status.SCHEDULED}
    fleet.carried_out(one)
    assert fleet.statuses(two) == {Status.STARTED}
    fleet.carried_out(two)
    assert all(not group.events for group in fleet.groups.values())


def test_after_a_restore_joint_events_wait_for_the_grace_although_all_have_approved() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a")
    fleet.restored()
    fleet.approve(joint, "b")
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    (held,) = holds(fleet.groups, joint, fleet.now)
    assert (held.kind, held.until) == (HoldKind.RESTORED, fleet.now.at + 60 * SECOND)
    fleet.pass_time(60 * SECOND - 1)
    assert fleet.statuses(joint) == {Status.SCHEDULED}
    fleet.pass_time(1)
    assert fleet.statuses(joint) == {Status.STARTED}


def test_one_joint_event_alone_cannot_be_cancelled_retried_or_finished() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    b = fleet.events(joint)["b"].id
    refused = fleet.ask(("b", c.Cancel(id=b, by="ops")))
    assert isinstance(refused, Refused)
    assert "together" in refused.message
    fleet.approve(joint, "a", "b")
    for command in (c.Retry(id=b, by="ops"), c.Finish(id=b, by="ops", reason="done")):
        refused = fleet.ask(("b", command))
        assert isinstance(refused, Refused)
        assert "lead event" in refused.message


def test_joint_events_are_cancelled_together() -> None:
    fleet = Fleet()
    joint = fleet.maintain({"a": 0, "b": 0})
    ids = {name: event.id for name, event in fleet.events(joint).items()}
    fleet.do(*((name, c.Cancel(id=id, by="ops", jointly=True)) for name, id in ids.items()))
    assert fleet.events(joint) == {}


def test_the_rest_goes_on_when_one_groups_machines_are_gone() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "b")
    only = (Machine(name="a_1", update_domain=1),)
    fleet.do(("a", c.Define(kind=GroupKind.SCALE_SET, machines=only, force=True)))
    assert set(fleet.events(joint)) == {"b"}
    assert fleet.statuses(joint) == {Status.STARTED}
    assert fleet.lead(joint).group == "b"


def test_what_is_under_way_ends_with_its_host_whatever_becomes_of_its_machines() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a", "b")
    only = (Machine(name="a_1", update_domain=1),)
    fleet.do(("a", c.Define(kind=GroupKind.SCALE_SET, machines=only, force=True)))
    assert fleet.statuses(joint) == {Status.STARTED}
    fleet.carried_out(joint)
    assert fleet.events(joint) == {}


@pytest.mark.parametrize("minutes", [0, 3])
def test_a_machine_that_redeploys_in_time_is_no_longer_concerned(minutes: int) -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.pass_time(minutes * MINUTE)
    user = c.UserMaintenance(id="U", type=EventType.REDEPLOY, machine="a_0", by="ann")
    fleet.do(("a", user), ("a", c.Approve(ids=("U",), by="a_0")))
    fleet.do(("a", c.Answer(id="U", attempt=1, outcome=c.Done({"a_0": "elsewhere"}))))
    assert set(fleet.events(joint)) == {"b"}


def _overdue(group: Group, now: World) -> bool:
    at = due(group, now)
    return at is not None and at <= now.at


def heard(fleet: Fleet, *names: str) -> None:
    """Groups wait until their machines have polled again; these have polled just now."""
    at = fleet.now.at
    polls = {**fleet.now.polls, **{name: Polled(at, SECOND) for name in names}}
    rules = msgspec.structs.replace(fleet.now.rules, until_heard=True)
    times = {**fleet.now.heard, **dict.fromkeys(names, at)}
    fleet.now = msgspec.structs.replace(fleet.now, polls=polls, heard=times, rules=rules)


def test_each_event_of_a_host_is_over_when_its_own_machines_are_back() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    heard(fleet, "a_0", "b_0")
    joint = fleet.maintain({"a": 0, "b": 0, "c": 0})
    fleet.approve(joint, "a", "b")
    fleet.pass_time(SECOND)
    fleet.carried_out(joint)
    assert fleet.events(joint).keys() == {"a", "b"}  # nobody polls in the third
    fleet.pass_time(SECOND)
    heard(fleet, "a_0")
    fleet.do(("a", c.Tick()))
    assert fleet.events(joint).keys() == {"b"}
    follower = fleet.events(joint)["b"]
    for at in (9 * MINUTE, MINUTE):
        assert fleet.statuses(joint) == {Status.STARTED}
        fleet.now = msgspec.structs.replace(fleet.now, at=fleet.now.at + at)
        fleet.do(("b", c.Tick()))
    assert fleet.events(joint) == {}
    assert fleet.groups["b"].machines[0].not_back == NotBack(
        follower.id, START + SECOND, follower.cause
    )


def test_an_operator_ends_the_wait_of_an_event_that_was_carried_out_with_others() -> None:
    fleet = Fleet()
    fleet.enable("a", "b")
    heard(fleet, "a_0", "b_0")
    joint = fleet.maintain({"a": 0, "b": 0})
    fleet.approve(joint, "a", "b")
    fleet.pass_time(SECOND)
    fleet.carried_out(joint)
    follower = fleet.events(joint)["b"]
    fleet.do(("b", c.Finish(id=follower.id, by="ops", reason="seen")))
    assert fleet.events(joint).keys() == {"a"}


class AnyFleet(RuleBasedStateMachine):
    """Hosts under maintenance, users, evictions, deletions and groups that come and go."""

    @initialize()
    def begin(self) -> None:
        self.fleet = Fleet()
        self.known: list[Joint] = []

    @rule(
        places=st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(DOMAINS), min_size=1),
        notice=st.sampled_from([15 * MINUTE, 30 * MINUTE]),
    )
    def maintain(self, places: dict[str, int], notice: Duration) -> None:
        alive = {n: d for n, d in places.items() if f"{n}_{d}" in self.fleet.groups[n].alive}
        free = {
            name: domain
            for name, domain in alive.items()
            if not any(
                e.traits.deletes and e.status is Status.STARTED
                for e in self.fleet.groups[name].events
                if f"{name}_{domain}" in e.resources
            )
        }
        if free and len(self.known) < 12:
            self.known.append(self.fleet.maintain(free, notice))

    @rule(name=st.sampled_from(GROUPS), domain=st.sampled_from(DOMAINS), data=st.data())
    def user(self, name: str, domain: int, data: Any) -> None:
        kind = data.draw(st.sampled_from([EventType.REBOOT, EventType.REDEPLOY]))
        command = c.UserMaintenance(
            id=self.fleet.new_id(), type=kind, machine=f"{name}_{domain}", by="ann"
        )
        self.fleet.ask((name, command))

    @rule(name=st.sampled_from(GROUPS), domain=st.sampled_from(DOMAINS))
    def delete(self, name: str, domain: int) -> None:
        self.fleet.ask(
            (name, c.Delete(id=self.fleet.new_id(), machine=f"{name}_{domain}", by="ops"))
        )

    @rule(name=st.sampled_from(GROUPS), domain=st.sampled_from(DOMAINS))
    def restore(self, name: str, domain: int) -> None:
        self.fleet.ask((name, c.Restore(machine=f"{name}_{domain}", by="ops")))

    @rule(name=st.sampled_from(GROUPS))
    def enable(self, name: str) -> None:
        self.fleet.enable(name)

    @rule(name=st.sampled_from(GROUPS))
    def disable(self, name: str) -> None:
        self.fleet.do((name, c.Disable(by="ops")))

    @rule(name=st.sampled_from(GROUPS), data=st.data())
    def approve(self, name: str, data: Any) -> None:
        listed = [event.id for event in self.fleet.groups[name].events if event.listed]
        if listed:
            chosen = data.draw(st.sampled_from(listed))
            self.fleet.do((name, c.Approve(ids=(chosen,), by=f"{name}_0")))

    @rule(minutes=st.sampled_from([0, 1, 5, 14, 15, 40]), seconds=st.integers(0, 59))
    def pass_time(self, minutes: int, seconds: int) -> None:
        self.fleet.pass_time(minutes * MINUTE + seconds * SECOND)

    @rule()
    def a_copy_becomes_the_state(self) -> None:
        self.fleet.restored()

    @rule(host=st.sampled_from(HOSTS))
    def cut_off(self, host: str) -> None:
        self.fleet.cut_off(host)

    @precondition(lambda self: self.fleet.now.unreachable)
    @rule(data=st.data())
    def joined(self, data: Any) -> None:
        self.fleet.joined(data.draw(st.sampled_from(sorted(self.fleet.now.unreachable))))

    @precondition(lambda self: self._begun())
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        event = data.draw(st.sampled_from(self._begun()))
        assert event.attempt is not None
        outcome = data.draw(st.sampled_from([c.Done(), c.Failed("no"), c.Unclear("who knows")]))
        if not event.attempt.open:
            self.fleet.do((event.group, c.Retry(id=event.id, by="ops")))
            return
        self.fleet.do(
            (
                event.group,
                c.Answer(id=event.id, attempt=event.attempt.number, outcome=outcome),
            )
        )

    def _begun(self) -> list[Event]:
        return [
            event
            for group in self.fleet.groups.values()
            for event in group.events
            if event.attempt is not None
        ]

    @invariant()
    def they_go_as_one(self) -> None:
        for joint in getattr(self, "known", []):
            active = self.fleet.events(joint)
            assert len({event.status for event in active.values()}) <= 1
            if any(event.status is Status.STARTED for event in active.values()):
                self.fleet.lead(joint)  # exactly one

    @invariant()
    def what_nothing_holds_has_started(self) -> None:
        for joint in getattr(self, "known", []):
            active = self.fleet.events(joint)
            if active and self.fleet.statuses(joint) == {Status.SCHEDULED}:
                now, before = self.fleet.now, dict(self.fleet.groups)
                if any(_overdue(before[name], now) for name in joint.groups):
                    continue  # what starts first may be what they wait for
                held = holds(before, joint, now)
                name = next(iter(active))
                then = decide_all(before, [(name, c.Tick(seen=now.served))], now)
                assert isinstance(then, CommitChanges)
                starts = any(
                    isinstance(item, EventMoved)
                    and item.what is Move.START
                    and item.event.joint == joint
                    for items in then.items.values()
                    for item in items
                )
                assert starts == (not held), held
                for hold in held:
                    assert hold.message
                    assert hold.unblocked_by
                    assert hold.since <= now.at
                    assert hold.until is None or hold.until > now.at

    def teardown(self) -> None:
        """Left alone, with every driver doing its work, everything comes to an end."""
        if not hasattr(self, "fleet"):
            return
        for host in self.fleet.now.unreachable:
            self.fleet.joined(host)
        for _ in range(200):
            self.fleet.pass_time(30 * MINUTE)
            for group in list(self.fleet.groups.values()):
                self.fleet.do((group.name, c.Tick(seen=self.fleet.now.served)))
            for event in self._begun():
                assert event.attempt is not None
                current = self.fleet.groups[event.group].event(event.id)
                if current is None or current.attempt is None:
                    continue
                if not current.attempt.open:
                    self.fleet.do((event.group, c.Retry(id=event.id, by="ops")))
                    continue
                self.fleet.do(
                    (
                        event.group,
                        c.Answer(id=event.id, attempt=current.attempt.number, outcome=c.Done()),
                    )
                )
            if not any(group.events for group in self.fleet.groups.values()):
                return
        raise AssertionError("something never ends")


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
