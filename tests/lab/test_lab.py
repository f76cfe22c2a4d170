"""A short run of the lab, in which each kind of part fails once."""

from __future__ import annotations

from pathlib import Path

from helpers import postgres
from helpers.guest_firewall import needs_rules
from lab.nemesis import EVERYWHERE
from lab.run import Run
from lab.world import SingleServer, World

FAULTS = EVERYWHERE[:5]
HOLD = (0.5, 1.0)  # seconds


def test_no_promise_is_broken_while_one_part_after_the_other_fails(tmp_path: Path) -> None:
    needs_rules()
    postgres.needed()
    with SingleServer() as database, World(tmp_path, database, lease="2s") as world:
        with Run(world, seed=1) as run:
            run.happen(FAULTS, HOLD)
        assert run.findings() == [], run.table()
