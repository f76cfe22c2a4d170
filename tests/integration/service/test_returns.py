"""Machines that come back, or do not: polls end events that were carried out, also across
restarts and take-overs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from forewarn.core import EventType, Refused, Status
from forewarn.core.time import HOUR, MINUTE, SECOND
from forewarn.drivers.port import Checked, Done, Driver, NotYet, Observed, Ok, Performed, Task
from forewarn.metadata.endpoint.callers import Identity
from forewarn.node import Config, Node
from forewarn.service.engine import executor, returns
from forewarn.service.fleet.build import Fleet
from forewarn.service.fleet.read import parse
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import Commit, StoreFailed
from forewarn.testing import Service
from helpers import postgres
from helpers.control_api import ask
from helpers.waiting import until_async

TEXT = """
groups:
  - name: web
    kind: scale-set
    policy: {over_when: heard}
    machines:
      - {name: web_0, update_domain: 0}
      - {name: web_1, update_domain: 1}
"""
FLEET: Fleet = parse(TEXT)


class Quick(Driver):
    """Carries everything out at once."""

    repeatable = True

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        return Done()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(TEXT, driver=Quick()) as service:
        for _ in range(2):
            service.get("web_0")
            service.get("web_1")
            service.clock.advance(1)
        yield service


def restarted(service: Service, machine: str = "web_0") -> str:
    event = service.schedule("Reboot", machine)
    service.approve(machine, event)
    return event.id


def statuses(service: Service) -> list[str]:
    return [event.status for event in service.events]


def test_an_event_is_shown_as_started_until_its_machine_polls(service: Service) -> None:
    restarted(service)
    service.clock.advance(60)
    service.get("web_1")
    assert statuses(service) == ["Started"]
    service.get("web_0")
    service.clock.advance(0)
    assert statuses(service) == []


def test_a_machine_that_was_not_back_is_back_when_it_polls(service: Service) -> None:
    restarted(service)
    service.clock.advance(600)
    assert statuses(service) == []
    group = service._session.node.store.groups["web"]
    assert [machine.not_back is None for machine in group.machines] == [False, True]
    service.get("web_0")
    service.clock.advance(0)
    group = service._session.node.store.groups["web"]
    assert [machine.not_back is None for machine in group.machines] == [True, True]


def test_operators_are_shown_machines_that_are_not_back() -> None:
    with Service(TEXT, driver=Quick(), sockets=True) as service:
        service.get("web_0")
        id = restarted(service)
        assert ask(service, "GET", f"/v1/events/{id}").body["waits_for"] == ["web_0"]
        assert "machines_not_back 0" in ask(service, "GET", "/metrics").raw.decode()
        service.clock.advance(600)
        listed = ask(service, "GET", "/v1/machines?not_back=true").body
        assert [(m["name"], m["not_back"]["event"]) for m in listed] == [("web_0", id)]
        assert ask(service, "GET", "/v1/status").body["not_back"] == 1
        assert "machines_not_back 1" in ask(service, "GET", "/metrics").raw.decode()
        ended = ask(service, "GET", f"/v1/events/{id}").body
        assert (ended["waits_for"], ended["not_back"]) == ([], ["web_0"])
        records = ask(service, "GET", "/v1/history?machine=web_0").body["records"]
        assert {"carried-out", "machine-not-back"} <= {record["what"] for record in records}
        assert ask(service, "POST", "/v1/machines/web_0/restore").status == 200
        assert ask(service, "GET", "/v1/status").body["not_back"] == 0


@contextlib.asynccontextmanager
async def node(**config: Any) -> AsyncIterator[Node]:
    store = config.pop("store", None)
    made = Config(fleet=FLEET, identity=Identity.TARGET, **config)
    async with Node(made, store=store, driver=Quick()) as running:
        await until_async(lambda: running.health.deciding)
        yield running


def poll(node: Node, machine: str) -> None:
    node._upstream.record_poll(machine, "web", "2020-07-01", 1, (), node.writer.now())


async def carried_out(node: Node) -> None:
    """Carry out a restart of a machine that has polled before, so that it is waited for."""
    await node.guests.enable("web")
    poll(node, "web_0")
    outcome = await node.platform.user_maintenance("web_0", EventType.REBOOT, "ann")
    assert not isinstance(outcome, Refused)
    await node.platform.approve(node.store.groups["web"].events[0].id, "ann")
    await until_async(lambda: waiting(node) == ("web_0",))


def waiting(node: Node) -> tuple[str, ...]:
    """Return the machines that an event waits for."""
    events = node.store.groups["web"].events
    return events[0].waiting.machines if events and events[0].waiting else ()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_service_that_was_restarted_goes_on_waiting() -> None:
    async def body() -> None:
        disk = Disk()
        async with node(store=MemoryStore(disk)) as first:
            await carried_out(first)
        async with node(store=MemoryStore(disk)) as second:
            assert second.store.groups["web"].events[0].status is Status.STARTED
            poll(second, "web_1")
            assert waiting(second) == ("web_0",)
            poll(second, "web_0")
            await until_async(lambda: not second.store.groups["web"].events)

    run(body())


def test_other_tasks_run_while_very_many_machines_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returns, "LOAD_SLICE", 1)

    async def body() -> None:
        async with node(store=MemoryStore(Disk())) as running:
            turns: list[str] = []
            asyncio.get_running_loop().call_soon(turns.append, "other")
            await running.returns.load()
            assert turns == ["other"]

    run(body())


def test_a_control_node_that_takes_over_goes_on_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.needed()
    monkeypatch.setattr(executor, "HANDOVER", 0.0)
    url = postgres.shared_server().new_state()

    async def body() -> None:
        async with node(state=url, name="c1", lease=10 * SECOND) as first:
            await carried_out(first)
        async with node(state=url, name="c2", lease=10 * SECOND) as second:
            assert waiting(second) == ("web_0",)
            poll(second, "web_0")
            await until_async(lambda: not second.store.groups["web"].events)

    run(body())


class Unwritable(MemoryStore):
    """A store whose disk can be full."""

    full = False

    async def _persist(self, commits: Any, *given: Any) -> None:
        if self.full and any(isinstance(commit, Commit) for commit in commits):
            raise StoreFailed("no space left")
        await super()._persist(commits, *given)


def test_a_poll_that_ends_an_event_is_not_lost_while_the_disk_is_full() -> None:
    async def body() -> None:
        store = Unwritable(Disk())
        async with node(store=store) as running:
            await carried_out(running)
            store.full = True
            poll(running, "web_0")
            await until_async(lambda: running.scheduler.oldest_due() is not None)
            store.full = False
            await until_async(lambda: not store.groups["web"].events)

    run(body())


def test_groups_that_poll_seldom_or_never_hold_nothing_for_longer_than_the_policy_says() -> None:
    for every, within in ((None, 0), (HOUR, 0), (6 * MINUTE, 0), (MINUTE, 10 * MINUTE)):
        with Service(TEXT, driver=Quick()) as service:
            for _ in range(3 if every else 0):
                service.get("web_0")
                service.clock.advance(every / SECOND if every else 0)
            event = service.schedule("Reboot", "web_0")
            service.clock.advance(15 * 60 + 1)
            assert bool(service.events) == bool(within), every
            service.clock.advance(within / SECOND)
            assert not service.events, (every, event)
