"""Machines that poll the node of another host: what would disturb them waits, until it is certain
where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.core import Event, EventType, Machine, Refused, Source, Status
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.history import RecordKind
from forewarn.core.time import SECOND
from forewarn.metadata.publishing import host_nodes, node_upstream, publisher, strays
from forewarn.node import Node
from forewarn.service.fleet.read import parse
from forewarn.store.port import HistoryQuery
from forewarn.support import guard
from helpers.host_nodes import FLEET, Control, HostNode, host_node, until
from helpers.waiting import LIMIT

WEB_0 = "10.0.0.1"  # which is on h1


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "CHECK_EVERY", 0.01)
    monkeypatch.setattr(publisher, "CHECK_EVERY", 0.01)
    monkeypatch.setattr(node_upstream, "REPORT_EVERY", 0.02)
    monkeypatch.setattr(node_upstream, "REPEAT_EVERY", 1)
    monkeypatch.setattr(strays, "ASK_EVERY", SECOND // 50)
    monkeypatch.setattr(strays, "SETTLE", SECOND // 5)


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    asyncio.run(limited())


@asynccontextmanager
async def two_nodes(control: Control) -> AsyncIterator[tuple[Node, HostNode, HostNode]]:
    async with (
        control() as node,
        host_node(control, "h1") as h1,
        host_node(control, "h2") as h2,
    ):
        await until(lambda: all(h.upstream.connected for h in (h1, h2)))
        await until(lambda: not node.host_index.unreachable.all())
        await h1.upstream.enable("web")
        yield node, h1, h2


def poll(host: HostNode, machine: str = "web_0") -> None:
    host.upstream.record_poll(machine, "web", "2020-07-01", 1, (), host.upstream.now())


async def poll_regularly(node: Node, host: HostNode) -> None:
    """Have web_0 poll until its rhythm is known."""

    def rhythm() -> bool:
        poll(host)
        polls = node.poll_index.polls("web_0")
        return polls is not None and polls.interval > 0

    await until(rhythm)


@asynccontextmanager
async def polling(*polls: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Have these sent all the time."""

    async def go_on() -> None:
        while True:
            for poll in polls:
                await poll()
            await guard.pause(0.01)

    tasks = guard.Tasks()
    tasks.start(go_on(), "polls")
    try:
        yield
    finally:
        await tasks.end()


def machine(node: Node, name: str = "web_0") -> Machine:
    found = node.machine_index.machine(name)
    assert found is not None
    return found[1]


async def restart(node: Node) -> Event:
    """Announce a restart of web_0, which does not depend on the host that it is on."""
    done = await node.platform.schedule(
        type=EventType.REBOOT, machines=("web_0",), by="test", source=Source.USER
    )
    assert not isinstance(done, Refused)
    return done.event


def suspected(node: Node) -> bool:
    return machine(node).disputed_by_poll


async def story(node: Node) -> list[tuple[str, str, str]]:
    """Return what the history has about the host of web_0."""
    kinds = (RecordKind.MACHINE_MOVED, RecordKind.MACHINE_CHANGED)
    found = await node.store.history(HistoryQuery(machine="web_0", what=kinds))
    return [(record.what.value, record.by, record.note) for record in found]


