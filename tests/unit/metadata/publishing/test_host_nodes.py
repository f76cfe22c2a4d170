"""Control and its nodes, on lines that are lost and found again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.core import Durations, EventType, Group, Machine, Refused, Status, view
from forewarn.core.commands import Again, Done
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.history import RecordKind
from forewarn.core.time import SECOND
from forewarn.drivers.port import Task
from forewarn.drivers.simulated import SimulatedDriver
from forewarn.metadata.publishing import (
    host_nodes,
    node_upstream,
    publisher,
    updates,
)
from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    TWO_ROUNDS,
    Answer,
    Changed,
    Held,
    Hidden,
    Hide,
    News,
    NodeHello,
    Ping,
    Pong,
    Publication,
    ReadLease,
    SnapshotEnd,
    ToNode,
    Unwelcome,
    Welcome,
    WhoIs,
)
from forewarn.metadata.upstream import GroupNews, NotDurable
from forewarn.node import Node
from forewarn.service.engine import clock, executor
from forewarn.service.fleet.read import parse
from forewarn.service.platform.hosts import LIVE_MIGRATION
from forewarn.store.port import HistoryQuery
from forewarn.support import control_follower, guard, twins
from forewarn.support.message_stream import BrokenConnection, MessageStream, frame
from helpers.host_nodes import FLEET, PATIENCE, Control, HostNode, host_node, until


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "READ_LEASE", 0.6)
    monkeypatch.setattr(host_nodes, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(host_nodes, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(host_nodes, "CONFIRM_WITHIN", 0.2)
    monkeypatch.setattr(host_nodes, "RENEW_WITHIN", 0.2)
    monkeypatch.setattr(publisher, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(node_upstream, "WATCH_EVERY", 0.02)
    monkeypatch.setattr(node_upstream, "HOLD_CALL", PATIENCE)
    monkeypatch.setattr(node_upstream, "HOLD_UNKNOWN", PATIENCE)
    monkeypatch.setattr(node_upstream, "MAX_HOLD", 1.5)
    monkeypatch.setattr(executor, "RETRY_AFTER", 0.05)
    monkeypatch.setattr(node_upstream, "REPORT_EVERY", 0.1)


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())


async def joined(*nodes: HostNode) -> None:
    await until(lambda: all(n.upstream.connected and not n.upstream.disconnected for n in nodes))


@asynccontextmanager
async def two_nodes(control: Control) -> AsyncIterator[tuple[Node, HostNode, HostNode]]:
    """Control, and nodes on two hosts that have joined."""
    async with (
        control() as node,
        host_node(control, "h1") as h1,
        host_node(control, "h2") as h2,
    ):
        await joined(h1, h2)
        yield node, h1, h2


async def shown(node: HostNode, group: str, *events: tuple[str, str]) -> None:
    await until(lambda: node.events(group) == list(events))


async def start_moving(node: Node, h1: HostNode) -> str:
    """Have web_0 moved away from h1 by an event, which it approves."""
    done = await node.platform.schedule(type=EventType.REDEPLOY, machines=("web_0",), by="test")
    assert not isinstance(done, Refused)
    assert await h1.upstream.approve("web_0", "web", [done.event.id])
    return done.event.id


async def reboot(node: Node, machine: str) -> str:
    done = await node.platform.schedule(type=EventType.REBOOT, machines=(machine,), by="test")
    assert not isinstance(done, Refused)
    return done.event.id


def test_a_node_receives_the_groups_of_its_host_and_of_these_its_own_machines(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            assert {name: h1.machines(name) for name in h1.of} == {"web": ["web_0"]}
            assert {name: h2.machines(name) for name in h2.of} == {"web": ["web_1"], "db": ["db_0"]}
            await h1.upstream.enable("web")
            id = await reboot(node, "web_1")
            await shown(h1, "web", (id, "Scheduled"))
            await shown(h2, "web", (id, "Scheduled"))
            assert node.store.registry.hosts["h1"].node
            assert not node.store.registry.hosts["h3"].node

    play(body)


def test_a_node_cannot_call_for_machines_of_other_hosts(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, _):
            await h1.upstream.enable("web")
            id = await reboot(node, "web_1")
            with pytest.raises(NotDurable, match="on this host"):
                await h1.upstream.approve("web_1", "web", [id])
            with pytest.raises(NotDurable, match="on this host"):
                await h1.upstream.enable("db")
            with pytest.raises(NotDurable, match="on this host"):
                await h1.upstream.prepared("db", id)
            event = node.store.groups["web"].event(id)
            assert event is not None
            assert event.approved is None
            assert not node.store.groups["db"].enabled
            now = h1.upstream.now()
            for machine, group in (("web_0", "web"), ("web_1", "web"), ("db_0", "db")):
                h1.upstream.record_poll(machine, group, "2020-07-01", 1, (id,), now)
            assert h1.upstream._stream is not None
            for report in h1.upstream._poll_report.reports():
                h1.upstream._stream.send(report)
            assert await h1.upstream.approve("web_0", "web", [id])  # control has read the others
            assert node.poll_index.polls("web_0") is not None
            assert node.poll_index.polls("web_1") is None
            assert node.poll_index.polls("db_0") is None

    play(body)


def test_a_certificate_is_for_one_host(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def hello(host: str, says: str, **other: object) -> ToNode:
        stream = await control.dial(host)
        values = {
            "protocols": NODE_PROTOCOLS,
            "version": "1",
            "host": says,
            "instance": "by hand",
            "serving": False,
            **other,
        }
        stream.send(NodeHello(**values))  # type: ignore[arg-type]
        try:
            return await stream.receive()
        finally:
            stream.cut()

    async def body() -> None:
        async with control() as node:
            answer = await hello("h1", "h2")
            assert isinstance(answer, Unwelcome)
            assert "host 'h1'" in answer.reason
            answer = await hello("h9", "h9")
            assert isinstance(answer, Unwelcome)
            assert "h9" in answer.reason  # which is not in the fleet
            answer = await hello("h1", "h1", protocols=(98, 99))
            assert isinstance(answer, Unwelcome)
            assert "upgrade" in answer.reason
            assert not any(host.node for host in node.store.registry.hosts.values())
            answer = await hello("h1", "h1", protocols=(*NODE_PROTOCOLS, 99))
            assert isinstance(answer, Welcome)
            assert answer.protocol == NODE_PROTOCOLS[-1]
            answer = await hello("h1", "h1", term=7)
            assert isinstance(answer, Unwelcome)
            assert "term 7" in answer.reason

    play(body)


def test_neither_of_two_nodes_of_one_host_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_follower, "MAX_DIAL_PAUSE", 0.1)
    monkeypatch.setattr(twins, "REMEMBERED", 1.5)
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h2.upstream.enable("web")
            performed: list[str] = []

            async def perform(task: Task) -> Done:
                performed.append(task.event)
                return Done()

            monkeypatch.setattr(node.executor.driver, "perform", perform)
            async with host_node(control, "h1", tmp_path / "clone") as clone:
                await until(
                    lambda: h1.upstream.problem == clone.upstream.problem == host_nodes.TWO_NODES
                )
                assert not h1.upstream.connected
                assert not clone.upstream.connected
                assert node.host_index.unreachable.is_unreachable("h1")
                connection = node.host_index.unreachable.connection("h1")
                assert connection is not None
                assert connection.ended == host_nodes.TWO_NODES
                id = await reboot(node, "web_0")
                assert await h2.upstream.approve("web_1", "web", [id])
                assert performed == []
            await until(lambda: performed == [id])
            assert h1.upstream.connected

    play(body)


def test_nothing_starts_for_a_machine_whose_node_is_cut_off_and_everything_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h1.upstream.enable("web")
            await h2.upstream.enable("db")
            mine = await reboot(node, "web_0")
            await shown(h1, "web", (mine, "Scheduled"))
            control.cut = True
            h1.cut()
            await until(lambda: h1.disconnected[-1:] == [True])
            assert h1.events("web") == [(mine, "Scheduled")]  # it goes on showing what it was told
            # An approval by another machine of the group counts, but does not start it.
            assert await h2.upstream.approve("web_1", "web", [mine])
            event = node.store.groups["web"].event(mine)
            assert event is not None
            assert (event.status, event.approved is not None) == (Status.SCHEDULED, True)
            (hold,) = node.platform.holds(event)
            assert hold.kind is HoldKind.REACH
            other = await reboot(node, "db_0")
            assert await h2.upstream.approve("db_0", "db", [other])  # which starts
            monkeypatch.setattr(node_upstream, "HOLD_CALL", 0.1)
            with pytest.raises(NotDurable, match="not be reached"):
                await h1.upstream.approve("web_0", "web", [mine])
            control.cut = False
            await joined(h1)
            await until(lambda: h1.events("web") in ([(mine, "Started")], []))
            assert h1.disconnected[-1] is False

    play(body)


def test_an_approval_is_kept_and_sent_again_on_the_next_connection(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, _):
            await h1.upstream.enable("web")
            id = await reboot(node, "web_0")
            control.cut = True
            h1.cut()
            await until(lambda: not h1.upstream.connected)
            approving = asyncio.ensure_future(  # noqa: TID251
                h1.upstream.approve("web_0", "web", [id])
            )
            await guard.pause(0.1)
            assert not approving.done()
            control.cut = False
            assert await approving
            event = node.store.groups["web"].event(id)
            assert event is None or event.approved is not None

    play(body)


def test_a_node_that_is_started_without_control_shows_its_journal(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, host_node(control, "h2") as h2:
            async with host_node(control, "h1") as h1:
                await joined(h1, h2)
                await h1.upstream.enable("web")
                id = await reboot(node, "web_0")
                await shown(h1, "web", (id, "Scheduled"))
                before = h1.of["web"]
            control.cut = True
            for _ in range(2):  # what is written again has the same meaning
                async with host_node(control, "h1") as h1:
                    assert h1.upstream.now().rules == node.writer.rules
            async with host_node(control, "h1") as h1:
                assert h1.upstream.synchronized.is_set()
                assert h1.of["web"] == before
                assert h1.events("web") == [(id, "Scheduled")]
                assert h1.upstream.disconnected
                control.cut = False
                await joined(h1)
                assert await h1.upstream.approve("web_0", "web", [id])

    play(body)


def test_a_silent_node_is_waited_for_until_its_read_lease_has_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h2.upstream.enable("web")
            await h2.upstream.enable("db")
            silent = asyncio.Event()

            async def confirm_never(*_: object) -> None:
                silent.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(h1.upstream, "_confirm", confirm_never)
            scheduling = asyncio.ensure_future(reboot(node, "web_1"))  # noqa: TID251
            await silent.wait()
            assert (h1.events("web"), h2.events("web")) == ([], [])  # nobody waits meanwhile
            await reboot(node, "db_0")  # of another group, for which nobody waits
            assert not scheduling.done()
            id = await scheduling
            await shown(h2, "web", (id, "Scheduled"))
            assert node.host_index.unreachable.since("h1") is not None

    play(body)


def test_no_machine_is_disturbed_whose_node_was_lost_before_it_was_informed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h2.upstream.enable("web")
            id = await reboot(node, "web_0")
            await shown(h1, "web", (id, "Scheduled"))
            performed: list[bool] = []
            perform = node.executor.driver.perform

            async def note(task: Task) -> Any:
                performed.append(h1.events("web") != [(id, "Scheduled")])
                return await perform(task)

            monkeypatch.setattr(node.executor.driver, "perform", note)
            confirm = h1.upstream._confirm

            async def break_line(*_: object) -> None:
                control.cut = True
                h1.cut()

            monkeypatch.setattr(h1.upstream, "_confirm", break_line)
            assert await h2.upstream.approve("web_1", "web", [id])  # it has started
            await until(lambda: h1.disconnected[-1] is True)
            await guard.pause(0.1)
            assert performed == []
            monkeypatch.setattr(h1.upstream, "_confirm", confirm)
            control.cut = False
            await until(lambda: len(performed) > 0)
            assert performed == [True]

    play(body)


def test_what_a_driver_has_begun_goes_on_while_a_host_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h2.upstream.enable("web")
            id = await reboot(node, "web_0")
            attempts: list[int] = []

            async def perform(task: Task) -> Again | Done:
                if not attempts:
                    control.cut = True
                    h1.cut()
                    await until(lambda: node.host_index.unreachable.is_unreachable("h1"))
                attempts.append(task.attempt)
                return Again(task.now) if len(attempts) < 3 else Done()

            monkeypatch.setattr(node.executor.driver, "perform", perform)
            assert await h2.upstream.approve("web_1", "web", [id])  # it has started
            await until(lambda: node.store.groups["web"].event(id) is None)
            assert attempts == [1, 2, 3]
            assert node.host_index.unreachable.is_unreachable("h1")

    play(body)


def test_an_event_is_over_as_soon_as_its_machine_polls_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nothing that it is shown is new."""
    monkeypatch.setattr(node_upstream, "REPEAT_EVERY", 1_000_000)
    control = Control(tmp_path)
    control.config = replace(control.config, rules=Durations(silence=None, until_heard=True))

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            reported: list[int] = []

            async def poll() -> None:
                """Have web_0 poll, and wait until control knows what it was shown."""
                await until(lambda: h1.events("web") is not None)
                shown, now = h1.of["web"].view, h1.upstream.now()
                ids = [event.id for event in shown.events]
                h1.upstream.record_poll("web_0", "web", "2020-07-01", shown.incarnation, ids, now)
                await until(
                    lambda: (
                        (known := node.poll_index.polls("web_0")) is not None
                        and known.incarnation == shown.incarnation
                    )
                )
                reported.append(shown.incarnation)

            async def perform(_: Task) -> Done:
                await until(lambda: (h1.events("web") or [("", "")])[0][1] == "Started")
                await poll()
                return Done()

            monkeypatch.setattr(node.executor.driver, "perform", perform)
            await h1.upstream.enable("web")
            await poll()
            id = await reboot(node, "web_0")
            assert await h2.upstream.approve("web_1", "web", [id])
            group = node.store.groups
            await until(lambda: (e := group["web"].event(id)) is not None and bool(e.waiting))
            await poll()
            await until(lambda: group["web"].event(id) is None)
            assert reported[-1] == reported[-2]

    play(body)


