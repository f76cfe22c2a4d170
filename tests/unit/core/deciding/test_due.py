"""Who listens and who may vote: enabling, silence, outages, approval and the document."""

from __future__ import annotations

import pytest

from forewarn.core import Durations, EventType, Reason, Status, commands, due, why
from forewarn.core.changes import Disabled, Seen
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND
from helpers.group_model import START, GroupWorld, world

FREEZE, REBOOT, PREEMPT = EventType.FREEZE, EventType.REBOOT, EventType.PREEMPT


# Enabling.


def test_a_group_is_enabled_by_its_first_get() -> None:
    w = world(enabled=False)
    assert (w.view.enabled, w.view.events) == (False, ())
    assert w.poll().enabled
    assert (w.view.incarnation, w.view.events) == (1, ())


def test_the_first_document_is_1_and_holds_what_is_already_pending() -> None:
    w = world(enabled=False)
    ids = [w.raised(REBOOT, "m0"), w.struck("m1"), w.raised(FREEZE, "m2")]
    shown = w.poll()
    assert shown.incarnation == 1
    assert [event.id for event in shown.events] == ids


def test_the_first_get_may_take_a_while_to_be_answered() -> None:
    w = world(Durations(enable_delay=2 * MINUTE), enabled=False)
    w.poll()
    assert not w.view.enabled
    w.later(MINUTE)
    w.poll()  # asking again does not make it longer
    assert due(w.group, w.now) == START + 2 * MINUTE
    w.run_to(START + 2 * MINUTE - 1)
    assert not w.view.enabled
    w.run(1)
    assert w.view.enabled
    assert w.view.incarnation == 1


def test_disabling_a_group_ends_its_enabling() -> None:
    w = world(Durations(enable_delay=2 * MINUTE), enabled=False)
    w.poll()
    w.do(commands.Disable(by="ops"))
    w.run(10 * MINUTE)
    assert not w.view.enabled


def test_a_started_event_whose_retry_comes_due_as_the_group_is_enabled_is_listed() -> None:
    w = world(Durations(enable_delay=2 * MINUTE), enabled=False)
    id = w.struck("m0")
    w.poll()
    w.answer(id, commands.Again(at=w.now.at + 2 * MINUTE))
    w.run(2 * MINUTE)
    assert w.shown() == [(id, "Started")]
    assert w.approve(id).items == ()


def test_disabling_a_group_that_is_not_enabled_changes_nothing_and_is_noted() -> None:
    w = world(enabled=False)
    done = w.do(commands.Disable(by="ops"))
    assert done.items == ()
    assert "not enabled" in done.notes[0]


def test_everything_pending_survives_disabling_and_enabling() -> None:
    w = world()
    ids = [w.raised(REBOOT, "m0"), w.raised(FREEZE, "m2"), w.struck("m1")]
    before = w.view
    w.do(commands.Disable(by="ops"))
    assert (w.view.enabled, w.view.events) == (False, ())
    after = w.poll()
    assert after.events == before.events
    assert after.incarnation == 1
    w.approve(*ids)


def test_a_group_that_is_not_enabled_cannot_approve() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    w.do(commands.Disable(by="ops"))
    assert w.approve(id).items == ()
    assert w.event(id).approved is None
    w.poll()
    w.approve(id)
    assert w.status(id) is Status.STARTED


# Silence.


def test_a_group_is_disabled_after_a_day_without_a_get() -> None:
    w = world()
    w.run(DAY - 1)
    assert w.view.enabled
    w.run(1)
    assert not w.view.enabled
    (gone,) = [item for items in w.history for item in items if isinstance(item, Disabled)]
    assert "asked" in gone.why


def test_a_get_restarts_the_limit_of_silence() -> None:
    w = world()
    w.later(20 * HOUR)
    w.poll()
    w.run_to(START + 44 * HOUR - 1)
    assert w.view.enabled
    assert any(isinstance(item, Seen) for items in w.history for item in items)
    w.run(1)
    assert not w.view.enabled


