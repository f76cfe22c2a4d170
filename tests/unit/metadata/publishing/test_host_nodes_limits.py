"""A host that was taken over: whoever has the certificate of its node sends whatever he likes."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core import EventType, Refused
from forewarn.core.time import MAX_TIME
from forewarn.metadata.publishing import host_nodes
from forewarn.metadata.publishing.messages import MAX_IDS
from forewarn.node import Node
from forewarn.service.indexes.unknown_callers import MAX_PER_HOST
from forewarn.support import guard, message_stream
from helpers.frozen_node import FrozenNode
from helpers.host_nodes import Control, HostNode, host_node, until
from helpers.waiting import LIMIT

ARM = "https://management.azure.com/"
POLLED = ["web_0", "web", "2020-07-01", 1, [], 1, 1, 1]
CALLER = {"address": "192.0.2.1", "first": 1, "last": 1, "requests": 1, "host": ""}


def polled(at: int, value: object) -> dict[str, Any]:
    """A report of a poll with another value."""
    return {"type": "report", "polled": [[*POLLED[:at], value, *POLLED[at + 1 :]]]}


def called(**values: object) -> dict[str, Any]:
    return {"type": "report", "unknown": [CALLER | values]}


def approval(**values: object) -> dict[str, Any]:
    return {"type": "approve", "id": 1, "machine": "web_0", "group": "web", "ids": []} | values


def token(machine: str, group: str, resource: str = ARM, id: int = 1) -> dict[str, Any]:
    asked = {"machine": machine, "group": group, "resource": resource}
    return {"type": "ask-token", "id": id} | asked


def guid() -> str:
    return str(uuid.uuid4()).upper()


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def taken_over(control: Control) -> AsyncIterator[FrozenNode]:
    """A node of h1 that has joined and sends what it is made to send."""
    hostile = FrozenNode("h1", *await control.open("h1"))
    await hostile.greet()
    tasks = guard.Tasks()
    following = tasks.start(hostile.follow(), "hostile node")
    try:
        await until(lambda: hostile.joined or following.done())
        yield hostile
    finally:
        await tasks.end()
        hostile.close()


async def send(node: FrozenNode, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        node.send(**message)
        await node._writer.drain()


async def approved(node: Node, h2: HostNode) -> bool:
    """Have a machine of another host approve an event."""
    done = await node.platform.schedule(type=EventType.REBOOT, machines=("db_0",), by="test")
    assert not isinstance(done, Refused)
    return await h2.upstream.approve("db_0", "db", [done.event.id])


def ended(node: Node) -> str:
    """Return why the line of h1 was ended, as `host show` says."""
    shown = node.hosts.node_of(node.store.registry.hosts["h1"])
    return "" if shown is None else shown.ended


@pytest.mark.parametrize(
    "message",
    [
        polled(0, "m" * 81),
        polled(1, "g" * 81),
        polled(2, "v" * 65),
        polled(3, -1),
        polled(4, ["X" * 28_000]),
        polled(4, ["made up"]),
        polled(4, [f"{uuid.UUID(int=1)}\n"]),
        polled(5, 2**62),
        polled(6, -(2**62)),
        polled(7, 2**40),
        polled(7, -1),
        called(address="1" * 65),
        called(last=2**62),
        called(requests=2**40),
        {"type": "report", "unknown": [CALLER] * 1_025},
        {"type": "report", "alive": ["g" * 81]},
        {"type": "report", "alive": ["web"] * 100_000},
        approval(ids=["x"] * (MAX_IDS + 1)),
        approval(ids=["X" * 1_000_000]),
        approval(machine="m" * 81),
        approval(id=-1),
        {"type": "who-is", "id": 1, "address": "1" * 65},
        token("web_0", "web", "r" * 1_025),
        {"type": "held", "number": -1},
        {"type": "nobody knows", "values": ["x"] * 500_000},
    ],
    ids=lambda message: f"{message['type']}-{str(message)[-24:]}",
)
def test_a_message_beyond_the_bounds_ends_the_connection_and_is_named(
    tmp_path: Path, message: dict[str, Any]
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, host_node(control, "h2") as h2:
            await h2.upstream.enable("db")
            async with taken_over(control) as hostile:
                assert ended(node) == ""
                await send(hostile, message)
                await until(lambda: ended(node) != "")
                assert "message" in ended(node)
            assert node.host_index.unreachable.since("h1") is not None
            assert node.poll_index.polls("web_0") is None
            assert node.poll_index.unknown_callers.all() == []
            assert await approved(node, h2)  # others go on
            again = FrozenNode("h1", *await control.open("h1"))
            with contextlib.closing(again), pytest.raises(EOFError):  # for a while, it gets no line
                await again.greet()

    play(body)


@pytest.mark.parametrize(
    "greeting",
    [{"version": "1" * 50_000}, {"arriving": {f"m{n}": "web" for n in range(257)}}],
    ids=lambda greeting: next(iter(greeting)),
)
def test_a_greeting_beyond_the_bounds_is_not_answered(
    tmp_path: Path, greeting: dict[str, Any]
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            hostile = FrozenNode("h1", *await control.open("h1"))
            with contextlib.closing(hostile), pytest.raises(EOFError):
                await hostile.greet(**greeting)
            assert not node.store.registry.hosts["h1"].node

    play(body)


def test_connections_without_a_greeting_are_limited(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            lines = [await control.open("h1") for _ in range(host_nodes.MAX_GREETINGS + 3)]
            nodes = node.host_nodes
            assert nodes is not None
            await until(lambda: sum(reader.at_eof() for reader, _ in lines) == 3)
            assert nodes._greeting["h1"] == host_nodes.MAX_GREETINGS
            for _, writer in lines:
                writer.transport.abort()
            await until(lambda: not nodes._greeting)

    play(body)


@pytest.mark.parametrize(
    "message",
    [polled(4, []), {"type": "ping", "sent": 1.0}, approval(ids=[guid()]), {"type": "who knows"}],
    ids=lambda message: message["type"],
)
def test_a_node_that_sends_too_much_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: dict[str, Any]
) -> None:
    monkeypatch.setattr(message_stream, "BURST", 0.2)
    monkeypatch.setattr(host_nodes, "SENT_BY_NODE", 32 * 1024)
    monkeypatch.setattr(host_nodes, "SENT_BY_MACHINE", 4 * 1024)
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, host_node(control, "h2") as h2:
            await h2.upstream.enable("db")
            async with taken_over(control) as hostile:
                while not ended(node):
                    for _ in range(100):
                        await send(hostile, message)
                    await guard.pause(0)
            assert "bytes a second" in ended(node)
            assert await approved(node, h2)

    play(body)


def test_a_larger_host_may_send_more(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node:
            nodes = node.host_nodes
            assert nodes is not None
            machine, base = host_nodes.SENT_BY_MACHINE, host_nodes.SENT_BY_NODE
            assert nodes.sent_by("h3") == base
            assert nodes.sent_by("h1") == base + machine
            assert nodes.sent_by("h2") == base + 2 * machine
            done = await node.platform.schedule(
                type=EventType.REBOOT, machines=("web_0",), by="test"
            )
            assert not isinstance(done, Refused)
            assert nodes.sent_by("h1") == base + machine + host_nodes.SENT_BY_EVENT

    play(body)


def test_events_that_do_not_exist_are_not_kept(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, taken_over(control) as hostile:
            hostile.enable(1, "web")
            await until(lambda: 1 in hostile.answers)
            done = await node.platform.schedule(
                type=EventType.REBOOT, machines=("web_0",), by="test"
            )
            assert not isinstance(done, Refused)
            made_up = [guid() for _ in range(1_000)]
            for n in range(2, 12):
                message = polled(4, [*made_up, done.event.id])
                message["polled"][0][3] = n  # another document
                await send(hostile, message)
                hostile.approve(n, "web_0", "web", [guid()])
                await until(lambda n=n: n in hostile.answers)  # type: ignore[misc]
                assert not hostile.answers[n]["yes"]
            assert set(node.poll_index._sights) == {done.event.id}
            await node.poll_index.save(node.writer.now(), all_machines=True)
            assert node.poll_index._unsaved_sights == {}

    play(body)


def test_approvals_of_what_is_no_id_are_refused_without_a_decision(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, taken_over(control) as hostile:
            before = node.store.seq
            hostile.approve(1, "web_0", "web", ["not an id"])
            hostile.send("prepared", id=2, group="web", event="not an id")
            await until(lambda: {1, 2} <= hostile.answers.keys())
            assert not hostile.answers[1]["yes"]
            assert hostile.answers[2].get("prepared") is None
            assert node.store.seq == before

    play(body)


def test_callers_that_a_node_reports_are_in_the_past_and_leave_room_for_others(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, taken_over(control) as hostile:
            callers = node.poll_index.unknown_callers
            callers.record("198.51.100.1", 1)
            reported = [
                CALLER | {"address": f"192.0.2.{n % 256}%{n}", "last": MAX_TIME, "requests": 2**31}
                for n in range(1_024)
            ]
            await send(hostile, {"type": "report", "unknown": reported})
            await until(lambda: len(callers.all()) == 1 + MAX_PER_HOST)
            now = node.writer.now().at
            assert all(0 <= caller.first <= caller.last <= now for caller in callers.all())
            assert "198.51.100.1" in {caller.address for caller in callers.all()}

    play(body)


def test_a_host_gets_tokens_of_its_own_machines_alone(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.config = msgspec.structs.replace(control.config, identities=b"s" * 32)

    async def body() -> None:
        async with control(), taken_over(control) as hostile:
            assert hostile.welcome["tokens"]
            asked = [("web_0", "web"), ("web_1", "web"), ("db_0", "db"), ("web_1", "db")]
            for id, (machine, group) in enumerate(asked):
                await send(hostile, token(machine, group, id=id))
            await until(lambda: len(hostile.answers) == len(asked))
            assert [bool(hostile.answers[id]["token"]) for id in range(4)] == [True] + [False] * 3
            assert [bool(hostile.answers[id]["failed"]) for id in range(4)] == [False] + [True] * 3

    play(body)


def test_a_node_knows_after_a_restart_without_control_that_machines_have_identities(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)
    control.config = msgspec.structs.replace(control.config, identities=b"s" * 32)

    async def body() -> None:
        async with control(), host_node(control, "h1") as h1:
            await h1.upstream.synchronized.wait()
        async with host_node(control, "h1") as h1:
            assert h1.upstream.issues_tokens

    play(body)
