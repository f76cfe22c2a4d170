"""A node that holds back what it was told, and one whose disk is full, or fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from forewarn import __version__
from forewarn.core import Durations, GroupView
from forewarn.core.fleet import GroupKind, Place
from forewarn.metadata.publishing import node_upstream
from forewarn.metadata.publishing.journal import Journal
from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    Approve,
    Changed,
    Held,
    Hidden,
    Hide,
    Joined,
    News,
    Ping,
    Pong,
    Publication,
    ReadLease,
    SnapshotEnd,
    SnapshotPart,
    ToControl,
    ToNode,
    Welcome,
)
from forewarn.metadata.publishing.node_upstream import NodeUpstream
from forewarn.metadata.upstream import GroupNews, NotDurable, OutcomeUnknown
from forewarn.service.engine.clock import FollowedClock
from forewarn.support import guard
from forewarn.support.control_follower import MAX_DIAL_PAUSE, MIN_DIAL_PAUSE, Dial
from forewarn.support.message_stream import BrokenConnection, MessageStream
from helpers.host_nodes import Control, HostNode, host_node, until


class ManualControl:
    """A control that tells one node, of one group, what a test says."""

    def __init__(self) -> None:
        self.received: list[ToControl] = []
        self.stream: MessageStream[ToControl] | None = None
        self._tasks = guard.Tasks()

    async def dial(self) -> MessageStream[ToNode]:
        if self.stream is not None:
            raise OSError("it has had its line")
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        _, self.stream = await loop.create_connection(
            lambda: MessageStream[ToControl](ToControl), sock=ours
        )
        self._tasks.start(self._serve(self.stream), "control")
        _, stream = await loop.create_connection(lambda: MessageStream[ToNode](ToNode), sock=theirs)
        return stream

    async def _serve(self, stream: MessageStream[ToControl]) -> None:
        stream.send(Welcome(protocol=NODE_PROTOCOLS[-1], version=__version__, rules=Durations()))
        stream.send(SnapshotPart((news(1),)))
        stream.send(SnapshotEnd(1))
        with contextlib.suppress(BrokenConnection):
            while True:
                message = await stream.receive()
                self.received.append(message)
                if isinstance(message, Ping):
                    stream.send(Pong(message.sent, guard.boottime()))

    def renew(self) -> None:
        assert self.stream is not None
        self.stream.send(ReadLease(guard.boottime() + 60.0, 0))

    def count(self, kind: type[ToControl]) -> int:
        return sum(isinstance(message, kind) for message in self.received)

    async def let_join(self) -> None:
        await until(lambda: self.count(Held) == 1)
        assert self.stream is not None
        self.stream.send(Joined((), 0))
        self.renew()

    async def announce(self) -> None:
        """Tell of a change, have the group hidden, and never let it be shown."""
        assert self.stream is not None
        self.stream.send(News((Publication(2, (Changed(news(2).view),)),)))
        await until(lambda: self.count(Held) == 2)
        self.stream.send(Hide((2,)))
        await until(lambda: self.count(Hidden) == 1)

    async def end(self) -> None:
        if self.stream is not None:
            self.stream.cut()
        await self._tasks.end()


def news(incarnation: int) -> GroupNews:
    kind = GroupKind.STANDALONE
    view = GroupView(name="web", kind=kind, enabled=True, incarnation=incarnation, events=())
    return GroupNews(view, (), Place())


@contextlib.asynccontextmanager
async def following(
    control: ManualControl, directory: Path, *others: Dial
) -> AsyncIterator[HostNode]:
    journal = Journal(directory, "h1")
    upstream = NodeUpstream([control.dial, *others], "h1", FollowedClock(), journal)
    tasks = guard.Tasks()
    tasks.start(upstream.run(), "line")
    tasks.start(upstream.report(), "reports")
    tasks.start(upstream.watch(), "promise")
    try:
        yield HostNode("h1", upstream)
    finally:
        await tasks.end()
        await control.end()
        journal.close()


class Enough(Exception):
    pass


def fail(directory: Path) -> Path:
    """Have every attempt to replace the journal in a directory fail, until what is returned is
    removed."""
    obstacle = directory / "journal.new"
    obstacle.mkdir(parents=True)
    return obstacle


def test_a_held_change_is_shown_only_after_a_long_disconnection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_upstream, "MAX_HOLD", 0.05)
    monkeypatch.setattr(node_upstream, "REPORT_EVERY", 0.01)
    monkeypatch.setattr(node_upstream, "PULSE_EVERY", 0.0)

    async def body() -> None:
        control = ManualControl()
        async with following(control, tmp_path) as h1:
            await until(lambda: control.count(Ping) > 2)  # from the beginning
            assert not h1.upstream.synchronized.is_set()
            await control.let_join()
            await until(lambda: h1.events("web") == [] if "web" in h1.of else False)
            await control.announce()
            pings = control.count(Ping)
            await until(lambda: control.count(Ping) > pings + 20)  # several times MAX_HOLD
            assert h1.events("web") is None
            await control.end()
            await until(lambda: h1.events("web") == [])
            assert h1.of["web"].view.incarnation == 2

    asyncio.run(body())


def test_a_node_whose_read_lease_has_run_out_asks_nothing_before_it_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_upstream, "REPORT_EVERY", 0.01)
    monkeypatch.setattr(node_upstream, "PULSE_EVERY", 0.0)

    async def body() -> None:
        control = ManualControl()
        async with following(control, tmp_path) as h1:
            await control.let_join()
            await until(lambda: h1.upstream._may_call.is_set())
            assert control.stream is not None
            control.stream.send(ReadLease(guard.boottime(), 0))
            await until(lambda: h1.upstream.disconnected)
            tasks = guard.Tasks()
            id = str(uuid.uuid4()).upper()
            tasks.start(h1.upstream.approve("m", "web", [id]), "approving")
            pings = control.count(Ping)
            await until(lambda: control.count(Ping) > pings)
            assert control.count(Approve) == 0
            control.renew()
            await until(lambda: control.count(Approve) == 1)
            await tasks.end()

    asyncio.run(body())


def test_a_node_leaves_a_control_node_that_is_silent_for_one_that_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_upstream, "QUIET", math.inf)  # it does not give up its line
    monkeypatch.setattr(node_upstream, "SILENT", 0.1)
    silent, other = ManualControl(), ManualControl()
    dialled: list[str] = []

    async def leads_nowhere() -> MessageStream[ToNode]:
        dialled.append("nowhere")
        await asyncio.Event().wait()
        raise AssertionError

    async def follows() -> MessageStream[ToNode]:
        if dialled.count("other") < 3:
            dialled.append("other")
            raise OSError("it does not decide")
        return await other.dial()

    async def body() -> None:
        async with following(silent, tmp_path, leads_nowhere, follows) as h1:
            await silent.let_join()
            await until(lambda: h1.upstream._may_call.is_set())
            before = list(dialled)  # at the beginning, all at once
            await until(lambda: guard.boottime() - (h1.upstream._waiting_since or math.inf) > 0.3)
            assert dialled == before  # while it has a read lease, nobody else is dialled
            assert silent.stream is not None
            silent.stream.send(ReadLease(guard.boottime(), 0))
            await other.let_join()
            await until(lambda: h1.upstream._may_call.is_set())
            assert dialled.count("nowhere") <= 2
        await other.end()

    asyncio.run(body())


def test_control_that_does_not_answer_is_not_waited_for_and_nothing_counts_as_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("CALL_TIMEOUT", "HOLD_CALL", "HOLD_ENABLE"):
        monkeypatch.setattr(node_upstream, limit, 0.1)

    async def body() -> None:
        control = ManualControl()
        async with following(control, tmp_path) as h1:
            await control.let_join()
            await until(lambda: h1.upstream._may_call.is_set())
            with pytest.raises(NotDurable):
                await h1.upstream.approve("m", "web", [str(uuid.uuid4()).upper()])
            with pytest.raises(OutcomeUnknown):  # a first GET gets no answer
                await h1.upstream.enable("other")
            await control.announce()
            with pytest.raises(NotDurable, match="has been pending"):
                await h1.upstream.enable("web")

    asyncio.run(body())


def test_a_node_that_is_disconnected_again_at_once_waits_before_it_reconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        journal = Journal(tmp_path, "h1")
        upstream = NodeUpstream([], "h1", FollowedClock(), journal)
        pauses = []
        for now in (100.0, 100.5, 101.0, 150.0):
            monkeypatch.setattr(guard, "monotonic", lambda now=now: now)
            pauses.append(upstream._pause_afterwards())
        assert pauses == [MIN_DIAL_PAUSE, MAX_DIAL_PAUSE, MAX_DIAL_PAUSE, MIN_DIAL_PAUSE]
        journal.close()

    asyncio.run(body())


def test_a_node_that_cannot_write_its_journal_tries_less_and_less_often_and_leaves_control_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        if len(pauses) == 8:
            raise Enough

    async def dial() -> MessageStream[ToNode]:
        raise AssertionError("control was asked")

    async def body() -> None:
        journal = Journal(tmp_path, "h1")
        upstream = NodeUpstream([dial], "h1", FollowedClock(), journal)
        await upstream.restore()
        with pytest.raises(Enough):
            await upstream.run()
        assert upstream.journal_problem == f"{journal.path}: {os.strerror(errno.EISDIR)}"
        journal.close()

    monkeypatch.setattr(guard, "pause", pause)
    fail(tmp_path)
    with capture_logs() as lines:
        asyncio.run(body())
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert [line["log_level"] for line in lines] == ["error"]
    assert "journal" in lines[0]["event"]


def test_a_node_with_a_full_disk_shows_its_journal_and_joins_when_there_is_room(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control():
            async with host_node(control, "h1") as h1:
                await until(lambda: h1.upstream._may_call.is_set())
                obstacle = fail(tmp_path / "journal-h1")
                h1.cut()
                await until(lambda: bool(h1.upstream.journal_problem))
                assert not h1.upstream._may_call.is_set()
                obstacle.rmdir()
                await until(lambda: h1.upstream._may_call.is_set())
                assert h1.upstream.journal_problem == ""
                before = h1.of["web"]
            obstacle = fail(tmp_path / "journal-h1")
            async with host_node(control, "h1") as h1:  # it is started again
                assert h1.upstream.journal_problem
                assert h1.of["web"] == before
                obstacle.rmdir()
                await until(lambda: h1.upstream._may_call.is_set())

    asyncio.run(body())