def test_silence_counts_only_while_the_endpoint_was_serving() -> None:
    w = world()
    w.run(20 * HOUR)
    w.outage(30 * HOUR)
    w.tick()
    w.run(4 * HOUR - 1)
    w.tick()
    assert w.view.enabled
    w.run(1)
    assert not w.view.enabled


def test_without_a_limit_of_silence_a_group_is_disabled_only_on_request() -> None:
    w = world(Durations(silence=None))
    assert due(w.group, w.now) is None
    w.run(400 * DAY)
    assert w.view.enabled


def test_speed_divides_silence() -> None:
    w = world(Durations(speed=24.0))
    w.run(HOUR - 1)
    assert w.view.enabled
    w.run(1)
    assert not w.view.enabled


# Outages.


def test_after_an_outage_no_event_starts_by_its_not_before_until_guests_could_poll() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    w.outage(HOUR)
    w.tick()
    (hold,) = why(w.group, id, w.now)
    assert hold.kind is HoldKind.GRACE
    assert hold.until == w.now.at + 60 * SECOND
    w.run(60 * SECOND - 1)
    assert w.status(id) is Status.SCHEDULED
    w.run(1)
    assert w.status(id) is Status.STARTED


def test_an_approved_event_starts_during_the_pause_after_an_outage() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    w.outage(HOUR)
    w.approve(id)
    assert w.status(id) is Status.STARTED


def test_after_a_restore_not_even_an_approved_event_starts_before_the_pause_ends() -> None:
    """It may have been cancelled after the copy was made."""
    w = world()
    approved, later = w.raised(REBOOT, "m0"), w.raised(REBOOT, "m1")
    busy = w.struck("m0")
    w.approve(approved)
    w.restored(HOUR)
    w.carried_out(busy)
    w.approve(later)
    for id in (approved, later):
        (hold,) = why(w.group, id, w.now)
        assert (hold.kind, hold.since) == (HoldKind.RESTORED, w.now.at)
        assert hold.until == w.now.at + 60 * SECOND
    w.do(commands.Cancel(id=later, by="ops"))
    w.run(60 * SECOND - 1)
    assert w.status(approved) is Status.SCHEDULED
    w.run(1)
    assert (w.status(approved), w.status(later)) == (Status.STARTED, Status.WITHDRAWN)


def test_an_event_raised_after_a_restore_starts_as_usual() -> None:
    w = world()
    w.restored(HOUR)
    w.later(1)
    id = w.raised(REBOOT, "m0")
    w.approve(id)
    assert w.status(id) is Status.STARTED


def test_the_pause_after_an_outage_does_not_shorten_a_notice() -> None:
    w = world()
    w.outage(HOUR)
    id = w.raised(REBOOT, "m0")
    assert w.holds(id) == {HoldKind.NOTICE, HoldKind.GRACE}
    w.run(2 * MINUTE)
    assert w.holds(id) == {HoldKind.NOTICE}


# Approval.


def test_an_approved_event_that_nothing_holds_is_shown_as_started_at_once() -> None:
    w = world()
    id = w.raised(REBOOT, "m0", "m1")
    w.approve(id, by="m3")  # any machine of the group may
    assert w.shown() == [(id, "Started")]
    approved = w.event(id).approved
    assert approved is not None
    assert (approved.by, approved.at) == ("m3", START)


def test_an_unknown_id_refuses_the_whole_request() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    for ids in ((id, "nobody"), ("nobody", id)):
        output = w.refused(w.approval(*ids))
        assert output.reason is Reason.UNKNOWN
        assert "nobody" in output.message
        assert "ever listed" in output.message
        assert w.event(id).approved is None