def test_a_machine_that_was_moved_is_held_at_once_and_then_recorded_where_it_polls(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await poll_regularly(node, h1)
            await h2.upstream.find(WEB_0)
            assert suspected(node)
            for host in ("h1", "h2"):
                refused = await node.hosts.maintain(host, EventType.REBOOT, "test")
                assert isinstance(refused, Refused)
                assert refused.about == "web_0"
            async with polling(lambda: h2.upstream.find(WEB_0)):
                await until(lambda: machine(node).host == "h2")
                await until(lambda: "web_0" in h2.machines("web"))
            assert not suspected(node)
            await until(lambda: node.host_index.strayed == {})
            assert await story(node) == [
                ("machine-changed", "node of h2", "on h1, but it polls on h2"),
                ("machine-moved", "node of h2", "from h1 to h2"),
            ]

    play(body)


def test_nothing_is_done_to_a_machine_that_polls_elsewhere(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.config = msgspec.structs.replace(control.config, record_moves=False)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await poll_regularly(node, h1)
            event = await restart(node)
            async with polling(lambda: h2.upstream.find(WEB_0)):
                await until(lambda: suspected(node))
                await node.platform.approve(event.id, "test")
                (hold,) = node.platform.holds(event)
                assert hold.kind is HoldKind.REACH
                assert "placement" in node.health.warnings()
            recorded = await node.platform.record_move("web_0", "h2", "test")
            assert not isinstance(recorded, Refused)
            await until(lambda: node.platform.active()[0].status is Status.STARTED)
            assert not node.health.warnings().get("placement")

    play(body)


def test_an_event_waits_until_a_machine_that_was_found_has_had_time_to_poll(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await poll_regularly(node, h1)
            event = await restart(node)
            async with polling(lambda: h2.upstream.find(WEB_0)):
                await until(lambda: machine(node).host == "h2")
            assert "web_0" in node.writer.now().left_unreachable
            kinds = [hold.kind for hold in node.platform.holds(event)]
            assert HoldKind.REACH in kinds

    play(body)


def test_a_machine_that_polls_where_it_is_cannot_be_claimed_by_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this process may stand still, in which the machine does not poll.
    monkeypatch.setattr(strays, "SETTLE", 60 * SECOND)
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await poll_regularly(node, h1)

            async def both() -> None:
                poll(h1)
                await h2.upstream.find(WEB_0)

            async with polling(both):
                await until(lambda: suspected(node))
                stray = nodes_strays(node)._strays["web_0"]
                before = stray.first
                await until(lambda: stray.first > before + 10 * strays.ASK_EVERY)
                assert machine(node).host == "h1"

    play(body)


def nodes_strays(node: Node) -> strays.Strays:
    assert node.host_nodes is not None
    return node.host_nodes.strays


async def asked_often(node: Node) -> None:
    """Return when the nodes were asked for longer than it takes to record a move."""
    stray = nodes_strays(node)._strays["web_0"]
    enough = node.writer.now().at + 3 * strays.SETTLE
    await until(lambda: stray.asked > enough)


@pytest.mark.parametrize("why", ["it never polled", "operators decide", "it was found before"])
def test_an_ambiguous_move_is_not_recorded_without_an_operator(tmp_path: Path, why: str) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            if why != "it never polled":
                await poll_regularly(node, h1)
            async with polling(lambda: h2.upstream.find(WEB_0)):
                if why == "it was found before":
                    await until(lambda: machine(node).host == "h2")
                    await node.platform.record_move("web_0", "h1", "test")
                await until(lambda: suspected(node))
                nodes_strays(node).record = why != "operators decide"
                if nodes_strays(node).record:
                    await asked_often(node)
                assert machine(node).host == "h1"
                assert suspected(node)

    play(body)


def test_a_move_is_not_recorded_while_the_node_that_had_the_machine_is_cut_off(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, host_node(control, "h2") as h2:
            async with host_node(control, "h1") as h1:
                await until(lambda: not node.host_index.unreachable.all())
                await h1.upstream.enable("web")
                await poll_regularly(node, h1)
            await until(lambda: node.host_index.unreachable.is_unreachable("h1"))
            async with polling(lambda: h2.upstream.find(WEB_0)):
                await until(lambda: suspected(node))
                await asked_often(node)
                assert machine(node).host == "h1"

    play(body)


def test_a_machine_that_polls_where_it_was_after_a_move_to_a_host_that_is_cut_off_is_held(
    tmp_path: Path,
) -> None:
    """The node there answers it until that of its new host has joined."""
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, _):
            async with host_node(control, "h3") as h3:
                await until(lambda: h3.upstream.connected)
            await until(lambda: node.host_index.unreachable.is_unreachable("h3"))
            poll(h1)
            for name in ("web_0", "web_1"):
                moved = await node.platform.record_move(name, "h3", "test")
                assert not isinstance(moved, Refused)

            def is_suspected() -> bool:
                poll(h1)
                return suspected(node)

            await until(is_suspected)
            refused = await node.hosts.maintain("h1", EventType.REBOOT, "test")
            assert isinstance(refused, Refused)
            assert refused.about == "web_0"
            assert h1.machines("web") == ["web_0"]
            assert not machine(node, "web_1").disputed
            async with host_node(control, "h3") as h3, polling(lambda: h1.upstream.find(WEB_0)):
                await until(lambda: h3.upstream.connected)
                await until(lambda: machine(node).host == "h1")

    play(body)


def test_a_machine_that_is_back_where_it_is_known_to_be_is_not_suspected_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "CALM", SECOND // 10)
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await poll_regularly(node, h1)
            await h2.upstream.find(WEB_0)
            assert suspected(node)

            def certain() -> bool:
                poll(h1)
                return not suspected(node)

            await until(certain)
            assert machine(node).host == "h1"

    play(body)


def test_a_host_can_have_only_so_many_machines_suspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "MAX_PER_HOST", 1)
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, _):
            for address in ("10.0.0.2", "10.0.0.3"):
                await h1.upstream.find(address)
            assert machine(node, "web_1").disputed_by_poll
            assert not machine(node, "db_0").disputed_by_poll

    play(body)


def test_a_poll_from_an_address_of_several_machines_suspects_none(tmp_path: Path) -> None:
    control = Control(tmp_path)
    same = FLEET.replace("10.0.0.3", WEB_0)
    control.config = msgspec.structs.replace(
        control.config, fleet=parse(same, addresses=control.config.address_rules)
    )

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2), host_node(control, "h3") as h3:
            await poll_regularly(node, h1)
            await until(lambda: h3.upstream.connected)
            await h3.upstream.find(WEB_0)
            assert not suspected(node)
            assert not machine(node, "db_0").disputed_by_poll
            assert h2.upstream.connected

    play(body)


def test_a_file_does_not_explain_why_a_machine_polls_elsewhere(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, _, h2):
            await h2.upstream.find(WEB_0)
            assert suspected(node)
            await node.fleet_apply.text(FLEET, by="test")
            assert suspected(node)
            there = FLEET.replace("10.0.0.1, host: h1", "10.0.0.1, host: h2")
            await node.fleet_apply.text(there, by="test")
            assert (machine(node).host, suspected(node)) == ("h2", False)

    play(body)
