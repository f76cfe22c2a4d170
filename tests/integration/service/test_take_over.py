"""Attempts that one control node has begun, and another one finds: what the second asks, and what
becomes of calls of the first that arrive late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from forewarn.core import EventType, Refused
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.core.time import SECOND
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
    Unknown,
)
from forewarn.drivers.simulated import LateCall, SharedImpactJournal, SimulatedDriver
from forewarn.metadata.endpoint.callers import Identity
from forewarn.node import Config, Node
from forewarn.service.engine import executor
from forewarn.service.engine.clock import Clock, ClockLimits, RealClock
from forewarn.service.fleet.read import parse
from forewarn.store.postgres.impacts import Impacts
from forewarn.support import guard
from helpers import postgres
from helpers.waiting import until_async

FLEET = parse("""
hosts: [h1, h2, h3]
groups:
  - {name: web, kind: standalone, machines: [{name: web_0, host: h1}]}
  - {name: sql, kind: standalone, machines: [{name: sql_0, host: h1}]}
""")


class Asked(Driver):
    """Remembers its tasks, and may be kept from answering."""

    repeatable = False

    def __init__(self, observes: Observed | None = None) -> None:
        self.tasks: list[tuple[str, Task]] = []
        self.may_go_on = asyncio.Event()
        self._observes = observes or NotYet()

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        self.tasks.append(("observe", task))
        return self._observes

    async def perform(self, task: Task) -> Performed:
        self.tasks.append(("perform", task))
        await self.may_go_on.wait()
        return Done()

    @property
    def asked(self) -> list[str]:
        return [verb for verb, _ in self.tasks]


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    postgres.needed()
    monkeypatch.setattr(executor, "HANDOVER", 0.0)
    return postgres.shared_server().new_state()


@contextlib.asynccontextmanager
async def node(
    url: str, name: str, driver: Driver, clock: Clock | None = None
) -> AsyncIterator[Node]:
    config = Config(state=url, name=name, lease=900 * SECOND, fleet=FLEET, identity=Identity.TARGET)
    async with Node(config, driver=driver, clock=clock) as made:
        yield made


@contextlib.asynccontextmanager
async def nodes(url: str, first: Driver, second: Driver) -> AsyncIterator[tuple[Node, Node]]:
    """Two control nodes, the first of which decides."""
    async with node(url, "c1", first) as c1:
        await until_async(lambda: c1.health.deciding)
        async with node(url, "c2", second) as c2:
            yield c1, c2


async def restart(node: Node, machine: str = "web_0", type: EventType = EventType.REBOOT) -> None:
    """Have an attempt on record: nobody is to be warned, so that it begins at once."""
    await until_async(lambda: node.health.deciding)
    outcome = await node.platform.user_maintenance(machine, type, "ann")
    assert not isinstance(outcome, Refused)


async def attempts(node: Node) -> list[int]:
    """Return the numbers of the commits that have put an attempt on record."""
    return [
        commit.seq
        async for commit in node.store.commits(0)
        for entry in commit.entries
        for item in entry.items
        if isinstance(item, EventMoved) and item.what in (Move.START, Move.ATTEMPT)
    ]


def free_the_lease(url: str) -> None:
    """As if the leader had stood still for so long."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE leader SET until = 'epoch'")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_attempts_of_the_last_leader_are_observed_with_a_higher_fence(url: str) -> None:
    async def body() -> None:
        first, second = Asked(), Asked()
        second.may_go_on.set()
        async with nodes(url, first, second) as (c1, c2):
            await restart(c1)
            await until_async(lambda: first.asked == ["perform"])
            free_the_lease(url)
            await until_async(lambda: second.asked == ["observe", "perform"])
            await until_async(lambda: not c2.store.groups["web"].events)
            begun, observed, again = (task for _, task in [*first.tasks, *second.tasks])
            assert begun.fence < observed.fence < again.fence
            assert [begun.fence, again.fence] == await attempts(c2)

    run(body())


def test_a_node_that_takes_over_keeps_the_target_of_a_move(url: str) -> None:
    async def body() -> None:
        first, second = Asked(), Asked()
        async with nodes(url, first, second) as (c1, c2):
            await restart(c1, type=EventType.REDEPLOY)
            await until_async(lambda: first.asked == ["perform"])
            moved = await c1.platform.record_move("sql_0", "h2", "ann")  # so that h3 is emptier
            assert not isinstance(moved, Refused)
            free_the_lease(url)
            await until_async(lambda: second.asked == ["observe", "perform"])
            tasks = [task for _, task in [*first.tasks, *second.tasks]]
            assert [task.machines[0].target for task in tasks] == ["h2", "h2", "h2"]
            placement = c2.host_index.placement
            assert [placement.held(host).machines for host in ("h1", "h2", "h3")] == [1, 2, 0]
            second.may_go_on.set()
            await until_async(lambda: not c2.store.groups["web"].events)
            assert c2.store.groups["web"].machines[0].host == "h2"
            assert [placement.held(host).machines for host in ("h1", "h2", "h3")] == [0, 2, 0]

    run(body())