def test_an_id_that_was_never_listed_is_refused_and_later_accepted() -> None:
    w = world(enabled=False)
    id = w.raised(REBOOT, "m0")
    w.refused(w.approval(id))
    w.poll()
    w.approve(id)
    assert w.status(id) is Status.STARTED


def test_every_id_that_was_ever_listed_may_be_approved() -> None:
    w = world()
    withdrawn, finished, begun, approved = (
        w.raised(FREEZE, "m2"),
        w.raised(REBOOT, "m0"),
        w.struck("m1"),
        w.raised(FREEZE, "m3"),
    )
    w.do(commands.Cancel(id=withdrawn, by="ops"))
    w.approve(approved)
    w.approve(finished)
    w.do(commands.Finish(id=begun, by="ops", reason="it is back"))
    w.carried_out(finished)
    w.carried_out(approved)
    before = w.view
    assert w.approve(withdrawn, finished, begun, approved, approved).items == ()
    assert w.view == before


def test_an_operator_can_approve_for_a_group_that_is_not_enabled() -> None:
    w = world(enabled=False)
    id = w.raised(REBOOT, "m0")
    w.do(commands.OperatorApprove(id=id, by="ops"))
    assert w.status(id) is Status.STARTED


def test_an_operators_approval_of_an_approved_or_started_event_is_noted() -> None:
    w = world()
    first, second = w.raised(REBOOT, "m0"), w.raised(REBOOT, "m0")
    w.approve(first, second, by="m1")
    started = w.do(commands.OperatorApprove(id=first, by="ops"))
    assert started.items == ()
    assert ["started" in note for note in started.notes] == [True]
    waiting = w.do(commands.OperatorApprove(id=second, by="ops"))
    assert waiting.items == ()
    assert "by m1" in waiting.notes[0]


@pytest.mark.parametrize("command", [commands.OperatorApprove, commands.Cancel])
def test_an_operator_cannot_decide_on_an_event_that_is_not_active(
    command: type[commands.OperatorApprove] | type[commands.Cancel],
) -> None:
    w = world()
    output = w.refused(command(id="E9", by="ops"))
    assert output.reason is Reason.UNKNOWN
    assert "E9" in output.message


def test_a_scheduled_event_can_be_cancelled_and_a_started_one_cannot() -> None:
    w = world()
    scheduled, started = w.raised(FREEZE, "m2"), w.struck("m0")
    w.do(commands.Cancel(id=scheduled, by="ann"))
    assert w.status(scheduled) is Status.WITHDRAWN
    assert w.ending(scheduled) == "cancelled by ann"
    output = w.refused(commands.Cancel(id=started, by="ann"))
    assert output.reason is Reason.CONFLICT
    assert f"{started} has started" in output.message


# The document.


def incarnations(w: GroupWorld, *steps: commands.Command) -> list[int]:
    found = [w.view.incarnation]
    for step in steps:
        w.do(step)
        found.append(w.view.incarnation)
    return found


def test_the_incarnation_changes_with_the_events_and_with_nothing_else() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    other = w.raised(REBOOT, "m0")
    one = w.view.incarnation
    assert incarnations(
        w,
        commands.Enable(),  # a poll
        commands.Tick(),
        w.approval(id),  # starts
        w.approval(id),  # again
        w.approval(other),  # has to wait
        commands.Answer(id=id, attempt=1, outcome=commands.Again(at=w.now.at)),
        commands.Tick(),
        commands.Answer(id=id, attempt=2, outcome=commands.Unclear("the line broke")),
        commands.Finish(id=id, by="ops", reason="it is up"),  # and the other starts: one commit
    ) == [one, one, one, one + 1, one + 1, one + 1, one + 1, one + 1, one + 1, one + 2]


def test_not_before_is_shown_until_the_event_starts() -> None:
    w = world()
    id = w.raised(REBOOT, "m0")
    assert w.view.events[0].not_before == w.event(id).not_before
    w.approve(id)
    assert w.view.events[0].not_before is None
