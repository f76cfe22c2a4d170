"""What the inventory makes of what drivers see, whatever happens: it removes no machine that may be
somewhere, and moves none away from a host of which nothing is known; and in the end it is as the
hosts are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.service.fleet.follow import FollowedInventory
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.service.indexes import sightings
from forewarn.service.indexes.sightings import Sightings
from simulation.inventory import lived

SEEDS = 8


def test_the_inventory_follows_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    lives = [lived(seed, tmp_path) for seed in range(SEEDS)]
    assert {seed: life.findings for seed, life in enumerate(lives) if life.findings} == {}
    assert sum(life.moves for life in lives) > SEEDS
    assert sum(life.removals for life in lives) > SEEDS
    assert sum(life.additions for life in lives) > SEEDS


def does_not_wait_for_other_hosts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sightings, "has_looked", lambda self, host, **_: self.reaches(host))


def believes_what_is_not_reached(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowedInventory, "_unknown", lambda *_: "")


def follows_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sightings, "_under_way", lambda *_: False)


def removes_as_many_as_there_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemovalLimit, "most", lambda *_: 100)


def keeps_what_was_seen_of_lost_hosts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sightings, "lost", lambda *_: None)


@pytest.mark.parametrize(
    ("broken", "finds"),
    [
        (does_not_wait_for_other_hosts, " was removed, and is on "),
        (believes_what_is_not_reached, " not reached"),
        (follows_what_is_under_way, " was followed during "),
        (removes_as_many_as_there_are, " in an hour"),
        (keeps_what_was_seen_of_lost_hosts, " not reached"),
    ],
)
def test_an_inventory_that_believes_too_much_is_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    finds: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broken(monkeypatch)
    for seed in range(2 * SEEDS):
        if any(finds in text for text in lived(seed, tmp_path).findings):
            return
    pytest.fail("not found")
