"""Where machines go, whatever happens: no host is given more than it holds, nor one that is out of
use; what is reserved is free again when the event is over; and who takes over moves machines to
where they were to go."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from forewarn.service.engine.executor import Executor
from forewarn.service.indexes import placement
from forewarn.service.indexes.placement import Placement
from simulation.moves import lived
from simulation.world import Kill


@pytest.mark.parametrize("seed", range(4))
def test_no_host_is_given_more_than_it_holds(seed: int) -> None:
    moves = lived(seed, Kill())
    assert moves.books.findings == []
    assert moves.books.moves > 10


@pytest.mark.parametrize("seed", [1, 4, 9])
def test_no_host_is_given_more_than_it_holds_when_control_is_killed_at_any_commit(
    seed: int,
) -> None:
    steps = 6
    commits = len(lived(seed, Kill(), steps).disk.commits)
    for at_commit in range(2, commits):
        moves = lived(seed, Kill(at_commit, before=at_commit % 2 == 0), steps)
        assert moves.deaths >= 1
        assert moves.books.findings == []


def does_not_reserve(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement, "targets_of", lambda _: {})


def keeps_reservations_of_events_that_are_over(patch: pytest.MonkeyPatch) -> None:
    changed = Placement.events_changed

    def only_add(self: Placement, gone: object, come: object, group: object) -> None:
        changed(self, (), come, group)  # type: ignore[arg-type]

    patch.setattr(Placement, "events_changed", only_add)


def chooses_again_when_it_carries_out(patch: pytest.MonkeyPatch) -> None:
    with_targets = Executor._with_targets

    def choose(self: Executor, event: object, machines: object, records: object) -> object:
        found = with_targets(self, event, machines, records)  # type: ignore[arg-type]
        return [
            msgspec.structs.replace(machine, target=machine.alternatives[0])
            if machine.alternatives
            else machine
            for machine in found
        ]

    patch.setattr(Executor, "_with_targets", choose)


@pytest.mark.parametrize(
    ("broken", "finds"),
    [
        (does_not_reserve, " holds "),
        (keeps_reservations_of_events_that_are_over, " is counted"),
        (chooses_again_when_it_carries_out, ", not on "),
    ],
)
def test_a_broken_service_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], finds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    found = [text for seed in range(3) for text in lived(seed, Kill()).books.findings]
    assert any(finds in text for text in found)
