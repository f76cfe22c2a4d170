"""The line between control and its workers when things go wrong on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn import __version__
from forewarn.core import Durations, GroupView, Status
from forewarn.core.fleet import GroupKind
from forewarn.core.time import DAY, SECOND
from forewarn.drivers.port import Task
from forewarn.metadata.publishing import hub, remote_upstream
from forewarn.metadata.publishing.availability import Availability
from forewarn.metadata.publishing.messages import (
    Answer,
    Approve,
    BrokenConnection,
    Enable,
    Held,
    News,
    Shown,
    Unwelcome,
    Welcome,
)
from forewarn.metadata.publishing.remote_upstream import NotWelcome, RemoteUpstream
from forewarn.metadata.upstream import NotDurable, OutcomeUnknown
from forewarn.node import Config, Node
from forewarn.node.processes.worker_socket import make_dial
from forewarn.service.engine.clock import ClockLimits, FollowedClock, RealClock
from forewarn.service.fleet.read import parse
from forewarn.support import guard
from helpers.worker_hub import FLEET, Control, ManualWorker, reboot, run_within_limit, until, worker

DATABASE = """
  - name: db
    kind: standalone
    machines: [{name: db, address: 127.1.0.3}]
"""


def test_a_change_is_shown_when_every_worker_has_stopped_showing_what_was(tmp_path: Path) -> None:
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control) as face, control() as node:
            slow = await (await ManualWorker.connected(control, 1)).join()
            await face.ready()
            enabling = asyncio.ensure_future(face.upstream.enable("web"))  # noqa: TID251
            news = await slow.until(News)
            await until(lambda: node.store.groups["web"].enabled)  # it is decided
            assert face.events() is None
            assert not enabling.done()
            (publication,) = news.publications
            slow.stream.send(Held(publication.number))
            await enabling
            assert face.events() == 0
            shown = await slow.until(Shown)
            assert shown.numbers == (publication.number,)

    run_within_limit(body)


def test_no_machine_is_disturbed_while_a_worker_may_show_its_event_as_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path, 1)

    async def body() -> None:
        async with control() as node:
            member = await (await ManualWorker.connected(control, 0)).join()
            performed: list[str] = []
            perform = node.executor.driver.perform

            async def note(task: Task) -> Any:
                performed.append(task.event)
                return await perform(task)

            monkeypatch.setattr(node.executor.driver, "perform", note)

            async def confirmed() -> None:
                news = await member.until(News)
                member.stream.send(Held(news.publications[-1].number))

            member.stream.send(Enable(1, "web"))
            await confirmed()
            scheduling = asyncio.ensure_future(reboot(node))  # noqa: TID251
            await confirmed()
            id = await scheduling
            member.stream.send(Approve(2, "web_0", "web", (id,)))
            news = await member.until(News)
            assert node.store.groups["web"].events[0].status is Status.STARTED
            await guard.pause(0.05)
            assert performed == []
            member.stream.send(Held(news.publications[-1].number))
            await until(lambda: performed == [id])
            assert (await member.until(Answer)).yes

    run_within_limit(body)


def test_a_group_is_decided_while_a_worker_has_not_confirmed_another(tmp_path: Path) -> None:
    control = Control(tmp_path, 1)
    control.config = msgspec.structs.replace(control.config, fleet=parse(FLEET + DATABASE))

    async def body() -> None:
        async with control() as node:
            member = await (await ManualWorker.connected(control, 0)).join()
            member.stream.send(Enable(1, "web"))
            web = (await member.until(News)).publications[-1]
            member.stream.send(Enable(2, "db"))
            db = (await member.until(News)).publications[-1]  # while the first is not confirmed
            assert [change.view.name for change in (*web.groups, *db.groups)] == ["web", "db"]
            member.stream.send(Held(db.number))
            assert {(await member.until(Answer)).id for _ in range(2)} == {1, 2}
            assert node.store.groups["db"].enabled

    run_within_limit(body)


def test_how_many_changes_a_worker_has_not_confirmed_is_told(tmp_path: Path) -> None:
    control = Control(tmp_path, 1)

    def lag(node: Node) -> list[float]:
        assert node.hub is not None
        (found,) = (r for r in node.hub.readings() if r.name == "forewarn_worker_lag")
        return [value for _, value in found.samples if isinstance(value, int | float)]

    async def body() -> None:
        async with control() as node:
            assert lag(node) == []
            member = await (await ManualWorker.connected(control, 0, serving=True)).join()
            assert lag(node) == [0]
            member.stream.send(Enable(1, "web"))
            news = await member.until(News)
            assert lag(node) == [1]
            member.stream.send(Held(news.publications[-1].number))
            await member.until(Shown)
            assert lag(node) == [0]

    run_within_limit(body)


def test_a_worker_that_does_not_keep_up_is_cut_and_starts_over(tmp_path: Path) -> None:
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control) as face, control() as node:
            deaf = await (await ManualWorker.connected(control, 1)).join()
            await face.ready()
            await face.upstream.enable("web")
            with pytest.raises(BrokenConnection):
                await deaf.until(Unwelcome)
            assert node.hub is not None
            assert node.hub.serving == 1
            again = await (await ManualWorker.connected(control, 1, serving=True)).join()
            assert node.hub.serving == 2
            again.stream.cut()

    run_within_limit(body)


def test_what_was_under_way_when_control_died_is_not_taken_even_if_it_was_carried_out(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path, 1)

    async def body() -> None:
        async with worker(control) as face:
            async with control() as node:
                await face.ready()
                await face.upstream.enable("web")
                id = await reboot(node)
                await until(lambda: face.events() == 1)  # it has been told
                assert node.hub is not None
                answering = asyncio.Event()

                async def never(*_: object) -> Answer:
                    answering.set()
                    await asyncio.Event().wait()
                    raise AssertionError

                node.hub._calls._answer = never  # type: ignore[assignment, method-assign]
                asked = asyncio.ensure_future(  # noqa: TID251
                    face.upstream.approve("web_1", "web", [id])
                )
                await answering.wait()
                node.hub._members[0].stream.cut()
                with pytest.raises(OutcomeUnknown, match="it is unknown whether"):
                    await asked
            await until(lambda: not face.upstream.connected)
            with pytest.raises(NotDurable, match="control process is not available"):
                await face.upstream.approve("web_1", "web", [id])
            with pytest.raises(NotDurable):
                await face.upstream.enable("web")
            with pytest.raises(NotDurable):
                await face.upstream.prepared("web", id)
            await until(lambda: face.events() == 1)  # polls go on
            async with control():
                await until(lambda: face.upstream.connected)
                assert await face.upstream.approve("web_1", "web", [id])
                assert face.of["web"].view.events[0].status.value == "Started"

    run_within_limit(body)


def test_a_new_control_replaces_all_that_a_worker_knew(tmp_path: Path) -> None:
    control = Control(tmp_path, 1)
    (tmp_path / "other").mkdir()
    other = Control(tmp_path / "other", 1)
    other.path = control.path
    other.config = Config(
        fleet=parse(FLEET.replace("web", "db")),
        state=control.config.state,
        rules=Durations(silence=None),
        workers=1,
        upstream=control.path,
    )

    def forget() -> None:
        for file in tmp_path.glob("state.db*"):
            file.unlink()

    async def body() -> None:
        async with worker(control) as face:
            async with control():
                await face.ready()
                await face.upstream.enable("web")
            forget()
            async with other():
                await until(lambda: "db" in face.of and face.of["web"].machines == ())
                assert [m.name for m in face.of["db"].machines] == ["db_0", "db_1"]
                assert not face.of["web"].view.enabled

    run_within_limit(body)


def test_a_worker_that_says_hello_while_control_stops_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path, 1)

    async def body() -> None:
        async with control() as node:
            assert node.hub is not None
            served, serve = asyncio.Event(), node.hub.serve

            async def note(*line: Any) -> None:
                served.set()
                await serve(*line)

            monkeypatch.setattr(node.hub, "serve", note)
            late = await ManualWorker.dialled(control)
            await served.wait()
        late.greet(control, 0)
        with pytest.raises(BrokenConnection):
            await late.until(Welcome)

    run_within_limit(body)


def test_another_version_is_refused_and_told_why(tmp_path: Path) -> None:
    control = Control(tmp_path, 1)

    async def body() -> None:
        async with control():
            for wrong in ({"version": "9.9"}, {"protocol": 99}):
                said = await (await ManualWorker.connected(control, 0, **wrong)).until(Unwelcome)
                assert f"this is forewarn {__version__}" in said.reason
                assert "restart the whole service" in said.reason
            said = await (await ManualWorker.connected(control, 1)).until(Unwelcome)
            assert "unexpected worker" in said.reason

    run_within_limit(body)


def test_a_worker_that_is_not_welcome_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path, 1)
    monkeypatch.setattr(remote_upstream, "__version__", "0.0.0")

    async def body() -> None:
        async with control():
            upstream = RemoteUpstream(make_dial(control.path), 0, FollowedClock())
            with pytest.raises(NotWelcome, match=r"0\.0\.0"):
                await upstream.run()

    run_within_limit(body)


@pytest.mark.parametrize(
    "said", [b"\xff\xff\xff\xff", b"\0\0\0\x04oops", b"\0\0\0\x01\xc0", b"\0\0"]
)
def test_whoever_talks_nonsense_is_hung_up_on_and_the_others_stay(
    tmp_path: Path, said: bytes
) -> None:
    control = Control(tmp_path, 2)

    async def body() -> None:
        async with worker(control) as face, control():
            await face.ready()
            reader, writer = await make_dial(control.path)()
            writer.write(said)
            if len(said) < 4:
                writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            member = await (await ManualWorker.connected(control, 1)).join()
            member.stream.writer.write(said)
            if len(said) < 4:
                member.stream.writer.write_eof()
            with pytest.raises(BrokenConnection):
                await member.until(Unwelcome)
            await face.upstream.enable("web")
            assert face.events() == 0

    run_within_limit(body)


def test_a_later_worker_of_the_same_number_takes_the_place(tmp_path: Path) -> None:
    control = Control(tmp_path, 1)

    async def body() -> None:
        async with control() as node:
            first = await (await ManualWorker.connected(control, 0)).join()
            second = await (await ManualWorker.connected(control, 0)).join()
            with pytest.raises(BrokenConnection):
                await first.until(Unwelcome)
            assert node.hub is not None
            assert node.hub.serving == 1
            second.stream.cut()

    run_within_limit(body)


def test_time_without_workers_is_not_time_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "STALL", 100_000)
    monkeypatch.setattr(hub, "WATCH_EVERY", 0.02)
    control = Control(tmp_path, 1)
    looks: list[int] = []

    class Counted(Availability):
        def update(self, there: int, now: float, since: float | None = None) -> float:
            looks.append(there)
            return super().update(there, now, since)

    monkeypatch.setattr(hub, "Availability", Counted)

    async def body() -> None:
        async with control() as node:
            await until(lambda: node.writer.now().lost > 0)
            async with worker(control) as face:
                await face.ready()
                await until(lambda: node.hub is not None and node.hub.serving == 1)
                looks.clear()
                await until(lambda: len(looks) > 1)  # what was lost before is accounted for
                lost = node.writer.now().lost
                await until(lambda: len(looks) > 10)
                assert node.writer.now().lost == lost
            await until(lambda: node.writer.now().lost > lost)
            now = node.writer.now()
            assert now.steady_since is not None
            assert now.at - now.steady_since < 10_000_000

    run_within_limit(body)


def test_a_view_without_a_document_is_never_taken_for_one() -> None:
    """What a held group shows must not look like an enabled group without events."""
    view = GroupView(name="g", kind=GroupKind.STANDALONE, enabled=True, incarnation=4, events=())
    from forewarn.metadata.publishing.staged_views import _without_document

    assert not _without_document(view).enabled


def test_workers_go_by_the_time_of_control_and_not_by_a_wall_clock_that_is_wrong(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        control = Control(tmp_path, 1)
        right, ahead, passed = 1_800_000_000 * SECOND, 4 * 365 * DAY, 0
        clock = RealClock(lambda: right + ahead + passed, lambda: passed, ClockLimits())
        async with Node(control.config, clock=clock) as node, worker(control) as seen:
            await seen.ready()
            now = seen.upstream.now
            assert right + ahead <= now().at < right + ahead + DAY  # and not what it really is
            ahead = 0
            node.writer.now()
            assert node.writer.now().untrusted is not None
            assert node.hub is not None
            node.hub.send_time()
            await guard.pause(0)
            assert now().at >= right + 4 * 365 * DAY  # it goes on as if nothing had happened
            await node.clock_acceptance.accept("operator")
            await until(lambda: now().at < right + DAY)

    run_within_limit(body)
