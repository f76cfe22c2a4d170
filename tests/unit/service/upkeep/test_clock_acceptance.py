"""Accepting the wall clock, forward and back, with rollouts, hosts, tokens, keys and attempts in
the state: whatever is counted from a time on record goes on, and nothing waits for a time that a
wrong clock has named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType, Refused, Source, Status
from forewarn.core.access import Role
from forewarn.core.rollouts.model import Gate
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Duration, Time
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
)
from forewarn.node import Config, Node
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.service.engine.clock import ClockLimits, RealClock
from forewarn.service.engine.writer import CommitPlan, RequestContext
from forewarn.service.fleet.read import parse
from forewarn.service.rollouts.gates import GateResult
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.upkeep.clock_acceptance import AcceptedClock
from forewarn.store import MemoryStore, Store, StoreFailed
from forewarn.store.memory import Disk
from forewarn.store.port import Key
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.testing.kit.inprocess import exchange

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, host: h1, addresses: [127.0.0.1]}
      - {name: web-1, update_domain: 1, host: h2}
"""
START: Time = 1_800_000_000 * SECOND
FOUR_YEARS: Duration = 4 * 365 * DAY
LOOK: Duration = 5 * SECOND  # a process that is not looked at for longer has stood still
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


class World:
    """The time as it really is, and a wall clock that shows it with an error."""

    def __init__(self) -> None:
        self.at = START
        self.error: Duration = 0

    def node(self, store: Store, **parts: Any) -> Node:
        clock = RealClock(lambda: self.at + self.error, lambda: self.at, ClockLimits())
        return Node(Config(fleet=parse(FLEET)), store=store, clock=clock, **parts)

    async def advance(self, node: Node, by: Duration) -> None:
        end = self.at + by
        while self.at < end:
            self.at = min(end, self.at + LOOK)
            await look(node)


async def look(node: Node) -> None:
    now, due = node.writer.now(), node.scheduler.next_due()
    if due is not None and due <= now.at:
        node.scheduler.reread()
        await node.ledger.idle()


async def accept(node: Node) -> AcceptedClock:
    assert node.writer.now().untrusted is not None
    accepted = await node.clock_acceptance.accept("operator")
    assert isinstance(accepted, AcceptedClock)
    assert node.writer.now().untrusted is None
    await node.ledger.idle()
    return accepted


async def start_rollout(node: Node, **fields: Any) -> str:
    selection = Selection(groups=("web",))
    wanted = RolloutRequest(type=EventType.REBOOT, by="test", selection=selection, **fields)
    report = await node.rollouts.start(wanted)
    assert not isinstance(report, Refused), report.message
    await node.ledger.idle()
    return report.rollout.id


def announced(node: Node) -> list[tuple[str, ...]]:
    return [event.resources for event in node.platform.active()]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    disk = Disk()
    if request.param == "memory":
        return lambda: MemoryStore(disk)
    return lambda: SqliteStore(tmp_path / "state.db")


def test_a_rollout_whose_last_step_a_wrong_clock_has_dated_bakes_no_longer_than_it_should(
    opened: Callable[[], Store],
) -> None:
    async def body() -> None:
        world = World()
        world.error = FOUR_YEARS
        async with world.node(opened()) as node:
            await start_rollout(node, bake=HOUR)
            assert announced(node) == [("web-0",)]
            await world.advance(node, 30 * MINUTE)
            assert announced(node) == []  # it has been carried out
        world.error = 0
        async with world.node(opened()) as node:
            await accept(node)
            await world.advance(node, 30 * MINUTE)
            assert announced(node) == []
            await world.advance(node, 40 * MINUTE)
            assert announced(node) == [("web-1",)]

    asyncio.run(body())


def test_a_gate_that_did_not_pass_by_a_wrong_clock_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        world, answers = World(), [GateResult(False, "not yet")]

        async def evaluate(_: Gate) -> GateResult:
            return answers[-1]

        world.error = 3 * HOUR
        async with world.node(MemoryStore()) as node:
            monkeypatch.setattr(node.gates, "evaluate", evaluate)
            gate = Gate(http="http://127.0.0.1:1/", timeout=HOUR)
            await start_rollout(node, gate=gate)
            await world.advance(node, 30 * MINUTE)
            assert announced(node) == []
            world.error = 0
            await look(node)
            await accept(node)
            answers.append(GateResult(True, "now it does"))
            await world.advance(node, 2 * MINUTE)
            assert announced(node) == [("web-1",)]

    asyncio.run(body())


class Slow(Driver):
    """A driver whose first attempt takes until it is let go, and asks for a second one."""

    repeatable = False

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.attempts = 0

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        self.attempts += 1
        if self.attempts > 1:
            return Done()
        await self.let_go.wait()
        return Again(task.now + MINUTE)


