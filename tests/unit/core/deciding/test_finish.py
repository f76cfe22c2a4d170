"""Carrying events out: what drivers answer, what operators may say, and what comes of it."""

from __future__ import annotations

import pytest

from forewarn.core import Durations, EventType, Machine, Reason, Status, commands
from forewarn.core.deciding.attempts import LEAST_PAUSE
from forewarn.core.events import Attempt
from forewarn.core.fleet import Placement
from forewarn.core.time import MINUTE, SECOND
from helpers.group_model import START, GroupWorld, machines, world

REBOOT, REDEPLOY, PREEMPT = EventType.REBOOT, EventType.REDEPLOY, EventType.PREEMPT


def attempt(w: GroupWorld, id: str) -> Attempt:
    found = w.event(id).attempt
    assert found is not None
    return found


def machine(w: GroupWorld, name: str) -> Machine:
    found = w.group.machine(name)
    assert found is not None
    return found


def test_the_first_attempt_is_on_record_with_the_start() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    assert w.event(id).attempt is None
    w.approve(id)
    assert attempt(w, id) == Attempt(number=1, at=START)


def test_an_event_that_is_carried_out_is_gone() -> None:
    w = world()
    id = w.struck("m0")
    w.carried_out(id)
    assert (w.status(id), w.ending(id)) == (Status.FINISHED, "carried out")
    assert w.view.events == ()


def test_a_driver_that_is_not_ready_is_asked_again_at_the_time_it_named() -> None:
    w = world()
    id = w.struck("m0")
    w.answer(id, commands.Again(at=START + MINUTE))
    w.run(MINUTE - 1)
    assert attempt(w, id).number == 1
    w.run(1)
    assert attempt(w, id) == Attempt(number=2, at=START + MINUTE)


def test_a_driver_that_names_a_time_in_the_past_is_asked_again_after_the_least_pause() -> None:
    w = world()
    id = w.struck("m0")
    w.answer(id, commands.Again(at=START - MINUTE))
    assert attempt(w, id).next_at == START + LEAST_PAUSE
    w.run(LEAST_PAUSE)
    assert attempt(w, id).number == 2


