"""A state that is older than what nodes were told: put back, made anew, or restored unnoticed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.core import EventType, Refused, Status
from forewarn.core.deciding.holds import HoldKind
from forewarn.metadata.publishing import host_nodes, node_upstream
from forewarn.node import Node
from forewarn.store.sqlite.state_file import SqliteFile
from helpers.frozen_node import FrozenNode
from helpers.host_nodes import Control, HostNode, host_node, until
from helpers.waiting import LIMIT


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "READ_LEASE", 0.6)
    monkeypatch.setattr(host_nodes, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(host_nodes, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(node_upstream, "MAX_HOLD", 1.5)


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    asyncio.run(limited())


async def joined(*nodes: HostNode) -> None:
    await until(lambda: all(n.upstream.connected and not n.upstream.disconnected for n in nodes))


async def reboot(node: Node, machine: str) -> str:
    done = await node.platform.schedule(type=EventType.REBOOT, machines=(machine,), by="test")
    assert not isinstance(done, Refused)
    return done.event.id


def incarnation(node: HostNode) -> int:
    return node.of["web"].view.incarnation


def warning(node: Node) -> str:
    return node.health.warnings().get("state", "")


@pytest.mark.parametrize("lost", ["put back", "made anew", "made anew, and empty"])
def test_a_state_that_went_back_is_noticed_and_nothing_starts_until_an_operator_decides(
    tmp_path: Path, lost: str
) -> None:
    control = Control(tmp_path)
    state, copied = tmp_path / "state.db", tmp_path / "copy.db"
    settings = control.config

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            async with control() as node:
                await joined(h1, h2)
                await h1.upstream.enable("web")
            shutil.copy(state, copied)
            async with control() as node:
                await joined(h1, h2)
                for _ in range(3):
                    await reboot(node, "web_0")
                await until(lambda: len(h1.events("web") or ()) == 3)
                await until(lambda: len(h2.events("web") or ()) == 3)
            shown = incarnation(h1)
            state.unlink()
            if lost == "put back":
                shutil.copy(copied, state)
            if lost == "made anew, and empty":
                control.config = replace(settings, fleet=None)
            for _ in range(2):  # also after another start
                async with control() as node:
                    await until(lambda node=node: warning(node) != "")  # type: ignore[misc]
                    assert "forewarn restored" in warning(node)
                    assert not h1.upstream.connected
                    assert not h2.upstream.connected
                    assert len(h1.events("web") or ()) == 3  # what it was told
                    if lost == "put back":
                        id = await reboot(node, "web_1")
                        event = node.store.groups["web"].event(id)
                        assert event is not None
                        assert event.status is Status.SCHEDULED
                        assert HoldKind.REACH in {hold.kind for hold in node.platform.holds(event)}
            SqliteFile(state).mark_restored()
            control.config = settings
            async with control() as node:
                await joined(h1, h2)
                assert warning(node) == ""
                await h1.upstream.enable("web")
                await until(lambda: h1.of["web"].view.enabled and h2.of["web"].view.enabled)
                assert incarnation(h1) == incarnation(h2) > shown

    play(body)


@pytest.mark.parametrize("made_again", [0, 3], ids=["at once", "after as many commits"])
def test_a_state_that_lost_commits_that_guests_did_not_notice_went_back(
    tmp_path: Path, made_again: int
) -> None:
    control = Control(tmp_path)
    state, copied = tmp_path / "state.db", tmp_path / "copy.db"

    async def commit(node: Node, times: int) -> None:
        for n in range(times):
            assert not isinstance(await node.hosts.cordon("h3", "test", note=str(n)), Refused)

    async def body() -> None:
        async with host_node(control, "h1") as h1, host_node(control, "h2") as h2:
            async with control() as node:
                await joined(h1, h2)
                await h1.upstream.enable("web")
            shutil.copy(state, copied)
            async with control() as node:
                await joined(h1, h2)
                await commit(node, 3)
                last = node.store.seq
                await until(lambda: h1.upstream.commit == h2.upstream.commit == last)
            shutil.copy(copied, state)
            control.cut = True
            async with control() as node:
                await commit(node, made_again)
                assert (node.store.seq == last) == bool(made_again)
                control.cut = False
                await until(lambda: "forewarn restored" in warning(node))
                assert not h1.upstream.connected
            SqliteFile(state).mark_restored()
            control.cut = True
            async with control():
                pass  # before the nodes can join
            control.cut = False
            async with control() as node:
                await joined(h1, h2)
                assert warning(node) == ""

    play(body)


def test_a_node_that_claims_too_much_is_refused_alone(tmp_path: Path) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control() as node, host_node(control, "h2") as h2:
            await joined(h2)
            liar = FrozenNode("h1", *await control.open("h1"))
            await liar.greet(commit=2**53)
            assert liar.welcome["type"] == "unwelcome"
            assert warning(node) == ""
            assert node.host_index.unreachable.since("h1") is not None
            await h2.upstream.enable("db")
            id = await reboot(node, "db_0")
            assert await h2.upstream.approve("db_0", "db", [id])

    play(body)


def test_a_node_remembers_the_last_commit_across_its_own_restart(tmp_path: Path) -> None:
    control = Control(tmp_path)
    state, copied = tmp_path / "state.db", tmp_path / "copy.db"

    async def body() -> None:
        async with control() as node:
            pass
        shutil.copy(state, copied)
        async with control() as node, host_node(control, "h1") as h1:
            await joined(h1)
            await h1.upstream.enable("web")
            await reboot(node, "web_0")
            await until(lambda: h1.events("web") not in (None, []))
        shutil.copy(copied, state)
        async with control() as node, host_node(control, "h1") as h1:
            await until(lambda: warning(node) != "")
            assert len(h1.events("web") or ()) == 1

    play(body)
