"""Workers and controls that stand still: nobody goes on with what was before, and nobody waits
for ever."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import structlog

from forewarn import __version__
from forewarn.core import Durations, GroupView
from forewarn.core.fleet import GroupKind, Place
from forewarn.metadata.publishing import availability, hub, remote_upstream
from forewarn.metadata.publishing.messages import (
    PROTOCOL,
    BrokenConnection,
    Changed,
    Held,
    Hello,
    Joined,
    MessageStream,
    News,
    Publication,
    Pulse,
    SnapshotEnd,
    SnapshotPart,
    ToControl,
    Unwelcome,
    Welcome,
)
from forewarn.metadata.publishing.remote_upstream import RemoteUpstream
from forewarn.metadata.upstream import GroupNews, NotDurable, OutcomeUnknown
from forewarn.node import Node
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.processes.worker_socket import make_dial
from forewarn.service.engine.clock import STALL, FollowedClock
from forewarn.support import guard
from helpers.worker_hub import (
    Control,
    ManualWorker,
    WorkerView,
    reboot,
    run_within_limit,
    until,
    worker,
)

# As they are in earnest, before a fixture makes them shorter.
AT_MOST = hub.CONFIRM_TIMEOUT + hub.RECONNECT_PATIENCE + availability.KILL_TIMEOUT
MAX_HOLD = remote_upstream.MAX_HOLD

A_WORKER = """
import asyncio, sys
from pathlib import Path
from forewarn.metadata.publishing.remote_upstream import RemoteUpstream
from forewarn.node.processes.worker_socket import make_dial
from forewarn.node.processes.worker_marks import WorkerMark
from forewarn.support import guard
from forewarn.service.engine.clock import FollowedClock