def test_a_failed_attempt_is_repeated_after_pauses_that_grow_to_five_minutes() -> None:
    w = world()
    id = w.struck("m0")
    pauses = []
    for _ in range(9):
        w.answer(id, commands.Failed("no route"))
        assert attempt(w, id).note == "no route"
        next_at = attempt(w, id).next_at
        assert next_at is not None
        pauses.append((next_at - w.now.at) // SECOND)
        w.run_to(next_at)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_speed_divides_the_pause_before_another_attempt() -> None:
    w = world(Durations(speed=10.0))
    id = w.struck("m0")
    w.answer(id, commands.Failed("no"))
    assert attempt(w, id).next_at == START + SECOND // 2


def test_an_unclear_attempt_is_not_repeated_until_an_operator_says_so() -> None:
    w = world()
    id = w.struck("m0")
    w.answer(id, commands.Unclear("the line broke"))
    w.run(60 * MINUTE)
    assert (attempt(w, id).number, attempt(w, id).stuck) == (1, True)
    w.do(commands.Retry(id=id, by="ops"))
    assert attempt(w, id) == Attempt(number=2, at=w.now.at)


def test_only_answers_of_the_current_attempt_count() -> None:
    w = world()
    id = w.struck("m0")
    for late in (0, 2):
        assert not w.do(commands.Answer(id=id, attempt=late, outcome=commands.Done())).items
    w.answer(id, commands.Unclear("?"))
    assert not w.do(commands.Answer(id=id, attempt=1, outcome=commands.Done())).items
    w.do(commands.Finish(id=id, by="ops", reason="seen"))
    assert not w.do(commands.Answer(id=id, attempt=1, outcome=commands.Done())).items


def test_an_attempt_under_way_cannot_be_retried() -> None:
    w = world()
    id = w.struck("m0")
    output = w.refused(commands.Retry(id=id, by="ops"))
    assert output.reason is Reason.CONFLICT
    assert "attempt 1" in output.message


def test_only_a_started_event_can_be_retried_or_finished() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    for name in (id, "E9"):
        output = w.refused(commands.Retry(id=name, by="ops"))
        assert output.reason is Reason.UNKNOWN
        assert "be retried" in output.message
        output = w.refused(commands.Finish(id=name, by="ops", reason="seen"))
        assert output.reason is Reason.UNKNOWN
        assert "be finished" in output.message


def test_an_operator_who_finishes_an_event_gives_a_reason() -> None:
    w = world()
    id = w.struck("m0")
    output = w.refused(commands.Finish(id=id, by="ops", reason="  "))
    assert output.reason is Reason.INVALID
    assert "reason" in output.message
    w.do(commands.Finish(id=id, by="ops", reason="seen"))
    assert w.ending(id) == "finished by ops: seen"


@pytest.mark.parametrize(
    ("type", "fate"), [(EventType.PREEMPT, "evicted"), (EventType.TERMINATE, "deleted")]
)
def test_a_delete_leaves_the_machine_known_but_gone(type: EventType, fate: str) -> None:
    w = world()
    id = w.raised(type, "m0")
    w.approve(id)
    assert machine(w, "m0").alive
    w.carried_out(id)
    assert machine(w, "m0").gone == fate
    w.define(*machines({"m0": 0, "m1": 0}))
    assert machine(w, "m0").gone == fate  # the inventory does not bring it back


def test_an_event_that_is_abandoned_has_done_nothing_to_its_machines() -> None:
    w = world()
    id = w.raised(EventType.TERMINATE, "m0")
    output = w.refused(commands.Abandon(id=id, by="ops", reason="stuck"))
    assert output.reason is Reason.UNKNOWN
    w.approve(id)
    w.answer(id, commands.Failed("no such volume"))
    assert w.refused(commands.Abandon(id=id, by="ops", reason=" ")).reason is Reason.INVALID
    w.do(commands.Abandon(id=id, by="ops", reason="stuck"))
    assert w.ending(id) == "abandoned by ops, it did not happen: stuck"
    assert machine(w, "m0").alive


def test_a_failure_that_has_happened_cannot_be_abandoned() -> None:
    w = world()
    output = w.refused(commands.Abandon(id=w.struck("m0"), by="ops", reason="stuck"))
    assert output.reason is Reason.INVALID


def test_a_machine_that_is_gone_can_be_restored() -> None:
    w = world()
    id = w.raised(PREEMPT, "m0")
    w.approve(id)
    w.carried_out(id)
    w.do(commands.Restore(machine="m0", by="ops"))
    assert machine(w, "m0").alive
    assert w.raised(REBOOT, "m0")


def test_only_a_machine_that_is_gone_can_be_restored() -> None:
    w = world()
    output = w.refused(commands.Restore(machine="m0", by="ops"))
    assert output.reason is Reason.CONFLICT
    assert "evicted or deleted" in output.message
    output = w.refused(commands.Restore(machine="db", by="ops"))
    assert output.reason is Reason.UNKNOWN
    assert "no machine 'db'" in output.message


def test_a_moved_machine_stays_where_it_is_until_the_inventory_says_otherwise() -> None:
    w = world()
    inventory = w.group.machines
    id = w.maintained(REDEPLOY, "m0")
    w.approve(id)
    w.carried_out(id, m0="h7", m1="h7")
    assert machine(w, "m0").host == "h7"
    assert machine(w, "m1").host == "h0"  # not the event's to move
    w.define(*inventory)
    assert machine(w, "m0").host == "h7"
    again = w.maintained(REDEPLOY, "m0")
    w.approve(again)
    w.carried_out(again, m0="h8")
    w.define(*inventory)
    assert (machine(w, "m0").host, machine(w, "m0").moved_from) == ("h8", "h0")
    w.define(*machines({"m0": 0}, host="new"))
    m0 = machine(w, "m0")  # the inventory says something new: somebody has to say who is right
    assert (m0.host, m0.moved_from, m0.disputed) == ("h8", "new0", "new0")
    w.define(*machines({"m0": 0}, host="new"))
    assert machine(w, "m0") == m0
    w.define(*machines({"m0": 0}, host="new"), placement=Placement.FILE)
    assert (machine(w, "m0").host, machine(w, "m0").moved_from) == ("new0", None)


def test_a_file_from_between_two_moves_does_not_undo_the_second() -> None:
    w = world()
    w.do(commands.RecordMove(machine="m0", host="h7", by="ops"))
    between = w.group.machines
    w.do(commands.RecordMove(machine="m0", host="h8", by="ops"))
    w.define(*between)
    assert (machine(w, "m0").host, machine(w, "m0").disputed) == ("h8", "h7")


def test_defining_a_group_as_it_is_changes_nothing() -> None:
    w = world()
    assert w.define(*w.group.machines).items == ()
