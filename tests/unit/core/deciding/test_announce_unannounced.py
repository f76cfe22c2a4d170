"""What a group is shown of an event that was raised while it was not enabled.

User maintenance happens at once and is never shown, not even if the group is enabled while it is
under way. Everything else is raised, stays pending and is shown by the first document.
"""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import (
    Changes,
    Durations,
    EventType,
    Group,
    GroupKind,
    Machine,
    Policy,
    Reason,
    Source,
    Status,
    apply,
    commands,
    decide,
    view,
    why,
)
from forewarn.core.events import Event, Joint
from forewarn.core.time import DAY, MINUTE, SECOND
from forewarn.core.world import World
from helpers.group_model import START, world

REBOOT, REDEPLOY, FREEZE = EventType.REBOOT, EventType.REDEPLOY, EventType.FREEZE
USER_TYPES = (REBOOT, REDEPLOY)


# Everything that can happen, in a group that is enabled and in one that is not.


def maintain(type: EventType) -> commands.Command:
    return commands.UserMaintenance(id="E", type=type, machine="m0", by="ann")


def schedule(type: EventType, source: Source = Source.PLATFORM) -> commands.Command:
    return commands.Raise(id="E", type=type, machines=("m0",), by="ops", source=source)


def host_maintenance(type: EventType) -> commands.Command:
    joint = Joint("J", ("web",))
    return commands.Raise(id="E", type=type, machines=("m0",), by="ops", host="h0", joint=joint)


def degraded() -> commands.Command:
    return commands.Raise(id="E", type=REDEPLOY, machines=("m0",), by="ops", notice=7 * DAY)


FAILURE = commands.Fail(id="E", type=REDEPLOY, machines=("m0",), by="watchdog")
EVICTION = commands.Evict(id="E", machine="m0", by="ops")
DELETE = commands.Delete(id="E", machine="m0", by="ann")

NOTIFIED = Policy(terminate_notice=5 * MINUTE)
APPROVING = Policy(auto_approve=USER_TYPES)

SCHEDULED, STARTED, UNANNOUNCED = "Scheduled", "Started", "unannounced"

# what happens, the policy, spot or not, how it goes if enabled, how it goes if not, the notice
CASES: dict[str, tuple[commands.Command, Policy, bool, str, str, int]] = {
    "restart": (maintain(REBOOT), Policy(), False, SCHEDULED, UNANNOUNCED, 15 * MINUTE),
    "redeploy": (maintain(REDEPLOY), Policy(), False, SCHEDULED, UNANNOUNCED, 10 * MINUTE),
    "approved restart": (maintain(REBOOT), APPROVING, False, STARTED, UNANNOUNCED, 15 * MINUTE),
    "user's Reboot": (
        schedule(REBOOT, Source.USER),
        Policy(),
        False,
        SCHEDULED,
        UNANNOUNCED,
        15 * MINUTE,
    ),
    "approved user's Redeploy": (
        schedule(REDEPLOY, Source.USER),
        APPROVING,
        False,
        STARTED,
        UNANNOUNCED,
        10 * MINUTE,
    ),
    "scheduled Reboot": (schedule(REBOOT), APPROVING, False, SCHEDULED, SCHEDULED, 15 * MINUTE),
    "host Freeze": (host_maintenance(FREEZE), Policy(), False, SCHEDULED, SCHEDULED, 15 * MINUTE),
    "host Reboot": (host_maintenance(REBOOT), Policy(), False, SCHEDULED, SCHEDULED, 15 * MINUTE),
    "host Redeploy": (
        host_maintenance(REDEPLOY),
        Policy(),
        False,
        SCHEDULED,
        SCHEDULED,
        10 * MINUTE,
    ),
    "degraded host": (degraded(), Policy(), False, SCHEDULED, SCHEDULED, 7 * DAY),
    "failure": (FAILURE, Policy(), False, STARTED, STARTED, 0),
    "eviction": (EVICTION, Policy(), True, SCHEDULED, SCHEDULED, 30 * SECOND),
    "delete with notification": (DELETE, NOTIFIED, False, SCHEDULED, SCHEDULED, 5 * MINUTE),
    "delete without notification": (DELETE, Policy(), False, UNANNOUNCED, UNANNOUNCED, 0),
}


def group(policy: Policy, spot: bool, enabled: bool) -> Group:
    now = World(at=START, rules=Durations())
    machines = (
        Machine(name="m0", update_domain=0, host="h0", spot=spot),
        Machine(name="m1", update_domain=1, host="h1"),
    )
    define = commands.Define(kind=GroupKind.SCALE_SET, machines=machines, policy=policy, force=True)
    made = done(Group(name="web"), define, now)
    return done(made, commands.Enable(), now) if enabled else made


def done(group: Group, command: commands.Command, now: World) -> Group:
    decision = decide(group, command, now)
    assert isinstance(decision, Changes), decision
    return apply(group, decision.items)


