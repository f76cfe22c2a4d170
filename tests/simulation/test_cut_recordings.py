"""Recordings that services and nodes have written themselves, and that are cut off where they were
killed, or anywhere else: nothing is held against an honest service that only its missing lines
would explain. That broken ones are still caught is in test_broken_services.py."""

from __future__ import annotations

import asyncio
import random

import pytest

from forewarn.judge import judge
from simulation.hosts import live
from simulation.own_recordings import Line, OwnHostsScript, OwnScript, cut_at
from simulation.world import Kill

CUTS = 25  # of each life, at lines that are chosen at random


def accused(trace: list[Line], seed: int) -> list[str]:
    """Return what is found in a recording, and in those that are left of it if it is cut."""
    lines = random.Random(seed).sample(range(1, len(trace)), CUTS)
    return [
        finding.render()
        for recording in (trace, *(cut_at(trace, line) for line in lines))
        for finding in judge(recording).findings
    ]


def recorded(seed: int) -> list[Line]:
    return asyncio.run(OwnScript(seed, Kill(20, often=True)).run(150)).trace


@pytest.mark.parametrize("seed", [2, 3, 8])
def test_nothing_is_found_in_what_a_killed_service_has_recorded(seed: int) -> None:
    assert accused(recorded(seed), seed) == []


def test_a_killed_service_is_accused_if_its_recording_does_not_say_where_it_was_cut() -> None:
    assert not judge([line for line in recorded(8) if line["kind"] != "gap"]).ok


@pytest.mark.parametrize("seed", range(1, 7))
def test_nothing_is_found_in_what_killed_nodes_and_control_have_recorded(seed: int) -> None:
    script, findings = live(seed, Kill(at_commit=5, often=True), 10, OwnHostsScript)
    assert findings == []
    assert accused(script.sim.trace, seed) == []