async def main(path, number, service):
    mark = WorkerMark(Path(path), number)
    upstream = RemoteUpstream(make_dial(Path(path), mark), number, FollowedClock(), service)
    tasks = guard.Tasks()
    tasks.start(upstream.report(), "reports")
    tasks.start(upstream.run(), "line")
    await upstream.synchronized.wait()
    print("told", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


PATIENCE = 60.0  # seconds that a worker may take to join


@asynccontextmanager
async def process(control: Control, number: int) -> AsyncIterator[int]:
    """A worker in a process of its own, as they are in earnest."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", A_WORKER, str(control.path), str(number), control.service),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while await started.stdout.readline() != b"told\n":
                assert not started.stdout.at_eof()
        yield started.pid
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def gone(process: int) -> bool:
    return bool(select.select([process], [], [], 0)[0])


def test_control_waits_less_long_than_workers_do_and_notices_silence_before_it_is_an_outage() -> (
    None
):
    assert AT_MOST < remote_upstream.CALL_TIMEOUT < MAX_HOLD
    assert remote_upstream.REPORT_EVERY < hub.NOT_SERVING_AFTER < hub.KILL_AFTER < STALL / 1e6


def test_a_worker_that_stands_still_is_gone_before_the_change_is_shown(tmp_path: Path) -> None:
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control) as face, control() as node, process(control, 1) as pid:
            await face.ready()
            watched = os.pidfd_open(pid)
            os.kill(pid, signal.SIGSTOP)
            shown: list[bool] = []

            def look(news: GroupNews) -> None:
                if news.view.enabled:
                    shown.append(gone(watched))

            face.upstream.attach(look)
            await face.upstream.enable("web")
            assert shown == [True]
            assert node.store.groups["web"].enabled
            os.close(watched)

    run_within_limit(body)


def test_one_that_stood_still_before_control_was_started_anew_is_found_and_gone_as_well(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control) as face:
            async with control():
                await face.ready()
                starting = process(control, 1)
                pid = await starting.__aenter__()
            watched = os.pidfd_open(pid)
            os.kill(pid, signal.SIGSTOP)
            async with control() as node:
                seen: list[bool] = []
                node.store.on_commit(lambda *_: seen.append(gone(watched)))
                await until(lambda: face.upstream.connected)
                assert gone(watched)  # nobody shows anything before
                await face.upstream.enable("web")
                assert seen == [True]
            os.close(watched)
            await starting.__aexit__(None, None, None)

    run_within_limit(body)


def test_a_worker_that_says_nothing_is_not_there_and_then_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "WATCH_EVERY", 0.05)
    monkeypatch.setattr(hub, "NOT_SERVING_AFTER", 2.0)  # it talks once a second
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control), control() as node, process(control, 1) as pid:
            await until(lambda: node.hub is not None and node.hub.serving == 2)
            watched = os.pidfd_open(pid)
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: node.hub is not None and node.hub.serving == 1)
            assert "1 of 2 workers are away" in node._endpoint_problem()
            assert not gone(watched)
            monkeypatch.setattr(hub, "KILL_AFTER", 2.5)
            await until(lambda: gone(watched))
            os.close(watched)

    run_within_limit(body)


def test_one_that_hangs_after_its_hello_does_not_keep_the_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "KILL_AFTER", 3_600.0)
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with control() as node:
            hangs = await ManualWorker.connected(control, 1, serving=True)
            await hangs.until(Welcome)
            async with worker(control) as face:
                await face.ready()
                assert node.hub is not None
                assert node.hub.serving == 1
            with pytest.raises(BrokenConnection):
                await hangs.until(Unwelcome)

    run_within_limit(body)


class Puppet:
    """A control that says what it is told to say, to one worker."""

    def __init__(self, path: Path) -> None:
        self.path, self.service = path, ""
        self.heard: list[ToControl] = []
        self.stream: MessageStream[ToControl] | None = None

    async def __aenter__(self) -> Puppet:
        self._server = await asyncio.start_unix_server(self._met, path=self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        if self.stream is not None:
            self.stream.cut()
        await guard.pause(0)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = self.stream = MessageStream(reader, writer, ToControl)
        try:
            assert isinstance(await line.receive(), Hello)
            line.send(Welcome(protocol=PROTOCOL, version=__version__, rules=Durations()))
            line.send(SnapshotPart((_news(1),)))
            line.send(SnapshotEnd(1))
            while True:
                self.heard.append(await line.receive())
        except BrokenConnection:
            pass

    def says(self, kind: type[ToControl]) -> int:
        return sum(isinstance(message, kind) for message in self.heard)


def _news(incarnation: int) -> GroupNews:
    kind = GroupKind.STANDALONE
    view = GroupView(name="web", kind=kind, enabled=True, incarnation=incarnation, events=())
    return GroupNews(view, (), Place())


@asynccontextmanager
async def led_by(puppet: Puppet) -> AsyncIterator[WorkerView]:
    tasks = guard.Tasks()
    upstream = RemoteUpstream(make_dial(puppet.path), 0, FollowedClock())
    tasks.start(upstream.run(), "line")
    tasks.start(upstream.report(), "reports")
    try:
        yield WorkerView(upstream)
    finally:
        await tasks.end()


def test_a_worker_talks_from_its_first_word_on_and_shows_nothing_unasked_while_control_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_upstream, "MAX_HOLD", 0.1)
    monkeypatch.setattr(remote_upstream, "REPORT_EVERY", 0.02)

    async def body() -> None:
        async with Puppet(tmp_path / "line") as puppet, led_by(puppet) as face:
            await until(lambda: puppet.says(Held) == 1 and puppet.says(Pulse) > 2)
            assert not face.upstream.synchronized.is_set()
            assert puppet.stream is not None
            puppet.stream.send(Joined((), 0))
            await face.ready()
            puppet.stream.send(News((Publication(2, (Changed(_news(2).view),)),)))
            await until(lambda: puppet.says(Held) == 2)
            pulses = puppet.says(Pulse)
            await until(lambda: puppet.says(Pulse) > pulses + 20)  # many times MAX_HOLD
            assert not face.of["web"].view.enabled
            await puppet.__aexit__()
            await until(lambda: face.of["web"].view.incarnation == 2)

    run_within_limit(body)


def test_a_control_that_does_not_answer_is_not_waited_for_and_nothing_counts_as_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_upstream, "CALL_TIMEOUT", 0.1)

    async def body() -> None:
        async with Puppet(tmp_path / "line") as puppet, led_by(puppet) as face:
            await until(lambda: puppet.stream is not None and puppet.says(Held) == 1)
            assert puppet.stream is not None
            puppet.stream.send(Joined((), 0))
            await face.ready()
            with pytest.raises(OutcomeUnknown, match="has not answered"):
                await face.upstream.approve("m", "web", ["id"])
            puppet.stream.send(News((Publication(2, (Changed(_news(2).view),)),)))
            await until(lambda: not face.of["web"].view.enabled)
            with pytest.raises(NotDurable, match="has been pending"):
                await face.upstream.enable("web")

    run_within_limit(body)


def test_a_worker_that_cannot_reach_control_says_so_now_and_then_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_upstream, "MAX_DIAL_PAUSE", 0.05)
    path = tmp_path / "nowhere"

    async def body() -> None:
        monkeypatch.setattr(remote_upstream, "LOG_AFTER", 0.1)
        with structlog.testing.capture_logs() as said:
            async with led_by(Puppet(path)):
                await until(lambda: bool(said))
                await guard.pause(0.3)
        assert [line["event"] for line in said] == [remote_upstream.UNREACHABLE]
        assert str(path) in said[0]["why"]
        assert "No such file" in said[0]["why"]

    run_within_limit(body)


def test_a_second_service_does_not_take_the_firsts_socket_and_its_workers_are_refused(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path, 1)
    (tmp_path / "other").mkdir()
    other = Control(tmp_path / "other", 1)

    async def body() -> None:
        async with control() as node, worker(control) as face:
            await face.ready()
            config = msgspec.structs.replace(other.config, upstream=control.path)
            with pytest.raises(CannotListen, match="another service listens there"):
                await Node(config).__aenter__()
            lost = await ManualWorker.connected(control, 0, service=other.service)
            said = await lost.until(Unwelcome)
            assert "its own upstream" in said.reason
            assert other.service in said.reason
            await reboot(node)
            assert face.upstream.connected

    run_within_limit(body)


def test_a_socket_whose_name_is_taken_away_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.node.processes.worker_socket.WATCH_EVERY", 0.02)
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with control() as node, worker(control) as face:
            await face.ready()
            control.path.unlink()
            await until(control.path.is_socket)
            await (await ManualWorker.connected(control, 1)).join()
            assert node.hub is not None
            assert node.hub.serving == 2  # whoever was there has stayed
        assert not control.path.exists()

    run_within_limit(body)
