"""Control nodes with one thing broken each. What finds nothing wrong with honest nodes that fail in
the same ways (test_control_nodes.py) must catch every one of them, for the reason given here."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

import msgspec
import pytest

from forewarn.drivers.port import Task
from forewarn.drivers.simulated import ImpactJournal
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.upstream import LocalUpstream, NotDurable
from forewarn.service.engine import executor
from forewarn.service.engine.clock import RealClock
from forewarn.service.engine.executor import Executor
from forewarn.store.base import BatchingStore
from forewarn.support import guard
from helpers.shared_memory import MemoryLeadership, SharedMemoryStore
from simulation.cluster import ClusterScript, ClusterStore, Failure, Fault
from simulation.lives import live
from simulation.wrong_clocks import WrongClocksCluster, WrongClocksScript

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]

STEPS = 15
SEED = 1
COMMITS = (4, 8, 12, 16, 20, 24)
CALLS = (1, 2, 3)
SLOW = 20  # turns of the loop that a disk takes


def has_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLeadership, "check_term", lambda _self: None)


def checks_its_term_before_the_transaction(patch: pytest.MonkeyPatch) -> None:
    persist, check = ClusterStore._persist, SharedMemoryStore._check_term

    async def checked_first(self: ClusterStore, *batch: Any) -> None:
        check(self)
        with pytest.MonkeyPatch.context() as unchecked:
            unchecked.setattr(self, "_check_term", lambda: None)
            await persist(self, *batch)

    patch.setattr(ClusterStore, "_persist", checked_first)


def acknowledges_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    persist = SharedMemoryStore._persist
    writing: dict[SharedMemoryStore, Any] = {}

    async def later(self: SharedMemoryStore, *batch: Any) -> None:
        if self in writing:
            await writing[self]
        writing[self] = guard.Tasks().start(write(self, *batch), "write")

    async def write(self: SharedMemoryStore, *batch: Any) -> None:
        for _ in range(SLOW):
            await guard.pause(0)
        await persist(self, *batch)

    patch.setattr(SharedMemoryStore, "_persist", later)


def adopts_commits_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    adopt = BatchingStore._adopt
    patch.setattr(BatchingStore, "_adopt", lambda self, commits: adopt(self, commits[::-1]))


def takes_a_commit_in_doubt_as_not_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterStore, "_has_happened", lambda *_: False)


def takes_a_commit_in_doubt_as_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterStore, "_has_happened", lambda *_: True)


def answers_guests_without_its_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataApp, "_checked_reply", MetadataApp._reply_or_refusal)


def answers_approvals_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    approve = LocalUpstream.approve

    async def approve_anyway(self: LocalUpstream, *approval: Any) -> bool:
        try:
            return await approve(self, *approval)
        except NotDurable:
            return True

    answers_guests_without_its_lease(patch)
    patch.setattr(LocalUpstream, "approve", approve_anyway)


def claims_without_looking_at_the_lease(patch: pytest.MonkeyPatch) -> None:
    def claim(self: MemoryLeadership) -> bool:
        self._begin_term()
        self._adopt_news()
        self._taken.set()
        return True

    patch.setattr(MemoryLeadership, "_claim", claim)


def believes_the_clock_of_the_database(patch: pytest.MonkeyPatch) -> None:
    def left(self: MemoryLeadership) -> float:
        return max(0.0, self._row.until - self._row.wall())

    patch.setattr(MemoryLeadership, "_left", left)


def decides_without_a_claim(patch: pytest.MonkeyPatch) -> None:
    async def take(self: MemoryLeadership) -> None:
        self.follow()
        self._taken.set()

    patch.setattr(MemoryLeadership, "take", take)


def takes_changes_as_a_follower(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLeadership, "check_leading", lambda _self: None)


def calls_the_driver_without_its_lease(patch: pytest.MonkeyPatch) -> None:
    async def go_ahead(_self: Executor) -> None:
        pass

    patch.setattr(Executor, "_wait_for_lease", go_ahead)


def calls_the_driver_without_a_fence_number(patch: pytest.MonkeyPatch) -> None:
    task = Executor.task

    def unfenced(self: Executor, *arguments: Any, **named: Any) -> Task:
        return msgspec.structs.replace(task(self, *arguments, **named), fence=0)

    patch.setattr(Executor, "task", unfenced)


def acts_whatever_the_fence_number_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ImpactJournal, "_admit", lambda *_: None)


def keeps_the_time_that_it_had_as_a_follower(patch: pytest.MonkeyPatch) -> None:
    resume = RealClock.resume

    def resume_later(self: RealClock, *values: Any, **named: Any) -> None:
        before = self._floor
        resume(self, *values, **named)
        self._floor = max(self._floor, before)

    patch.setattr(RealClock, "resume", resume_later)


def keeps_it_and_nobody_compares_it(patch: pytest.MonkeyPatch) -> None:
    keeps_the_time_that_it_had_as_a_follower(patch)
    patch.setattr(WrongClocksCluster, "check_time", lambda *_: None)


def claims_with_a_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLeadership, "_clock_is_wrong", lambda _self: False)


def at_commits(
    failure: Failure, *, before: bool, successor: int = 1, clock_step: float = 0.0
) -> list[Fault]:
    return [Fault(failure, c, before, successor, clock_step=clock_step) for c in COMMITS]


def at_calls(failure: Failure) -> list[Fault]:
    return [Fault(failure, at_call=call) for call in CALLS]


KILLED = at_commits(Failure.KILLED, before=True)
PAUSED = at_commits(Failure.PAUSED, before=True)
PAUSED_AFTER = at_commits(Failure.PAUSED, before=False)
PAUSED_CALLS = at_calls(Failure.PAUSED)
AHEAD = at_commits(Failure.NONE, before=True, clock_step=3_600.0)
BEHIND = at_commits(Failure.KILLED, before=True, clock_step=-3_600.0)
DEAF = at_commits(Failure.DEAF, before=True, successor=0)
DEAF_AFTER = at_commits(Failure.DEAF, before=False, successor=0)
BROKEN: list[tuple[Break, list[Fault], str]] = [
    (has_no_fence, PAUSED, "numbers"),
    (checks_its_term_before_the_transaction, PAUSED, "numbers"),
    (acknowledges_before_it_is_durable, KILLED, "lost-commit"),
    (adopts_commits_in_the_wrong_order, PAUSED, "mirror"),
    (takes_a_commit_in_doubt_as_not_happened, DEAF_AFTER, "numbers"),
    (takes_a_commit_in_doubt_as_happened, DEAF, "lost-commit"),
    (answers_guests_without_its_lease, PAUSED, "deposed-answers"),
    (answers_guests_without_its_lease, PAUSED, "incarnation-down"),
    (answers_approvals_before_they_are_stored, PAUSED, "approval-not-in-log"),
    (claims_without_looking_at_the_lease, KILLED, "two-leaders"),
    (believes_the_clock_of_the_database, AHEAD, "two-leaders"),
    (believes_the_clock_of_the_database, BEHIND, "nobody-decides"),
    (decides_without_a_claim, KILLED, "two-leaders"),
    (takes_changes_as_a_follower, KILLED, "follower-decides"),
    (calls_the_driver_without_its_lease, PAUSED_AFTER, "driver-without-lease"),
    (calls_the_driver_without_a_fence_number, PAUSED_CALLS, "late-driver-call"),
    (calls_the_driver_without_a_fence_number, PAUSED_CALLS, "impact-twice"),
    (acts_whatever_the_fence_number_is, PAUSED_CALLS, "late-driver-call"),
]
WRONG_CLOCKS: list[tuple[Break, str]] = [
    (keeps_the_time_that_it_had_as_a_follower, "time-ahead"),
    (keeps_it_and_nobody_compares_it, "early-start"),
    (keeps_it_and_nobody_compares_it, "impact-early"),
    (claims_with_a_wrong_clock, "wrong-clock"),
]


@pytest.fixture(autouse=True)
def without_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "HANDOVER", 0.0)


@pytest.mark.parametrize(
    ("broken", "faults", "rule"), BROKEN, ids=[f"{b.__name__}: {rule}" for b, _, rule in BROKEN]
)
def test_broken_control_nodes_are_caught(
    broken: Break, faults: list[Fault], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    check_caught(faults, rule, ClusterScript)


@pytest.mark.parametrize(
    ("broken", "rule"), WRONG_CLOCKS, ids=[f"{b.__name__}: {rule}" for b, rule in WRONG_CLOCKS]
)
def test_broken_control_nodes_with_wrong_clocks_are_caught(
    broken: Break, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    check_caught(KILLED, rule, WrongClocksScript)


def check_caught(faults: list[Fault], rule: str, script: type[ClusterScript]) -> None:
    found: set[str] = set()
    for fault in faults:
        found |= {finding.rule for finding in live(SEED, copy(fault), STEPS, script)[1]}
        if rule in found:
            return
    pytest.fail(f"not caught; found only {found or 'nothing'}")