def test_tenants_may_have_the_same_address_on_different_hosts(tmp_path: Path) -> None:
    control = Control(tmp_path)
    same = FLEET.replace("address: 10.0.0.3, host: h2", "address: 10.0.0.1, host: h2")
    control.config = msgspec.structs.replace(
        control.config, fleet=parse(same, addresses=control.config.address_rules)
    )

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            at = {host.host: _at(host, "10.0.0.1") for host in (h1, h2)}
            assert at == {"h1": ["web_0"], "h2": ["db_0"]}
            assert [m.name for m in node.machine_index.at("10.0.0.1")] == ["web_0", "db_0"]
            assert node.host_index.placement.free_for("web", "web_0") == ("h3",)
            refused = await node.platform.record_move("web_0", "h2", "test")
            assert isinstance(refused, Refused)
            assert re.search("'h2' .*10.0.0.1", refused.message)
            await node.hosts.cordon("h3", "test")
            move = LIVE_MIGRATION
            drained = await node.hosts.maintain("h1", move, "test", evacuate=True)
            assert isinstance(drained, Refused)
            assert "taken there: h2" in drained.message
            assert not isinstance(await node.platform.record_move("web_0", "h3", "test"), Refused)
            await until(lambda: _at(h1, "10.0.0.1") == [])
            assert _at(h2, "10.0.0.1") == ["db_0"]

    play(body)


