"""The table of an event's life: what it allows, and that nothing else is allowed."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from forewarn.core.events import Event, EventType, Status
from forewarn.core.lifecycle import SHOWN, TABLE, Move, diagram, move
from helpers.group_model import world

BIRTHS = (Move.RAISE, Move.FAIL)
RANK = {None: 0, Status.SCHEDULED: 1, Status.STARTED: 2, Status.FINISHED: 3, Status.WITHDRAWN: 3}
PAIRS = list(itertools.product(Status, [what for what in Move if what not in BIRTHS]))


def sample(status: Status) -> Event:
    w = world()
    event = w.event(w.raised(EventType.REBOOT, "m0"))
    return msgspec.structs.replace(event, status=status)


def test_no_arrow_leads_out_of_the_two_ends() -> None:
    assert not [before for before, _ in TABLE if before is not None and before.over]


def test_no_arrow_leads_backwards() -> None:
    assert all(RANK[after] >= RANK[before] for (before, _), after in TABLE.items())


def test_every_status_can_be_reached_and_every_move_is_of_use() -> None:
    assert set(TABLE.values()) == set(Status)
    assert {what for _, what in TABLE} == set(Move)


def test_only_births_lead_out_of_nothing() -> None:
    assert {what for before, what in TABLE if before is None} == set(BIRTHS)
    assert not [what for before, what in TABLE if before is not None and what in BIRTHS]


def test_what_is_shown_is_exactly_what_changes_the_status_or_not_before() -> None:
    for (before, what), after in TABLE.items():
        assert (what in SHOWN) == (before is not after or what is Move.POSTPONE)


def test_a_withdrawal_never_started_and_a_finish_always_did() -> None:
    arrows = {(before, after) for (before, _), after in TABLE.items()}
    assert {before for before, after in arrows if after is Status.WITHDRAWN} == {Status.SCHEDULED}
    assert {before for before, after in arrows if after is Status.FINISHED} == {Status.STARTED}


@pytest.mark.parametrize(("status", "what"), PAIRS)
def test_move_allows_what_the_table_says_and_refuses_the_rest(status: Status, what: Move) -> None:
    event = sample(status)
    if (status, what) in TABLE:
        moved = move(event, what, cause="for a reason")
        assert moved == msgspec.structs.replace(
            event, status=TABLE[status, what], cause="for a reason"
        )
    else:
        with pytest.raises(ValueError, match=f"cannot {what.value}.*{status.value}"):
            move(event, what)


@pytest.mark.parametrize(
    ("what", "status"), [(Move.RAISE, Status.SCHEDULED), (Move.FAIL, Status.STARTED)]
)
def test_a_draft_is_born_into_its_first_status(what: Move, status: Status) -> None:
    assert move(sample(Status.SCHEDULED), what).status is status


def test_the_diagram_shows_every_arrow() -> None:
    lines = [line.strip() for line in diagram().splitlines()]
    assert lines[0] == "stateDiagram-v2"
    for (before, what), after in TABLE.items():
        start = before.value if before else "[*]"
        (arrow,) = [line for line in lines if line.startswith(f"{start} --> {after.value}: ")]
        assert what.value in arrow.partition(": ")[2].split(", ")
    for status in (Status.FINISHED, Status.WITHDRAWN):
        assert f"{status.value} --> [*]" in lines
