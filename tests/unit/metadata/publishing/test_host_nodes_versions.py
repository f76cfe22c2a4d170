"""Control and nodes of different versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from forewarn.core import EventType, Refused, Time
from forewarn.metadata.publishing import host_nodes
from forewarn.metadata.publishing.messages import NODE_PROTOCOLS
from forewarn.node import Node
from forewarn.support import guard
from helpers.frozen_node import FrozenNode
from helpers.host_nodes import Control, host_node, until
from helpers.waiting import LIMIT


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(host_nodes, "CHECK_EVERY", 0.05)


def test_a_node_of_the_first_version_stays_and_shows_what_others_show(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with asyncio.timeout(LIMIT), control() as node, host_node(control, "h2") as h2:
            older = FrozenNode("h1", *await control.open("h1"))
            await older.greet()
            assert older.welcome["protocol"] == NODE_PROTOCOLS[0] == 1
            tasks = guard.Tasks()
            following = tasks.start(older.follow(), "older node")
            await until(lambda: older.joined and older.promises > 1 and h2.upstream.connected)
            for _ in range(3):
                older.pulse()
                older.send("ping", sent=1.5)
            older.enable(1, "web")
            await until(lambda: older.pongs >= 4 and 1 in older.answers)
            done = await node.platform.schedule(
                type=EventType.REBOOT, machines=("web_0",), by="test"
            )
            assert not isinstance(done, Refused)
            id = done.event.id
            await until(lambda: _events(older) == [(id, "Scheduled")])
            assert h2.events("web") == [(id, "Scheduled")]
            older.report("web_0", "web", [id], done.event.not_before)
            older.approve(2, "web_0", "web", [id])
            await until(lambda: 2 in older.answers)
            assert older.answers[2]["yes"]
            assert node.poll_index.polls("web_0") is not None
            assert "web_0" in node.poll_index.first_sights(id, ["web_0"])
            await until(lambda: _events(older) == [(id, "Started")])
            assert not following.done()
            assert node.host_index.unreachable.since("h1") is None
            await tasks.end()

    asyncio.run(body())


def _events(node: FrozenNode) -> list[tuple[str, str]]:
    return [(event["id"], event["status"]) for event in node.shown["web"]["events"]]


def test_a_sign_of_life_of_an_earlier_version_is_one(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with asyncio.timeout(LIMIT), control() as node:
            older = FrozenNode("h1", *await control.open("h1"))
            await older.greet()
            tasks = guard.Tasks()
            tasks.start(older.follow(), "older node")
            await until(lambda: older.joined)
            before = _heard(node)
            older.pulse()
            await until(lambda: _heard(node) > before)
            await tasks.end()

    asyncio.run(body())


def _heard(node: Node) -> Time:
    line = node.host_index.unreachable.connection("h1")
    assert line is not None
    return line.heard


def test_a_node_ignores_messages_of_later_versions(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with (
            asyncio.timeout(LIMIT),
            control() as node,
            host_node(control, "h1") as h1,
        ):
            await until(lambda: h1.upstream.connected)
            line, nodes = h1.upstream._stream, node.host_nodes
            assert nodes is not None
            nodes._members["h1"].stream.send(_Later(("nobody", "knows")))
            await h1.upstream.enable("web")  # answered after it
            assert h1.upstream._stream is line

    asyncio.run(body())


class _Later(msgspec.Struct, frozen=True, tag="later"):
    """A message that this version does not know."""

    values: tuple[str, ...]