def _at(node: HostNode, address: str) -> list[str]:
    """Return the machines that a node knows by an address."""
    machines = [machine for news in node.of.values() for machine in news.machines]
    return [machine.name for machine in machines if address in machine.addresses]


def test_a_machine_that_moves_is_known_on_its_new_host_before_it_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with (
            control() as node,
            host_node(control, "h1") as h1,
            host_node(control, "h2") as h2,
            host_node(control, "h3") as h3,
        ):
            await joined(h1, h2, h3)
            await h1.upstream.enable("web")
            assert "web" not in h3.of
            await h3.upstream.find("10.0.0.2")  # of a machine that does not move
            assert "web" not in h3.of
            arrived = asyncio.Event()

            async def perform(_: Task) -> Done:
                await arrived.wait()
                return Done(moved={"web_0": "h3"})

            monkeypatch.setattr(node.executor.driver, "perform", perform)
            event = await start_moving(node, h1)
            control.cut = True
            h3.cut()
            await until(lambda: not h3.upstream.connected)
            finding = asyncio.ensure_future(h3.upstream.find("10.0.0.1"))  # noqa: TID251
            await guard.pause(0)
            assert not finding.done()  # it is asked for when control can be reached
            control.cut = False
            await finding
            assert h3.machines("web") == ["web_0"]
            assert h1.machines("web") == ["web_0"]  # and still here
            noted = _number(node)
            assert h3.upstream._stream is not None
            for id in range(1_000, 1_100):
                h3.upstream._stream.send(WhoIs(id, "10.0.0.1"))
            await h3.upstream.find("10.0.0.1")
            assert _number(node) == noted  # nobody is told once more
            await shown(h3, "web", (event, "Started"))
            await h3.upstream.approve("web_0", "web", [event])  # it may speak from there
            arrived.set()
            await until(lambda: h1.machines("web") == [])
            assert h3.machines("web") == ["web_0"]
            await shown(h3, "web")

    play(body)


