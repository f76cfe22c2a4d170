"""However often a service is killed, its history tells of every commit once, and of no other."""

from __future__ import annotations

import pytest

from forewarn.core import Group, apply
from forewarn.core.history import HistoryWriter, RecordKind
from simulation.play import played
from simulation.world import Kill


@pytest.mark.parametrize("seed", range(200, 205))
def test_the_history_of_a_service_killed_repeatedly_has_everything_once(seed: int) -> None:
    disk = played(seed, Kill(1, often=True), steps=300).disk
    groups: dict[str, Group] = {}
    scribe = HistoryWriter(groups, {})
    reported = []
    for commit in disk.commits:
        changed = [(entry.group, entry.items) for entry in commit.entries]
        reported += [
            (r.at, r.what, r.event) for r in scribe.records(commit.at, changed, commit.puts)
        ]
        for name, items in changed:
            groups[name] = apply(groups.get(name) or Group(name=name), items)
    kept = [(r.at, r.what, r.event) for r in disk.history if r.what is not RecordKind.SEEN]
    assert kept == reported
    assert len(reported) > 50
    seen = [record.event for record in disk.history if record.what is RecordKind.SEEN]
    assert len(seen) == len(set(seen))
    assert [record.seq for record in disk.history] == list(range(1, len(disk.history) + 1))
