"""The feed of a running service: streams, long-polls and commands that follow it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client import follow as following
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.routes import feed as control_feed
from forewarn.control.schema.core import FinishRequest, ScheduleRequest
from forewarn.control.schema.feed import FeedCommit, FeedHello, FeedProgress
from forewarn.core import Machine
from forewarn.core.access import Limit, Role
from forewarn.core.changes import MachinePut
from forewarn.core.time import SECOND
from forewarn.drivers.port import (
    Checked,
    Driver,
    NotYet,
    Observed,
    Ok,
    Performed,
    Running,
    Task,
)
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.service.engine.feed import FEED_PAGE
from forewarn.store.port import Batch, Entry
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked
from helpers.free_ports import free_port
from helpers.paths import ROOT
from helpers.polls import metrics
from helpers.times import START
from helpers.token_api import api_with_token
from helpers.waiting import LIMIT, until

STATE = "state.db"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(SAMPLE, sockets=True, state=tmp_path / STATE) as service:
        yield service


class Stream:
    """One stream, read as somebody who does not use our client would."""

    def __init__(self, url: str, query: str = "", **headers: str) -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=LIMIT
        )
        printed = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", f"/v1/feed{query}", headers=printed)
        self.response = self.connection.getresponse()
        self.messages = following.messages(self.response)

    def next(self) -> following.Message:
        return next(self.messages)

    def changes(self) -> FeedCommit:
        message = self.next()
        assert message.event == "change", message
        found = msgspec.json.decode(message.data, type=FeedCommit)
        assert str(found.seq) == message.id
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def hello(stream: Stream) -> FeedHello:
    message = stream.next()
    assert message.event == "hello"
    return msgspec.json.decode(message.data, type=FeedHello)


def test_a_stream_begins_with_its_position_and_has_each_commit(service: Service) -> None:
    seq = service._session.node.store.seq
    with closing(Stream(service.control_url)) as stream:
        assert stream.response.getheader("Content-Type", "").startswith("text/event-stream")
        assert hello(stream) == FeedHello(after=seq, newest=seq)
        service.get("web_0")
        assert [change.what for change in stream.changes().changes] == ["enabled"]
        event = service.schedule("Reboot", "web_0", description="new kernel")
        reported = stream.changes()
        assert reported.seq == seq + 2
        (change,) = reported.changes
        assert (change.what, change.by, change.group) == ("raised", "test", "web")
        assert (change.event, change.type, change.note) == (event.id, "Reboot", "new kernel")
        assert change.machines == ["web_0"]
        # The event as it is: nobody has to ask for it.
        assert reported.events == ControlClient(service.control_url).events()
        service.approve("web_1", event)
        reported = stream.changes()
        assert [change.what for change in reported.changes] == ["approved", "started"]
        assert [event.status for event in reported.events] == ["Started"]


class Migration(Driver):
    """Says how far it is, and is never done."""

    repeatable = False

    def __init__(self) -> None:
        self.parts = 0

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        self.parts += 1
        return Running(SECOND, f"{self.parts} %")


def test_the_progress_of_an_event_is_in_streams_and_in_the_event_but_in_no_commit() -> None:
    with Service(SAMPLE, sockets=True, driver=Migration()) as service:
        service.get("web_0")
        event = service.schedule("Freeze", "web_0")
        service.approve("web_0", event)
        service._session.settle()
        client, after = ControlClient(service.control_url), service._session.node.store.seq
        with (
            closing(Stream(service.control_url, f"?after={after}")) as stream,
            closing(Stream(service.control_url, f"?after={after}&group=sql")) as sql,
        ):
            assert hello(stream).newest == hello(sql).newest == after
            for part in ("1 %", "2 %", "3 %"):
                message = stream.next()
                assert (message.event, message.id) == ("progress", "")
                assert msgspec.json.decode(message.data, type=FeedProgress) == FeedProgress(
                    event=event.id, group="web", progress=part
                )
                assert client.event(event.id).progress == part
                service.clock.advance("1s")
            assert stream.next().event == "progress"
            client.finish(event.id, FinishRequest(reason="done by hand"))
            assert [change.what for change in stream.changes().changes] == ["finished"]
            assert sql.next().event == ""  # the number alone, and no progress before
        assert client.event(event.id).progress == ""


def test_a_follower_that_resumes_after_its_last_number_misses_nothing(service: Service) -> None:
    service.get("web_0")
    first = service._session.node.store.seq
    events = [service.schedule("Freeze", "web_0", notice=f"{n}h") for n in range(1, 6)]
    for headers, query in (({"Last_Event_ID": str(first)}, ""), ({}, f"?after={first}")):
        with closing(Stream(service.control_url, query, **headers)) as stream:
            assert hello(stream) == FeedHello(after=first, newest=first + 5)
            found = [stream.changes() for _ in events]
            assert [reported.seq for reported in found] == list(range(first + 1, first + 6))
            assert [reported.changes[0].event for reported in found] == [
                event.id for event in events
            ]
    # A browser that comes back asks as it did at first, and says in a header what it had since.
    with closing(Stream(service.control_url, "?after=0", Last_Event_ID=str(first + 4))) as stream:
        assert hello(stream).after == first + 4
        assert stream.changes().seq == first + 5


def test_everything_from_the_beginning_makes_up_the_state(service: Service) -> None:
    """Machines, hosts, groups and events, read off the feed alone."""
    live(service)
    mirror = Mirror()
    with closing(Stream(service.control_url, "?after=0")) as stream:
        hello(stream)
        while mirror.seq < service._session.node.store.seq:
            mirror.reported(stream.changes())
    assert mirror.state() == truth(service)


def test_two_readers_see_the_same(service: Service) -> None:
    with (
        closing(Stream(service.control_url, "?after=0")) as one,
        closing(Stream(service.control_url, "?after=0")) as other,
    ):
        live(service)
        last = service._session.node.store.seq
        seen = [[s.next() for _ in range(last + 1)] for s in (one, other)]
        assert seen[0][1:] == seen[1][1:]
        assert [message.id for message in seen[0][1:]] == [str(n + 1) for n in range(last)]


def test_filters_leave_the_numbers_going_on(service: Service) -> None:
    seq = service._session.node.store.seq
    with (
        closing(Stream(service.control_url, "?group=sql")) as sql,
        closing(Stream(service.control_url, "?what=raised,withdrawn")) as raised,
    ):
        hello(sql)
        hello(raised)
        service.get("web_0")
        # A number alone, which no program is bothered with, but from which it would go on.
        assert sql.next() == following.Message("", str(seq + 1), b"")
        assert raised.next() == following.Message("", str(seq + 1), b"")
        mine = service.schedule("Reboot", "sql-0")
        assert next_commit(sql).changes[0].event == mine.id
        assert next_commit(raised).changes[0].event == mine.id
        other = service.schedule("Reboot", "web_0")
        assert sql.next() == following.Message("", str(seq + 3), b"")
        reported = next_commit(raised)
        assert [event.id for event in reported.events] == [other.id]
        assert (reported.groups, reported.machines) == ([], [])


@pytest.mark.parametrize(
    ("query", "header", "status", "says"),
    [
        ("?after=999", None, 409, "no commit 999"),
        ("", "1e3", 400, "Last-Event-ID: '1e3' "),
        ("", "-1", 400, "Last-Event-ID: '-1' "),
        ("?after=-1", None, 400, "after"),
        ("?what=raise", None, 400, "'raise'; expected "),
        ("?gruop=web", None, 400, "'group'?"),
    ],
)
def test_an_invalid_position_or_filter_is_refused(
    service: Service, query: str, header: str | None, status: int, says: str
) -> None:
    headers = {"Last_Event_ID": header} if header else {}
    with closing(Stream(service.control_url, query, **headers)) as stream:
        assert stream.response.status == status
        assert says in json.loads(stream.response.read())["detail"]


def test_a_follower_behind_deleted_commits_gets_410_with_the_oldest_number(
    service: Service,
) -> None:
    service.get("web_0")
    service.clock.advance("200d")
    service.schedule("Reboot", "web_0")
    service._session.run(service._session.node.history.prune())
    with closing(Stream(service.control_url, "?after=0")) as stream:
        assert stream.response.status == 410
        problem = json.loads(stream.response.read())
    assert problem["status"] == 410
    assert problem["first"] > 1
    with closing(Stream(service.control_url, f"?after={problem['first'] - 1}")) as stream:
        hello(stream)
        assert stream.changes().seq == problem["first"]
    client = ControlClient(service.control_url)
    for commits in (lambda: next(client.follow(0)), lambda: client.changes(after="0")):
        with pytest.raises(ControlError) as refused:
            commits()
        assert f"commit is {problem['first']}" in str(refused.value)


def test_history_deleted_during_a_stream_ends_it_with_a_message(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.service.engine.feed.RECENT", 0)
    with closing(slow(service, "?after=0")) as stream:
        fill(service, 2 * FEED_PAGE)
        until(lambda: service._session.node.feed.lag > FEED_PAGE)
        service.clock.advance("200d")
        service.schedule("Reboot", "sql-0")
        service._session.run(service._session.node.history.prune())
        last = None
        for message in stream.messages:
            last = message
    assert last is not None
    assert last.event == "gone"
    assert json.loads(last.data)["first"] > 40


def slow(service: Service, query: str) -> Stream:
    """One that takes nothing until it is read: its buffer is small."""
    port = int(urlsplit(service.control_url).port or 0)
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(30)
    made.connect(("127.0.0.1", port))
    stream = Stream.__new__(Stream)
    stream.connection = http.client.HTTPConnection("127.0.0.1", port)
    stream.connection.sock = made
    stream.connection.request("GET", f"/v1/feed{query}")
    stream.response = stream.connection.getresponse()
    stream.messages = following.messages(stream.response)
    return stream


def fill(service: Service, times: int) -> None:
    """Commits of a hundred kilobytes each."""
    store = service._session.node.store
    for n in range(times):
        machine = Machine(name="bulk_0", labels={"long": str(n) * 50_000})
        batch = Batch(START, entries=(Entry("bulk", (MachinePut(machine),)),))
        service._session.run(store.transact(lambda _, batch=batch: batch))  # type: ignore[misc]


def test_a_slow_reader_costs_nothing_and_misses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.service.engine.feed.RECENT", 0)
    with closing(slow(service, "?after=0")) as stream:
        fill(service, 3 * FEED_PAGE)
        last = service._session.node.store.seq
        until(lambda: service._session.node.feed.lag > FEED_PAGE)
        assert (
            len(service._session.node.feed._entries) <= FEED_PAGE
        )  # of which nothing else is in memory
        # The others go on meanwhile.
        with closing(Stream(service.control_url, f"?after={last - 1}")) as other:
            hello(other)
            assert other.changes().seq == last
        hello(stream)
        assert [stream.changes().seq for _ in range(last)] == list(range(1, last + 1))


def test_a_commit_however_large_is_one_message_that_all_share(service: Service) -> None:
    """As when a whole fleet is applied."""
    many = 20_000
    items = tuple(MachinePut(Machine(name=f"m{n}", addresses=(f"::{n:x}",))) for n in range(many))
    streams = [Stream(service.control_url) for _ in range(5)]
    try:
        for stream in streams:
            hello(stream)
        batch = Batch(START, entries=(Entry("large", items),))
        service._session.run(service._session.node.store.transact(lambda _: batch))
        for stream in streams:
            reported = stream.changes()
            assert len(reported.changes) == len(reported.machines) == many
            assert {change.what for change in reported.changes} == {"machine-added"}
    finally:
        for stream in streams:
            stream.close()


def test_many_streams_get_each_commit_and_are_forgotten_when_closed(service: Service) -> None:
    streams = [Stream(service.control_url) for _ in range(200)]
    for stream in streams:
        hello(stream)
    assert metrics(service.control_url)["forewarn_feed_streams"] == 200
    event = service.schedule("Reboot", "web_0")
    for stream in streams:
        assert stream.changes().events[0].id == event.id
    until(lambda: metrics(service.control_url)["forewarn_feed_lag"] == 0)
    for stream in streams:
        stream.close()
    until(lambda: service._session.node.feed.followers == 0)


def test_the_number_of_followers_is_limited(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "MAX_STREAMS", 1)
    with closing(Stream(service.control_url)) as stream:
        hello(stream)
        with closing(Stream(service.control_url)) as refused:
            assert refused.response.status == 503
            assert refused.response.getheader("Retry-After") == "10"
            assert "1 followers" in json.loads(refused.response.read())["detail"]


def test_tenants_leave_streams_for_operators(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "MAX_STREAMS_OF_ONE_LIMITED", 1)
    monkeypatch.setattr(control_feed, "MAX_STREAMS_LIMITED", 2)
    operator = api_with_token(service, "ann", Role.ADMIN)
    tenants = [
        api_with_token(service, name, Role.TENANT, groups=("web",)) for name in ("a", "b", "c")
    ]
    with ExitStack() as streams:
        for api in tenants[:2]:
            stream = streams.enter_context(
                closing(Stream(api.url, Authorization=f"Bearer {api.token}"))
            )
            hello(stream)
            assert api.get("/v1/feed").status == 503
        assert tenants[2].get("/v1/feed").status == 503
        hello(
            streams.enter_context(
                closing(Stream(operator.url, Authorization=f"Bearer {operator.token}"))
            )
        )


def test_the_number_of_followers_of_one_token_is_limited(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "MAX_STREAMS_OF_ONE", 1)
    one, other = (api_with_token(service, name, Role.ADMIN) for name in ("one", "other"))
    asked = f"/v1/changes?after={one.get('/v1/changes').json()['next']}"
    with closing(Stream(one.url, Authorization=f"Bearer {one.token}")) as stream:
        hello(stream)
        for path in (asked, "/v1/feed"):
            refused = one.get(path)
            assert refused.status == 503
            assert "already 1 followers with token 'one'" in refused.detail
        assert other.get(asked).status == 200
    until(lambda: one.get(asked).status == 200)


def test_an_idle_stream_gets_keep_alive_messages(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "KEEP_ALIVE", 0.01)
    with closing(Stream(service.control_url)) as stream:
        lines = [stream.response.readline() for _ in range(8)]
        assert b": still here\n" in lines


def test_a_stop_ends_the_streams_in_order(tmp_path: Path) -> None:
    with Service(SAMPLE, sockets=True, state=tmp_path / STATE) as service:
        stream = Stream(service.control_url)
        hello(stream)
    rest = stream.response.read()
    stream.close()
    assert rest == b": the service stops\nretry: 1000\n\n"


def test_a_long_poll_waits_for_a_commit_and_returns_the_next_position(service: Service) -> None:
    client = ControlClient(service.control_url)
    start = client.changes()
    assert start.commits == []
    answers: list[Any] = []
    asked = {"after": str(start.next), "wait": "30"}
    waiting = threading.Thread(target=lambda: answers.append(client.changes(**asked)))
    waiting.start()
    until(lambda: service._session.node.feed.followers == 1)
    event = service.schedule("Reboot", "web_0")
    waiting.join(LIMIT)
    (page,) = answers
    assert [reported.changes[0].event for reported in page.commits] == [event.id]
    assert page.next == start.next + 1
    # A page at a time, and nothing at the end of it.
    found, after = [], 0
    while (page := client.changes(after=str(after), limit="2")).commits:
        assert len(page.commits) <= 2
        found += [reported.seq for reported in page.commits]
        after = page.next
    assert found == list(range(1, service._session.node.store.seq + 1))
    assert client.changes(after=str(after), wait="0").next == after
    with pytest.raises(ControlError, match="no commit 999"):
        client.changes(after="999")
    # What is filtered out is passed over.
    page = client.changes(after="0", group="sql", what="raised")
    assert (page.commits, page.next) == ([], after)


def test_a_stream_of_a_limited_token_has_only_its_groups_until_revoked(service: Service) -> None:
    tokens = service._session.node.tokens
    service._session.run(tokens.create(NewToken(name="root", role=Role.ADMIN), "test"))
    made = service._session.run(
        tokens.create(NewToken(name="dba", role=Role.VIEWER, limit=Limit(groups=("sql",))), "test")
    )
    assert isinstance(made, CreatedToken), made
    bearer = {"Authorization": f"Bearer {made.secret.text}"}
    with closing(Stream(service.control_url)) as nobody:
        assert nobody.response.status == 401
    with closing(Stream(service.control_url, "?after=0", **bearer)) as stream:
        hello(stream)
        assert {change.group for change in stream.changes().changes} == {"sql"}
        service.schedule("Reboot", "web_0")
        mine = service.schedule("Reboot", "sql-0")
        reported = next_commit(stream)
        assert [change.event for change in reported.changes] == [mine.id]
        assert b"web" not in msgspec.json.encode(reported)
        service._session.run(tokens.revoke("dba", "test", force=True))
        service.schedule("Freeze", "sql-1")
        rest = stream.response.read()
    assert b"sql" not in rest


def next_commit(stream: Stream) -> FeedCommit:
    """The next commit that has something for the stream."""
    for message in stream.messages:
        if message.data:
            return msgspec.json.decode(message.data, type=FeedCommit)
    raise AssertionError("it ended")


def typed(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, ["feed", *words, "--url", service.control_url])


def test_the_command_prints_lines_for_people_and_for_programs(service: Service) -> None:
    seq = service._session.node.store.seq
    event = service.schedule("Reboot", "web_0", description="line\nbreak")
    result = typed(service, "--after", str(seq), "--limit", "1")
    assert result.exit_code == 0, result.output
    columns = re.split(r" {2,}", result.stdout.rstrip("\n"))
    assert columns == [
        *(str(seq + 1), "2027-01-15 08:00:00Z", "raised", "Reboot web_0", event.id),
        *("by test", "(line\\nbreak)"),
    ]
    result = typed(service, "--after", str(seq), "--limit", "1", "--json")
    assert json.loads(result.stdout)["events"][0]["id"] == event.id
    assert "commit 999" in typed(service, "--after", "999").stderr


def live(service: Service) -> None:
    """A bit of everything."""
    client = ControlClient(service.control_url)
    service.get("web_0")
    service.get("sql-0")
    event = service.schedule("Reboot", "web_0")
    service.approve("web_1", event)
    service.clock.advance("20m")
    service.cancel(service.schedule("Freeze", "web_1"))
    client.evict_machine("web_2")
    service.clock.advance("5m")
    client.degrade_host("host-b", {})
    service.schedule("Reboot", "sql-0")
    service.disable("web")
    text = Path(FLEET).read_text()
    client.apply(text.replace("jumpbox", "jumper").encode(), force=True)


FLEET = ROOT / "src" / "forewarn" / "node" / "sample-fleet.yaml"


class Mirror:
    """Built from the feed and nothing else."""

    def __init__(self) -> None:
        self.seq = 0
        self.events: dict[str, Any] = {}
        self.machines: dict[str, Any] = {}
        self.hosts: dict[str, str] = {}
        self.enabled: dict[str, bool] = {}

    def reported(self, commit: FeedCommit) -> None:
        assert commit.seq == self.seq + 1
        self.seq = commit.seq
        for event in commit.events:
            self.events[event.id] = event
            if event.status in ("Finished", "Withdrawn"):
                del self.events[event.id]
        for name in commit.machines_removed:
            self.machines.pop(name, None)
        for machine in commit.machines:
            self.machines[machine.name] = (machine.group, machine.host, machine.gone)
        for name in commit.hosts_removed:
            self.hosts.pop(name, None)
        for host in commit.hosts:
            self.hosts[host.name] = host.health
        for group in commit.groups:
            if group.enabled is not None:
                self.enabled[group.name] = group.enabled

    def state(self) -> Any:
        enabled = {name for name, is_so in self.enabled.items() if is_so}
        return self.events, self.machines, self.hosts, enabled


def truth(service: Service) -> Any:
    return asked_of(ControlClient(service.control_url))


def asked_of(client: ControlClient) -> Any:
    """The state as the API tells it."""
    return (
        {event.id: event for event in client.events(limit=1_000)},
        {m.name: (m.group, m.host, m.gone) for m in client.machines()},
        {host.name: host.health for host in client.hosts()},
        {group.name for group in client.groups() if group.enabled},
    )


class Daemon:
    """A process that is killed and started again under the same address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._control = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self._control}"
        self.start()

    def start(self) -> None:
        words = ["--state", str(self._directory / STATE), "--control", self._control]
        self.process = Forked(
            [
                sys.executable,
                "-m",
                "forewarn",
                "dev",
                "--clock",
                "virtual",
                "--metadata",
                "127.0.0.1:0",
                *words,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self._directory)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"ready ")

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(LIMIT)