def test_an_attempt_that_was_under_way_is_repeated_when_its_driver_has_asked_for_it() -> None:
    async def body() -> None:
        world, driver = World(), Slow()
        world.error = FOUR_YEARS
        async with world.node(MemoryStore(), driver=driver) as node:
            raised = await node.platform.schedule(
                type=EventType.REBOOT, machines=("web-0",), by="operator", source=Source.PLATFORM
            )
            assert not isinstance(raised, Refused)
            await node.platform.approve(raised.event.id, "operator")
            world.error = 0
            await look(node)
            assert node.writer.now().untrusted is not None
            assert isinstance(await node.clock_acceptance.accept("operator"), AcceptedClock)
            driver.let_go.set()
            await node.ledger.idle()
            assert [e.status for e in node.platform.active()] == [Status.STARTED]
            await world.advance(node, 2 * MINUTE)
            assert driver.attempts == 2
            assert node.platform.active() == []

    asyncio.run(body())


def test_hosts_tokens_and_keys_are_dated_by_the_right_clock_and_last_as_long_as_they_should(
    opened: Callable[[], Store],
) -> None:
    async def body() -> None:
        world = World()
        key = Key("local", "a key", "a request")
        async with world.node(opened()) as node:
            before = await create(node, "before", 10 * DAY)
            await world.advance(node, MINUTE)
        world.error = 20 * DAY  # it may have been off for so long
        async with world.node(opened()) as node:
            assert not before.token.valid(node.writer.now().at)
            wrongly = await create(node, "wrongly", 10 * DAY)
            await node.hosts.degrade("h1", "operator")
            await node.writer.for_request(RequestContext(key)).commit(CommitPlan())
            await node.store.save_answer(key, 200, b"{}")
            await world.advance(node, MINUTE)
        world.error = 0
        async with world.node(opened()) as node:
            accepted = await accept(node)
            assert accepted.before - accepted.now == 20 * DAY
            now = node.writer.now().at
            tokens = {token.name: token for token in node.store.registry.tokens.values()}
            assert tokens["before"] == before.token
            assert tokens["before"].valid(now)
            assert tokens["wrongly"].created_at == wrongly.token.created_at - 20 * DAY
            assert tokens["wrongly"].expires_at == tokens["wrongly"].created_at + 10 * DAY
            since = node.store.registry.hosts["h1"].since
            assert since is not None
            assert START < since <= now
            kept = await node.store.keyed_request("local", "a key")
            assert kept is not None
            assert (kept.status, kept.answer) == (200, b"{}")
            assert START < kept.at <= now
        async with world.node(opened()) as node:  # and that is what was stored
            assert node.writer.now().untrusted is None
            stored = {token.name: token for token in node.store.registry.tokens.values()}
            assert stored == tokens
            assert node.store.registry.hosts["h1"].since == since

    asyncio.run(body())


async def create(node: Node, name: str, lasts: Duration) -> CreatedToken:
    wanted = NewToken(name=name, role=Role.ADMIN, expires_in=lasts)
    created = await node.tokens.create(wanted, by="operator")
    assert isinstance(created, CreatedToken)
    return created


def test_accepting_a_clock_that_is_far_ahead_moves_nothing_and_counts_as_an_outage(
    opened: Callable[[], Store],
) -> None:
    async def body() -> None:
        world = World()
        async with world.node(opened()) as node:
            await exchange(node.app, "127.0.0.1", "GET", EVENTS, {"Metadata": "true"}, b"")
            token = await create(node, "before", 10 * DAY)
            await start_rollout(node, bake=HOUR)
            (event,) = node.platform.active()
            await world.advance(node, MINUTE)
        world.at += 60 * DAY  # it really was off for so long
        async with world.node(opened()) as node:
            accepted = await accept(node)
            assert accepted.notes == ()
            assert accepted.now == world.at
            assert node.platform.active() == [event]  # there is a grace after an outage
            assert node.store.groups["web"].enabled  # silence counts only while it served
            assert not token.token.valid(node.writer.now().at)
            await world.advance(node, 2 * MINUTE)
            assert [e.status for e in node.platform.active()] == [Status.STARTED]
            await world.advance(node, 80 * MINUTE)
            assert announced(node) == [("web-1",)]

    asyncio.run(body())


class Refusing(MemoryStore):
    refuses = False

    async def _persist(self, *batch: Any) -> None:
        if self.refuses:
            raise StoreFailed("the disk is full")
        await super()._persist(*batch)


@pytest.mark.parametrize("refuses", [False, True])
def test_two_acceptances_at_once_accept_the_clock_once_or_not_at_all(refuses: bool) -> None:
    async def body() -> None:
        world = World()
        world.error = FOUR_YEARS
        store = Refusing()
        async with world.node(store) as node:
            world.error = 0
            await look(node)
            before = node.writer.now()
            store.refuses = refuses
            both: list[Awaitable[AcceptedClock | Refused]] = [
                node.clock_acceptance.accept(by) for by in ("one", "other")
            ]
            found = await asyncio.gather(*both, return_exceptions=True)
            now = node.writer.now()
            if refuses:
                assert [type(answer) for answer in found] == [StoreFailed, StoreFailed]
                assert (now.untrusted, now.at, now.lost) == (
                    *(before.untrusted, before.at, before.lost),
                )
                store.refuses = False
            else:
                assert {type(answer) for answer in found} == {AcceptedClock, Refused}
                assert now.untrusted is None

    asyncio.run(body())
