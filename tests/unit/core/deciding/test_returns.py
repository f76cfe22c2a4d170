"""Machines that come back: when an event that was carried out is over."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import Durations, EventType, Policy, Reason, Status, commands, due, why
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.fleet import NotBack, OverWhen
from forewarn.core.time import HOUR, MINUTE, SECOND
from helpers.group_model import START, GroupWorld, world

FREEZE, REBOOT, REDEPLOY = EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY
HEARD = Policy(over_when=OverWhen.HEARD)


def polled(policy: Policy = HEARD, rules: Durations | None = None) -> GroupWorld:
    """All machines have polled twice, a second ago."""
    w = world(rules, policy=policy)
    for _ in range(2):
        w.hear("m0", "m1", "m2", "m3")
        w.later(SECOND)
    return w


def done(w: GroupWorld, *machines: str, type: EventType = REBOOT) -> str:
    """An event of these machines that was carried out."""
    id = w.struck(*machines, type=type)
    w.later(9 * SECOND)
    w.carried_out(id)
    return id


def test_an_event_that_was_carried_out_stays_started_until_its_machine_has_polled() -> None:
    w = polled()
    id = done(w, "m0")
    assert w.shown() == [(id, "Started")]
    w.hear("m1")
    w.run(MINUTE)
    assert w.status(id) is Status.STARTED
    w.hear("m0")
    assert due(w.group, w.now) is not None
    w.run(0)
    assert (w.status(id), w.ending(id)) == (Status.FINISHED, "carried out")
    assert w.referee.last[id].carried_out


def test_all_of_its_machines_have_to_poll() -> None:
    w = polled()
    id = done(w, "m0", "m1")
    w.hear("m0")
    w.run(MINUTE)
    assert w.status(id) is Status.STARTED
    w.hear("m1")
    w.run(0)
    assert w.status(id) is Status.FINISHED


def test_a_poll_before_it_was_carried_out_says_nothing() -> None:
    w = polled()
    id = w.struck("m0")
    w.hear("m0")
    w.carried_out(id)
    assert w.status(id) is Status.STARTED


@pytest.mark.parametrize(
    ("type", "policy", "minutes"),
    [
        (REBOOT, HEARD, 10),
        (REDEPLOY, HEARD, 10),
        (FREEZE, HEARD, 1),
        (REBOOT, Policy(over_when=OverWhen.HEARD, back_within=4 * MINUTE), 4),
        (FREEZE, Policy(over_when=OverWhen.HEARD, back_within=4 * MINUTE), 1),
    ],
)
def test_a_machine_that_does_not_poll_in_time_is_not_back(
    type: EventType, policy: Policy, minutes: int
) -> None:
    w = polled(policy)
    id = done(w, "m0", "m1", type=type)
    since = w.now.at
    w.hear("m1")
    w.run(minutes * MINUTE - 1)
    assert w.status(id) is Status.STARTED
    w.run(1)
    assert w.referee.last[id].not_back == ("m0",)
    assert w.ending(id) == "carried out, but m0 did not come back"
    assert [machine.not_back for machine in w.group.machines[:2]] == [NotBack(id, since), None]


def test_a_machine_that_polls_later_is_back() -> None:
    w = polled()
    done(w, "m0")
    w.run(10 * MINUTE)
    w.do(commands.Heard(machines=("m0", "m1")))
    assert not any(machine.not_back for machine in w.group.machines)
    assert w.do(commands.Heard(machines=("m0", "nobody"))).items == ()


def test_speed_divides_the_time_for_which_a_machine_is_waited_for() -> None:
    w = polled(rules=Durations(speed=10.0))
    id = done(w, "m0")
    w.run(MINUTE - 1)
    assert w.status(id) is Status.STARTED
    w.run(1)
    assert w.status(id) is Status.FINISHED


def test_time_in_which_nobody_could_poll_does_not_count() -> None:
    w = polled()
    id = done(w, "m0")
    w.run(9 * MINUTE)
    w.outage(HOUR)
    w.run(MINUTE - 1)
    assert w.status(id) is Status.STARTED
    w.run(1)
    assert w.status(id) is Status.FINISHED


def test_an_event_that_waits_occupies_its_update_domain() -> None:
    w = polled()
    id = done(w, "m0")
    other = w.raised(FREEZE, "m2")
    w.approve(other)
    assert w.holds(other) == {HoldKind.DOMAIN}
    w.hear("m0")
    assert why(w.group, other, w.now) == ()  # a Tick would end the one and start the other
    w.run(0)
    assert (w.status(id), w.status(other)) == (Status.FINISHED, Status.STARTED)


@pytest.mark.parametrize(
    ("polls", "every", "ago", "waits"),
    [
        (1, 0, HOUR, True),
        (1, 0, HOUR + 1, False),
        (3, 5 * MINUTE, 0, True),
        (3, 6 * MINUTE, 0, False),
        (2, HOUR, 0, False),
        (0, 0, 0, False),
    ],
)
def test_only_machines_that_can_be_expected_to_poll_are_waited_for(
    polls: int, every: int, ago: int, waits: bool
) -> None:
    w = world(policy=HEARD)
    for number in range(polls):
        w.later(every if number else 0)
        w.hear("m0")
    w.later(ago)
    id = done(w, "m0")
    assert w.status(id) is (Status.STARTED if waits else Status.FINISHED)


@pytest.mark.parametrize(
    ("policy", "until_heard", "waits"),
    [
        (Policy(), False, False),
        (Policy(), True, True),
        (Policy(over_when=OverWhen.CARRIED_OUT), True, False),
        (HEARD, False, True),
    ],
)
def test_the_policy_of_the_group_comes_before_the_default(
    policy: Policy, until_heard: bool, waits: bool
) -> None:
    w = polled(policy, Durations(until_heard=until_heard))
    assert w.status(done(w, "m0")) is (Status.STARTED if waits else Status.FINISHED)


def test_a_group_that_is_released_from_waiting_waits_no_longer() -> None:
    w = polled()
    id = done(w, "m0")
    w.do(commands.SetPolicy(policy=Policy(over_when=OverWhen.CARRIED_OUT), by="ops"))
    assert (w.status(id), w.referee.last[id].not_back) == (Status.FINISHED, ())


def test_a_deletion_does_not_wait() -> None:
    w = polled()
    id = w.raised(EventType.TERMINATE, "m0")
    w.approve(id)
    w.carried_out(id)
    assert w.status(id) is Status.FINISHED


def test_a_machine_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    w = polled()
    id = done(w, "m0", "m1")
    w.hear("m1")
    delete = w.raised(EventType.PREEMPT, "m0")
    w.approve(delete)
    w.carried_out(delete)
    assert (w.status(id), w.referee.last[id].not_back) == (Status.FINISHED, ())


def test_an_operator_ends_the_wait() -> None:
    w = polled()
    id = done(w, "m0")
    w.do(commands.Finish(id=id, by="ops", reason="its client was removed"))
    assert w.ending(id) == "finished by ops: its client was removed"
    assert not any(machine.not_back for machine in w.group.machines)


def test_what_was_carried_out_is_neither_retried_nor_abandoned() -> None:
    w = polled()
    id = done(w, "m0")
    for command in (
        commands.Retry(id=id, by="ops"),
        commands.Abandon(id=id, by="ops", reason="seen with my own eyes"),
    ):
        assert w.refused(command).reason is Reason.CONFLICT


def test_a_machine_is_on_its_new_host_while_it_is_waited_for() -> None:
    w = polled()
    id = w.raised(REDEPLOY, "m0")
    planned = w.raised(REBOOT, "m0")
    w.approve(id)
    w.carried_out(id, m0="h9")
    assert w.group.machine("m0") == msgspec.structs.replace(w.group.machines[0], host="h9")
    assert w.status(planned) is Status.WITHDRAWN
    later = w.raised(REBOOT, "m0")  # on its new host
    w.hear("m0")
    w.run(0)
    assert (w.status(id), w.event(later).left) == (Status.FINISHED, ())


def test_failed_attempts_before_are_no_failure_of_what_was_carried_out() -> None:
    w = polled()
    id = w.struck("m0")
    w.answer(id, commands.Failed("no route"))
    w.run(MINUTE)
    w.carried_out(id)
    attempt = w.event(id).attempt
    assert attempt is not None
    assert (attempt.open, attempt.next_at, attempt.note) == (False, None, "")


def moved(w: GroupWorld, *names: str) -> list[str]:
    """The evacuation of a host: live migrations of these machines, all approved."""
    ids = [w.new_id() for _ in names]
    for id, name in zip(ids, names, strict=True):
        w.do(
            commands.Raise(
                id=id,
                type=FREEZE,
                machines=(name,),
                by="ops",
                host="h0",
                moves=True,
                cause="host/h0/1",
            )
        )
        w.approve(id)
    return ids


def test_an_evacuation_pauses_while_a_machine_that_it_moved_is_not_back() -> None:
    w = polled()
    first, second = moved(w, "m0", "m2")
    w.carried_out(first, m0="h9")
    assert w.holds(second) == {HoldKind.DOMAIN}
    w.run(HOUR)
    assert (w.status(first), w.status(second)) == (Status.FINISHED, Status.SCHEDULED)
    (hold,) = why(w.group, second, w.now)
    assert hold.kind is HoldKind.BACK
    w.do(commands.Heard(machines=("m0",)))
    assert w.status(second) is Status.STARTED


def test_an_operator_continues_an_evacuation() -> None:
    w = polled()
    first, second = moved(w, "m0", "m2")
    w.carried_out(first, m0="h9")
    w.run(HOUR)
    w.do(commands.Restore(machine="m0", by="ops"))
    assert w.status(second) is Status.STARTED


def test_an_evacuation_pauses_for_machines_of_other_groups() -> None:
    w = polled()
    w.now = msgspec.structs.replace(w.now, not_back={"host/h0/1": {"other": START}})
    (id,) = moved(w, "m0")
    assert w.holds(id) == {HoldKind.BACK}
    assert w.status(moved(w, "m3")[0]) is Status.SCHEDULED
    w.now = msgspec.structs.replace(w.now, not_back={})
    w.tick()
    assert w.status(id) is Status.STARTED