def test_a_node_whose_host_has_left_the_fleet_receives_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with (
            control() as node,
            host_node(control, "h1") as h1,
            host_node(control, "h3") as h3,
        ):
            await joined(h1, h3)
            await h1.upstream.enable("web")
            moving = asyncio.Event()
            monkeypatch.setattr(node.executor.driver, "perform", lambda _: moving.wait())
            await start_moving(node, h1)
            applied = await node.fleet_apply.text(FLEET.replace(", h3]", "]"), by="test")
            assert not isinstance(applied, Refused)
            monkeypatch.setattr(node_upstream, "HOLD_UNKNOWN", 0.1)
            with pytest.raises(NotDurable):
                await h3.upstream.find("10.0.0.1")
            assert h3.of == {}
            # Nor does it join again.
            h3.cut()
            await until(lambda: "h3" in h3.upstream.problem)

    play(body)


def test_a_control_that_is_started_again_learns_which_machines_are_about_to_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)
    arrived = asyncio.Event()

    async def perform(self: SimulatedDriver, _: Task) -> Done:
        await arrived.wait()
        return Done(moved={"web_0": "h3"})

    monkeypatch.setattr(SimulatedDriver, "perform", perform)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h3") as h3:
            async with control() as node:
                await joined(h1, h3)
                await h1.upstream.enable("web")
                event = await start_moving(node, h1)
                await h3.upstream.find("10.0.0.1")
                assert h3.machines("web") == ["web_0"]
            known: list[tuple[Machine, ...]] = []

            def note(news: GroupNews) -> None:
                h3.of[news.view.name] = news
                known.append(news.machines)

            h3.upstream.attach(note)
            async with control() as node:
                await joined(h1, h3)
                assert h3.machines("web") == ["web_0"]
                assert all(known), "all the time"
                await h3.upstream.approve("web_0", "web", [event])
                arrived.set()
                await until(lambda: h1.machines("web") == [])
                assert h3.machines("web") == ["web_0"]
                machine = node.store.groups["web"].machine("web_0")
                assert machine is not None
                assert machine.host == "h3"

    play(body)