def test_an_attempt_of_unknown_outcome_waits_for_an_operator(url: str) -> None:
    async def body() -> None:
        first, second = Asked(), Asked(observes=Unknown("the host does not answer"))
        async with nodes(url, first, second) as (c1, c2):
            await restart(c1)
            await until_async(lambda: first.asked == ["perform"])
            free_the_lease(url)
            await until_async(lambda: bool(second.asked))
            await c2.ledger.idle()
            (event,) = c2.store.groups["web"].events
            assert event.attempt is not None
            assert event.attempt.stuck
            assert second.asked == ["observe"]

    run(body())


def test_attempts_of_the_last_leader_are_left_alone_for_a_while(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But new ones are not."""
    monkeypatch.setattr(executor, "HANDOVER", 900.0)

    async def body() -> None:
        first, second = Asked(), Asked()
        async with nodes(url, first, second) as (c1, c2):
            await restart(c1)
            await until_async(lambda: first.asked == ["perform"])
            free_the_lease(url)
            await restart(c2, "sql_0")
            await until_async(lambda: bool(second.tasks))
            assert [(verb, task.group) for verb, task in second.tasks] == [("perform", "sql")]

    run(body())


class Late(SimulatedDriver):
    """A simulated driver whose call does not get through for a while."""

    def __init__(self, url: str) -> None:
        self.impacts = Impacts(url)
        super().__init__(SharedImpactJournal(self.impacts), lambda duration: duration)
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.refusals: list[LateCall] = []

    async def perform(self, task: Task) -> Performed:
        self.begun.set()
        await self.may_go_on.wait()
        try:
            return await super().perform(task)
        except LateCall as refusal:
            self.refusals.append(refusal)
            raise


def test_a_late_call_of_the_last_leader_is_refused_by_the_simulated_machines(url: str) -> None:
    async def body() -> None:
        first, second = Late(url), Late(url)
        async with nodes(url, first, second) as (c1, _):
            await restart(c1)
            await first.begun.wait()
            free_the_lease(url)
            await second.begun.wait()
            first.may_go_on.set()
            await until_async(lambda: bool(first.refusals))
            second.may_go_on.set()
            await until_async(lambda: impacts(url) == 1)
            assert not second.refusals
        await first.aclose()
        await second.aclose()

    run(body())


def impacts(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT 1 FROM impacts WHERE impact IS NOT NULL").fetchall()
        return len(rows)


def test_nothing_is_performed_once_the_lease_has_run_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "RETRY_AFTER", 0.01)

    async def body() -> None:
        driver = Asked()
        async with node(url, "c1", driver) as c1:
            leadership = c1.store.leadership
            assert leadership is not None
            looks: list[bool] = []

            def held() -> bool:
                looks.append(len(looks) >= 3)
                return looks[-1]

            await until_async(lambda: c1.health.deciding)
            monkeypatch.setattr(leadership, "held", held)
            await restart(c1)
            await until_async(lambda: bool(driver.asked))
            assert looks == [False, False, False, True]  # it was asked until it was held again

    run(body())


@pytest.mark.parametrize("error", [200 * SECOND, 3600 * SECOND, -3600 * SECOND])
def test_a_node_whose_clock_was_wrong_while_it_followed_decides_by_the_right_time(
    url: str, error: int
) -> None:
    errors = [error]
    clock = RealClock(lambda: guard.wall_us() + errors[-1], limits=ClockLimits())

    async def body() -> None:
        async with node(url, "c1", Asked()) as c1:
            await until_async(lambda: c1.health.deciding)
            async with node(url, "c2", Asked(), clock) as c2:
                c2.writer.now()
                errors.append(0)
                c2.writer.now()
                free_the_lease(url)
                await until_async(lambda: c2.health.deciding)
                before = guard.wall_us()
                now = c2.writer.now()
                assert (before <= now.at <= guard.wall_us(), now.untrusted) == (True, None)
                await restart(c2)

    run(body())


def test_a_take_over_in_good_order_is_logged_quietly(url: str) -> None:
    async def body() -> None:
        async with contextlib.AsyncExitStack() as stack:
            second = node(url, "c2", Asked())
            async with node(url, "c1", Asked()) as c1:
                await until_async(lambda: c1.health.deciding)
                c2 = await stack.enter_async_context(second)
                logged = stack.enter_context(capture_logs())
            await until_async(lambda: c2.health.deciding)
            checked = c2.health._checked_at
            await until_async(lambda: c2.health._checked_at > checked)  # and so has logged problems
            ours = [line for line in logged if line.get("about") != "replication"]
            assert [line["log_level"] for line in ours] == ["info", "info"]

    run(body())