class Enough(Exception):
    """The follower need not come back."""


def test_a_mirror_equals_the_state_after_kills_under_load(tmp_path: Path) -> None:
    """The follower is the client's own, and has nothing but the feed."""
    daemon, mirror, over = Daemon(tmp_path), Mirror(), threading.Event()
    client = ControlClient(daemon.url)

    def load(machine: str) -> None:
        while not over.is_set():
            try:
                event = client.schedule(ScheduleRequest(type="Reboot", machines=[machine]))
                end = client.cancel if len(mirror.events) > 50 else client.approve
                end(event.id)
            except ControlError:
                over.wait(0.01)

    def away(_why: str) -> None:
        if over.is_set():
            raise Enough

    def follow() -> None:
        with contextlib.suppress(Enough):
            for commit in ControlClient(daemon.url).follow(0, on_interruption=away):
                mirror.reported(commit)  # which asserts that it is the next one

    threads = [threading.Thread(target=load, args=(name,)) for name in ("web_0", "sql-0")]
    threads.append(threading.Thread(target=follow))
    try:
        for thread in threads:
            thread.start()
        for number in (signal.SIGKILL, signal.SIGTERM):
            seen = mirror.seq
            until(lambda seen=seen: mirror.seq > seen + 30)  # type: ignore[misc]
            daemon.end(number)
            daemon.start()
        over.set()
        for thread in threads[:-1]:
            thread.join(LIMIT)
        until(lambda: mirror.seq == client.changes().next)
        assert mirror.events
        assert mirror.state() == asked_of(client)
    finally:
        over.set()
        daemon.end(signal.SIGKILL)
        for thread in threads:
            thread.join(LIMIT)