def test_a_machine_that_moves_to_a_host_that_is_cut_off_is_answered_on_its_old_host(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h1.upstream.enable("web")
            async with host_node(control, "h3") as h3:
                await joined(h3)
            await until(lambda: node.host_index.unreachable.is_unreachable("h3"))
            for machine in ("web_0", "web_1"):
                moved = await node.platform.record_move(machine, "h3", "test")
                assert not isinstance(moved, Refused)
            id = await reboot(node, "web_0")
            await shown(h1, "web", (id, "Scheduled"))
            assert (h1.machines("web"), h2.machines("web")) == (["web_0"], ["web_1"])
            assert await h1.upstream.approve("web_0", "web", [id])
            h1.cut()  # and when it joins again
            await until(lambda: not h1.upstream.connected)
            await joined(h1)
            assert h1.machines("web") == ["web_0"]
            moved = await node.platform.record_move("web_1", "h1", "test")
            assert not isinstance(moved, Refused)
            await until(lambda: h2.machines("web") == [])
            assert h1.machines("web") == ["web_1", "web_0"]
            async with host_node(control, "h3") as h3:
                await joined(h3)
                await until(lambda: h1.machines("web") == ["web_1"])
                assert h3.machines("web") == ["web_0"]

    play(body)


def test_control_that_is_started_again_has_a_machine_answered_on_its_old_host(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            async with control() as node:
                async with host_node(control, "h3") as h3:
                    await joined(h1, h2, h3)
                await until(lambda: node.host_index.unreachable.is_unreachable("h3"))
                # Of which h1 learns only from the control that is started next.
                h1.cut()
                control.cut = True
                for machine in ("web_0", "web_1"):
                    moved = await node.platform.record_move(machine, "h3", "test")
                    assert not isinstance(moved, Refused)
                await until(lambda: not h1.upstream.connected)
            known: list[tuple[Machine, ...]] = []

            def note(news: GroupNews) -> None:
                h1.of[news.view.name] = news
                known.append(news.machines)

            h1.upstream.attach(note)
            control.cut = False
            async with control() as node:
                await joined(h1, h2)
                assert (h1.machines("web"), h2.machines("web")) == (["web_0"], ["web_1"])
                assert all(known), "all the time"
                async with host_node(control, "h3") as h3:
                    await joined(h3)
                    await until(lambda: not h1.machines("web") and not h2.machines("web"))
                    assert h3.machines("web") == ["web_0", "web_1"]
            async with control() as node, host_node(control, "h3") as h3:
                await joined(h1, h2, h3)
                await until(lambda: not h1.machines("web") and not h2.machines("web"))

    play(body)


def test_a_machine_is_answered_on_its_old_host_if_the_new_one_is_cut_off_while_it_moves(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with host_node(control, "h1") as h1:
            async with control() as node, host_node(control, "h3") as h3:
                await joined(h1, h3)
                await h1.upstream.enable("web")
                found: list[asyncio.Task[bool]] = []

                async def answered() -> bool:
                    """Do what the endpoint does about a machine that the node does not know."""
                    await h1.upstream.find("10.0.0.1")
                    return "web_0" in h1.machines("web")

                def note(news: GroupNews) -> None:
                    h1.of[news.view.name] = news
                    if news.view.name == "web" and "web_0" not in h1.machines("web"):
                        found.append(asyncio.ensure_future(answered()))  # noqa: TID251

                h1.upstream.attach(note)

                def cut(*_: object) -> None:
                    """Cut h3 off after the commit, before anybody is told of it."""
                    if not control.cut:
                        control.cut = True
                        assert node.host_nodes is not None
                        node.host_nodes.cut(node.host_nodes._members["h3"], "test")

                node.store.on_own_commit(cut)
                moved = await node.platform.record_move("web_0", "h3", "test")
                assert not isinstance(moved, Refused)
                await until(lambda: h1.machines("web") == ["web_0"])
                assert all(await asyncio.gather(*found)), "never 404"
                id = await reboot(node, "web_0")
                await shown(h1, "web", (id, "Scheduled"))
                await until(lambda: bool(found_machine(node).answered_on))
            control.cut = False
            async with control() as node:
                await joined(h1)
                assert h1.machines("web") == ["web_0"]
                async with host_node(control, "h3") as h3:
                    await joined(h3)
                    await until(lambda: h1.machines("web") == [])
                    assert h3.machines("web") == ["web_0"]
                    await until(lambda: not found_machine(node).answered_on)
                await until(lambda: node.host_index.unreachable.is_unreachable("h3"))
            async with control() as node:  # which takes over while h3 is cut off again
                await joined(h1)
                assert h1.machines("web") == []

    def found_machine(node: Node) -> Machine:
        machine = node.store.groups["web"].machine("web_0")
        assert machine is not None
        return machine

    play(body)


def test_a_machine_that_has_left_does_not_take_the_place_of_one_with_its_address(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, _):
            async with host_node(control, "h3") as h3:
                await joined(h3)
            await until(lambda: node.host_index.unreachable.is_unreachable("h3"))
            moved = await node.platform.record_move("web_0", "h3", "test")
            assert not isinstance(moved, Refused)
            await until(lambda: h1.machines("web") == ["web_0"])
            fleet = (
                FLEET.replace("10.0.0.1, host: h1", "10.0.0.1, host: h3")
                + """
  - name: shop
    kind: standalone
    machines: [{name: shop_0, address: 10.0.0.1, host: h1}]
"""
            )
            applied = await node.fleet_apply.text(fleet, by="test")
            assert not isinstance(applied, Refused)
            await until(lambda: h1.machines("web") == [])
            assert h1.machines("shop") == ["shop_0"]

    play(body)


def test_a_node_cannot_claim_machines_that_do_not_move(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control(), host_node(control, "h1") as h1:
            await joined(h1)
            hello = NodeHello(
                protocols=NODE_PROTOCOLS,
                version="",
                host="h3",
                instance="",
                serving=True,
                arriving={"web_0": "web", "nobody": "web", "web_1": "nowhere"},
            )
            stream = await control.dial("h3")
            stream.send(hello)
            assert isinstance(await stream.receive(), Welcome)
            assert isinstance(await stream.receive(), SnapshotEnd)
            stream.cut()

    play(body)


def _number(node: Node) -> int:
    """Return the number of the last publication."""
    assert isinstance(node.publishing.publisher, publisher.Publisher)
    return node.publishing.publisher.number


def greeting(host: str) -> NodeHello:
    return NodeHello(protocols=NODE_PROTOCOLS, version="", host=host, instance="", serving=False)


async def sent_everything(
    control: Control, host: str, protocol: int = NODE_PROTOCOLS[-1]
) -> MessageStream[ToNode]:
    """Return the line of a node that was sent its groups, and confirms nothing."""
    stream = await control.dial(host)
    stream.send(msgspec.structs.replace(greeting(host), protocols=(protocol,)))
    while not isinstance(await stream.receive(), SnapshotEnd):
        pass
    return stream


def test_a_node_that_is_cut_off_before_it_has_confirmed_anything_has_not_joined(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            first = await sent_everything(control, "h1")
            second = await sent_everything(control, "h1")  # which takes the place of the first
            with pytest.raises(BrokenConnection):
                await first.receive()
            assert node.host_index.unreachable.is_unreachable("h1")
            second.cut()

    play(body)


@pytest.mark.parametrize("removed", [False, True])
def test_a_node_whose_host_is_expected_to_have_none_joins_again_and_is_expected(
    tmp_path: Path, removed: bool
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            line = await sent_everything(control, "h3")
            if removed:
                for text in (FLEET.replace(", h3", ""), FLEET):
                    assert not isinstance(await node.fleet_apply.text(text, by="test"), Refused)
            else:
                assert not isinstance(await node.hosts.without_node("h3", "test"), Refused)
            with pytest.raises(BrokenConnection):  # it would be served, and nobody would miss it
                await line.receive()
            assert not node.store.registry.hosts["h3"].node
            async with host_node(control, "h3") as h3:
                await joined(h3)
                assert node.store.registry.hosts["h3"].node
            await until(lambda: node.host_index.unreachable.is_unreachable("h3"))

    play(body)


def test_a_node_follows_no_control_of_an_earlier_term(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control(), host_node(control, "h1") as h1:
            await joined(h1)
            h1.upstream._term = 9
            with pytest.raises(BrokenConnection, match="term 0"):
                h1.upstream._welcomed(h1.upstream._welcome)

    play(body)


async def _seen_at_start(node: Node, id: str) -> set[str]:
    """Return which machines the history has as shown an event before it started."""
    await node.poll_index.save(node.writer.now())
    query = HistoryQuery(event=id, what=(RecordKind.STARTED,))
    (record,) = await node.store.history(query)
    return {name for name, at in (record.shown or {}).items() if at <= record.at}


def test_polls_that_nodes_report_after_a_start_count_as_warnings_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_upstream, "REPORT_EVERY", 3600.0)
    control = Control(tmp_path)
    one_domain = parse(FLEET.replace("host:", "update_domain: 0, host:"))
    control.config = msgspec.structs.replace(control.config, fleet=one_domain)

    async def body() -> None:
        async with two_nodes(control) as (node, h1, h2):
            await h1.upstream.enable("web")
            done = await node.platform.schedule(
                type=EventType.REBOOT, machines=("web_0", "web_1"), by="test"
            )
            assert not isinstance(done, Refused)
            id = done.event.id
            for h, machine in ((h1, "web_0"), (h2, "web_1")):
                await shown(h, "web", (id, "Scheduled"))
                now = h.upstream.now()
                h.upstream.record_poll(machine, "web", "2020-07-01", 2, (id,), now)
            assert await h1.upstream.approve("web_0", "web", [id])
            assert await _seen_at_start(node, id) == set()
            for h in (h1, h2):
                assert h.upstream._stream is not None
                for report in h.upstream._poll_report.reports():
                    h.upstream._stream.send(report)
            await until(lambda: len(node.poll_index.first_sights(id, ["web_0", "web_1"])) == 2)
            assert await _seen_at_start(node, id) == {"web_0", "web_1"}

    play(body)


def test_no_poll_waits_for_control_that_stops_in_good_order_during_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "HIDE_WITHIN", PATIENCE)
    monkeypatch.setattr(node_upstream, "MAX_HOLD", PATIENCE)
    control = Control(tmp_path)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            async with control() as node:
                await joined(h1, h2)
                await h1.upstream.enable("web")
                await shown(h1, "web")
                await shown(h2, "web")
                waiting = asyncio.Event()
                monkeypatch.setattr(h2.upstream._staged, "hide", lambda _: waiting.wait())
                raising = asyncio.ensure_future(reboot(node, "web_0"))  # noqa: TID251
                await until(lambda: h1.events("web") is None)
            raising.cancel()
            await shown(h1, "web")
            waiting.set()
            async with control() as node:
                for each in (h1, h2):
                    await until(lambda each=each: len(each.events("web") or ()) == 1)  # type: ignore[misc]

    play(body)


def test_control_that_is_started_again_takes_its_nodes_back(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            async with control() as node:
                await joined(h1, h2)
                await h1.upstream.enable("web")
                id = await reboot(node, "web_0")
                await shown(h1, "web", (id, "Scheduled"))
            await until(lambda: not h1.upstream.connected)
            assert h1.events("web") == [(id, "Scheduled")]
            async with control() as node:
                assert node.host_index.unreachable.since("h1") is not None
                await joined(h1, h2)
                await until(lambda: node.host_index.unreachable.since("h1") is None)
                assert await h1.upstream.approve("web_0", "web", [id])

    play(body)


def test_nothing_waits_for_guests_after_a_restart_of_control_that_they_did_not_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control ends in good order, and starts again while the read leases of its nodes hold."""
    monkeypatch.setattr(host_nodes, "READ_LEASE", PATIENCE)
    monkeypatch.setattr(clock, "STALL", PATIENCE * SECOND)
    control = Control(tmp_path)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            control.config = replace(control.config, rules=Durations(start_grace=0))
            async with control():
                await joined(h1, h2)
            control.config = replace(control.config, rules=Durations())
            for interruption in ("", "of the process"):
                async with control() as node:
                    await joined(h1, h2)
                    await until(lambda: not node.unreachable_hosts.hosts)
                    assert node.writer.now().latest_interruption == 0
                    if interruption:
                        node.clock._interrupted(interruption, node.writer.now().at, 0)  # type: ignore[attr-defined]
                        steady_since = node.writer.now().steady_since
            async with control() as node:
                assert steady_since
                assert node.writer.now().steady_since == steady_since

    play(body)


def test_a_node_shows_what_it_shows_until_all_others_have_found_control_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_nodes, "READ_LEASE", PATIENCE)  # and may still show what was before
    control, tasks = Control(tmp_path), guard.Tasks()

    async def body() -> None:
        async with host_node(control, "h1") as h1:
            async with host_node(control, "h2") as h2, control():
                await joined(h1, h2)
                await h1.upstream.enable("web")
                await shown(h2, "web")
            async with control() as node:
                tasks.start(reboot(node, "web_0"), "a change")
                nodes = node.host_nodes
                assert nodes is not None
                await until(lambda: nodes._absent.greeted["h1"] == 1)
                await until(lambda: len(node.store.groups["web"].events) == 1)
                assert h1.events("web") == []
                async with host_node(control, "h2") as h2:
                    await joined(h1, h2)
                    await until(lambda: len(h1.events("web") or ()) == 1)
                    assert not nodes._absent.greeted
                    await tasks.end()

    play(body)


@pytest.mark.parametrize(
    "sent", [b"\xff\xff\xff\xff", b"\0\0\0\x04oops", b"\0\0\0\x01\xc0", b"\0\0"]
)
def test_a_node_that_sends_what_is_no_message_is_disconnected_and_the_others_stay(
    tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_nodes, "BARRED_FOR", 0.0)
    control = Control(tmp_path)

    async def body() -> None:
        async with control(), host_node(control, "h1") as h1:
            await joined(h1)
            reader, writer = await control.open("h2")  # which does not even greet
            writer.write(sent)
            if len(sent) < 4:
                writer.close()
            assert await reader.read() == b""
            writer.close()
            line = await sent_everything(control, "h2")
            line.send_frame(sent)
            if len(sent) < 4:
                line.close()
            with pytest.raises(BrokenConnection):
                await line.receive()
            await h1.upstream.enable("web")
            assert h1.events("web") == []

    play(body)


def test_a_node_that_greets_while_control_stops_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            assert node.host_nodes is not None
            monkeypatch.setattr(node.host_nodes, "_closing", True)
            stream = await control.dial("h1")
            stream.send(greeting("h1"))
            with pytest.raises(BrokenConnection):
                await stream.receive()

    play(body)


@pytest.mark.parametrize("protocol", NODE_PROTOCOLS)
def test_no_machine_is_disturbed_while_a_node_may_show_its_event_as_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.setattr(host_nodes, "READ_LEASE", 600.0)
    monkeypatch.setattr(host_nodes, "RENEW_WITHIN", 600.0)
    monkeypatch.setattr(publisher, "HIDE_WITHIN", 600.0)
    control = Control(tmp_path)
    performed: list[str] = []
    perform = SimulatedDriver.perform

    async def note(self: SimulatedDriver, task: Task) -> Any:
        performed.append(task.event)
        return await perform(self, task)

    monkeypatch.setattr(SimulatedDriver, "perform", note)

    async def body() -> None:
        async with control() as node, host_node(control, "h1") as h1:
            line = await sent_everything(control, "h2", protocol)
            line.send(Held(_number(node), whole=True))
            await joined(h1)

            async def noted() -> msgspec.Struct:
                """Return the last confirmation before a change is shown."""
                while not isinstance(message := await line.receive(), News | Hide):
                    pass
                if isinstance(message, Hide):
                    return Hidden(message.numbers)
                held = Held(message.publications[-1].number)
                if protocol < TWO_ROUNDS:
                    return held
                line.send(held)
                return await noted()

            tasks = guard.Tasks()
            for change in (h1.upstream.enable("web"), reboot(node, "web_0")):
                changing = tasks.start(change, "change")
                line.send(await noted())
                id = await changing
            approving = tasks.start(h1.upstream.approve("web_0", "web", [id]), "approving")
            held = await noted()
            assert node.store.groups["web"].events[0].status is Status.STARTED
            await guard.pause(0.05)
            assert performed == []
            assert not approving.done()
            line.send(held)
            assert await approving
            await until(lambda: performed == [id])
            line.cut()

    play(body)


def test_a_sign_of_life_renews_the_read_lease_but_not_each_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is not renewed without one, however long the test takes.
    monkeypatch.setattr(host_nodes, "READ_LEASE", 1200.0)
    monkeypatch.setattr(host_nodes, "RENEW_EVERY", 1200.0)
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            line = await sent_everything(control, "h2")
            line.send(Held(_number(node), whole=True))
            while not isinstance(await line.receive(), ReadLease):
                pass

            async def answers() -> list[type]:
                """Return what a sign of life is answered with."""
                line.send(Ping(1.0))
                line.send(WhoIs(1, "192.0.2.1"))
                received: list[type] = []
                while Answer not in received:
                    received.append(type(await line.receive()))
                return received

            assert await answers() == [Pong, Answer]
            assert node.host_nodes is not None
            node.host_nodes._members["h2"].leased_until -= 700.0  # it was renewed long ago
            assert await answers() == [Pong, ReadLease, Answer]
            assert await answers() == [Pong, Answer]
            line.cut()

    play(body)


def test_a_node_without_machines_of_a_group_is_sent_nothing_of_it() -> None:
    sent: list[bytes] = []
    nodes: Any = SimpleNamespace(
        machines_on=lambda *_: (), send=lambda _, data: sent.append(data), sent_by=lambda _: 1
    )
    hello = NodeHello(protocols=(1,), version="", host="h1", instance="", serving=True)
    stream: Any = None
    member = host_nodes.NodeMember(nodes, stream, hello, 2, ["web"], host_nodes._Lease())
    group = Group(name="web")
    member.tell(publisher.Announcement({1: [Changed(view(group), ())]}, {"web": group}))
    assert sent == []
    assert not member.serving  # without a read lease, nobody waits for it
    member.serving = True
    member.tell(publisher.Announcement({2: [Changed(view(group), ())]}, {"web": group}))
    noted = News((Publication(2, (updates.removed("web"),)),))
    assert sent == [frame(noted)]  # it may be showing the group, and is waited for
    member.whole = True
    member.tell(publisher.Announcement({3: [Changed(view(group), ())]}, {"web": group}))
    assert sent == [frame(noted)]


def test_no_read_lease_outlasts_the_time_in_which_all_guests_are_shown_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    control: Any = SimpleNamespace(
        _store=SimpleNamespace(leadership=None),
        lost_commits=SimpleNamespace(last=(0, 0)),
        _renewed=float("-inf"),
        _renewal=lambda: host_nodes.HostNodes._renewal(control),
        now=lambda: 0,
        send=lambda *_: None,
        sent_by=lambda _: 1,
    )
    hello = NodeHello(protocols=(1,), version="", host="h1", instance="", serving=True)
    change = publisher.PendingPublication()
    for seconds in (0.0, 0.4, 0.6, 1.0, 1.9, 3.0):  # since the node was told
        stream: Any = None
        member = host_nodes.NodeMember(control, stream, hello, 1, [], host_nodes._Lease())
        change.announced_at = guard.monotonic() - seconds
        change.asked_at = guard.monotonic()  # in the second round, which it is asked for just now
        member.unconfirmed[change] = publisher.Expected.HIDE
        host_nodes.HostNodes._renew(control, member)
        shown_at = seconds + member.leased_until - guard.boottime() + publisher.CHECK_EVERY
        assert shown_at < host_nodes.SHOWN_WITHIN


def test_no_change_is_shown_before_it_is_known_what_nodes_may_be_showing() -> None:
    control: Any = SimpleNamespace(_begun=False, _absent=host_nodes._Absent())
    assert host_nodes.HostNodes.absent(control, ["web"])
    control._begun = True
    assert not host_nodes.HostNodes.absent(control, ["web"])
