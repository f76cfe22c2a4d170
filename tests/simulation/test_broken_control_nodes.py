"""Control nodes with one thing broken each: the judge, or the check of log and state, finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from forewarn.service.engine import executor
from forewarn.store.base import BatchingStore
from forewarn.store.memory_lease import MemoryLeadership
from simulation.cluster import Failure, Fault, lived

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]
STEPS = 15


def has_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLeadership, "check_term", lambda _self: None)


def adopts_commits_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    adopt = BatchingStore._adopt
    patch.setattr(BatchingStore, "_adopt", lambda self, commits: adopt(self, commits[::-1]))


@pytest.mark.parametrize("broken", [has_no_fence, adopts_commits_in_the_wrong_order])
def test_what_is_broken_is_found(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "HANDOVER", 0.0)
    broken(monkeypatch)
    found = 0
    for at_commit in range(1, 9):
        try:
            lived(1, Fault(Failure.PAUSED, at_commit, True, 1), STEPS)
        except AssertionError:
            found += 1
    assert found


def test_these_lives_are_in_order_if_nothing_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "HANDOVER", 0.0)
    for at_commit in (1, 8, 16, 24):
        lived(1, Fault(Failure.PAUSED, at_commit, True, 1), STEPS)