@pytest.mark.parametrize("enabled", [True, False], ids=["enabled", "disabled"])
@pytest.mark.parametrize("case", CASES)
def test_which_events_are_shown_before_and_after_a_group_is_enabled(
    case: str, enabled: bool
) -> None:
    command, policy, spot, if_enabled, if_disabled, notice = CASES[case]
    expected = if_enabled if enabled else if_disabled
    now = World(at=START, rules=Durations())
    before = group(policy, spot, enabled)
    after = done(before, command, now)
    (event,) = after.events
    at_once = expected in (STARTED, UNANNOUNCED)
    assert event.status is (Status.STARTED if at_once else Status.SCHEDULED)
    assert event.unannounced == (expected == UNANNOUNCED)
    assert event.listed == (enabled and expected != UNANNOUNCED)
    if expected != UNANNOUNCED:
        assert 0 <= event.not_before - (START + notice) < SECOND
    shown = [(expected, START)] if expected != UNANNOUNCED else []
    assert [(e.status.value, START) for e in view(after).events] == (shown if enabled else [])
    if enabled:
        assert view(after).incarnation == (1 if expected == UNANNOUNCED else 2)

    # The first GET, a minute later or after the group was disabled and enabled again.
    later = msgspec.structs.replace(now, at=START + SECOND)
    for _ in range(2):
        after = done(after, commands.Disable(by="ops"), later)
        assert view(after).events == ()
        after = done(after, commands.Enable(), later)
        assert view(after).incarnation == 1
        assert [(e.status.value, START) for e in view(after).events] == shown
    refused = decide(after, commands.Approve(ids=("E",), by="m1"), later)
    assert (not isinstance(refused, Changes)) == (expected == UNANNOUNCED)

    # What was shown is taken away when it ends; what was not changes nothing.
    if at_once:
        (event,) = after.events
        assert event.attempt is not None
        answer = commands.Answer(id="E", attempt=event.attempt.number, outcome=commands.Done())
        after = done(after, answer, later)
        assert after.events == ()
        assert view(after).incarnation == (1 if expected == UNANNOUNCED else 2)


# User maintenance that is under way while the group is enabled.


@pytest.mark.parametrize("type", USER_TYPES)
def test_an_unannounced_event_is_not_shown_after_the_first_get(type: EventType) -> None:
    w = world(enabled=False)
    id = w.maintained(type, "m0")
    assert w.status(id) is Status.STARTED
    assert (w.poll().incarnation, w.shown()) == (1, [])
    output = w.refused(commands.Approve(ids=(id,), by="m0"))
    assert output.reason is Reason.UNKNOWN
    w.do(commands.Disable(by="ops"))
    assert (w.poll().incarnation, w.shown()) == (1, [])
    w.carried_out(id)
    assert (w.view.incarnation, w.shown()) == (1, [])
    assert w.refused(commands.Approve(ids=(id,), by="m0")).reason is Reason.UNKNOWN


def test_an_unannounced_event_is_not_shown_if_the_first_answer_is_late() -> None:
    w = world(Durations(enable_delay=2 * MINUTE), enabled=False)
    w.poll()
    id = w.maintained(REBOOT, "m0")
    assert w.status(id) is Status.STARTED
    w.run(2 * MINUTE)
    assert (w.view.incarnation, w.shown()) == (1, [])


def test_what_was_announced_before_the_group_was_disabled_keeps_its_not_before() -> None:
    w = world()
    id = w.maintained(REBOOT, "m0")
    not_before = w.event(id).not_before
    w.do(commands.Disable(by="ops"))
    again = w.do(commands.UserMaintenance(id="X", type=REBOOT, machine="m0", by="ann"))
    assert again.event == id
    assert "keeps its NotBefore" in again.notes[1]
    w.run_to(not_before - 1)
    assert w.status(id) is Status.SCHEDULED
    w.poll()
    assert (w.view.incarnation, w.shown()) == (1, [(id, "Scheduled")])
    w.do(commands.Disable(by="ops"))
    w.run_to(not_before)
    assert w.status(id) is Status.STARTED
    w.poll()
    assert (w.view.incarnation, w.shown()) == (1, [(id, "Started")])


def test_a_second_restart_while_the_unannounced_one_runs_waits_and_is_unannounced_too() -> None:
    w = world(enabled=False)
    first = w.maintained(REBOOT, "m0")
    second = w.maintained(REBOOT, "m0")
    assert second != first
    assert w.status(second) is Status.SCHEDULED
    third = w.do(commands.UserMaintenance(id="X", type=REBOOT, machine="m0", by="ann"))
    assert third.event == second
    assert "unannounced" in third.notes[1]
    (hold,) = why(w.group, second, w.now)
    assert hold.waits_for == (first,)
    assert f"not shown {first}" in hold.message
    w.poll()
    w.carried_out(first)
    assert w.status(second) is Status.STARTED
    assert (w.view.incarnation, w.shown()) == (1, [])


def test_an_unannounced_event_waits_for_a_busy_machine_and_occupies_machine_and_domain() -> None:
    w = world(enabled=False)
    failure = w.struck("m0")
    restart = w.maintained(REBOOT, "m0")
    assert w.status(restart) is Status.SCHEDULED
    assert w.poll().incarnation == 1
    assert w.shown() == [(failure, "Started")]
    w.carried_out(failure)
    assert w.status(restart) is Status.STARTED
    assert w.view.incarnation == 2
    assert w.shown() == []
    same_machine, other_domain = w.raised(FREEZE, "m0"), w.raised(FREEZE, "m2")
    w.approve(same_machine, other_domain)
    for id in (same_machine, other_domain):
        (hold,) = why(w.group, id, w.now)
        assert hold.waits_for == (restart,)
        assert "unannounced" in hold.message
    w.carried_out(restart)
    assert w.status(same_machine) is Status.STARTED


def test_a_restart_of_an_enabled_group_is_announced_beside_an_unannounced_one() -> None:
    w = world(enabled=False)
    first = w.maintained(REBOOT, "m0")
    w.poll()
    second = w.maintained(REBOOT, "m0")
    assert second != first
    assert w.shown() == [(second, "Scheduled")]


def test_the_mark_is_stored_with_the_event_and_only_if_it_is_set() -> None:
    w = world(enabled=False)
    stored = msgspec.json.encode(w.event(w.maintained(REBOOT, "m0")))
    assert msgspec.json.decode(stored, type=Event).unannounced
    without = stored.replace(b'"unannounced":true,', b"")
    assert without != stored
    assert not msgspec.json.decode(without, type=Event).unannounced
