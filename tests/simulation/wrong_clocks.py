"""Simulations on wall clocks, which may be wrong. `at` is the time as it really is, by which guests
and the judge go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from forewarn.core import Status
from forewarn.core.time import DAY, HOUR, SECOND, Duration
from forewarn.node import Node
from forewarn.service.engine.clock import Clock, ClockLimits, RealClock
from forewarn.store.port import CLOCK_LIMIT, Commit
from forewarn.wire.versions import NEWEST
from simulation.cluster import Cluster, ClusterScript, ControlNode, Fault
from simulation.world import RULES

YEAR = 365 * DAY
LOOK: Duration = 5 * SECOND  # a process that is not looked at for longer has stood still
# Of clocks before they are synchronized: some are followed, and others are not.
SHORTLY: Duration = 90 * SECOND  # before an event, a node takes over: less than most errors
ERRORS = (100 * SECOND, 200 * SECOND, 299 * SECOND, HOUR, -200 * SECOND, -HOUR, 4 * YEAR)


class WallTime:
    """What is other than in a simulation with a virtual clock. Mixed into a Simulation."""

    at: int
    node: Node
    surviving: Any

    def see_time(self) -> None:
        """It is what it is, whatever the service takes it for."""

    async def see_clock(self) -> None:
        """Let the service notice the time."""
        node = self.node
        now = node.writer.now()
        due = node.scheduler.next_due()
        if due is not None and due <= now.at:
            node.scheduler.reread()
            await self.surviving(node.ledger.idle())

    async def advance(self, by: int) -> None:
        end = self.at + by
        while self.at < end:
            self.at = min(end, self.at + LOOK)
            await self.see_clock()


class WrongClocksCluster(WallTime, Cluster):
    """Control nodes whose clocks are wrong when they are started, except for the first, and are
    corrected before they take over. After that no event has to wait, since that would hide it if
    one were early."""

    rules = replace(RULES, start_grace=0)

    def __init__(self, seed: int, fault: Fault) -> None:
        self.errors: dict[str, Duration] = {}
        super().__init__(seed, fault)

    def make_clock_of(self, name: str) -> Clock:
        self.errors[name] = self.chance.choice(ERRORS) if self.errors else 0
        return RealClock(lambda: self.at + self.errors[name], lambda: self.at, ClockLimits())

    def clock_error(self, name: str) -> float:
        return self.errors[name] / SECOND

    async def see_clock(self) -> None:
        self.see_clocks_of_followers()
        await super().see_clock()

    def see_clocks_of_followers(self) -> None:
        """Let them notice the time, as their operators do."""
        for member in self.nodes:
            if not member.store.leadership.term:
                member.clock.now(self.rules)

    async def take_over(self, successor: ControlNode, away: int) -> None:
        self.at += self._until_shortly_before_an_event(away)
        self.leader = successor
        if self.errors[successor.name]:
            await self.look()
            if successor.store.leadership.term:
                self.find("wrong-clock", f"{successor.name} claims the lease with a wrong clock")
            self.see_clocks_of_followers()
            self.errors[successor.name] = 0
            self.see_clocks_of_followers()
        await super().take_over(successor, 0)
        for group in self.disk.groups.values():
            for machine in group.machines:
                await self.ask(machine.name, "GET", NEWEST.name)

    def _until_shortly_before_an_event(self, away: int) -> int:
        events = [event for group in self.disk.groups.values() for event in group.events]
        waiting = [event.not_before for event in events if event.status is Status.SCHEDULED]
        later = [at - SHORTLY - self.at for at in waiting if at > self.at + SHORTLY]
        return min(later, default=away)

    def on_taken(self, owner: ControlNode) -> None:
        owner.clock.resume(None, 0, confirmed=True)  # the recording begins before the node does so
        super().on_taken(owner)

    async def step(self, by: int) -> None:
        """The clock of whoever decides is right."""

    def check_time(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            if commit.at > self.at + CLOCK_LIMIT * SECOND:
                ahead = (commit.at - self.at) / SECOND
                self.find("time-ahead", f"commit {commit.seq} is dated {ahead:.0f} s ahead")


class WrongClocksScript(ClusterScript):
    def make_cluster(self, seed: int, fault: Fault) -> Cluster:
        return WrongClocksCluster(seed, fault)
