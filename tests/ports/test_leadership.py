"""Several processes with one state: who decides, and what the others see.

What every engine promises that several processes can open is checked on each of them; what is about
connections, transactions and the clock of a database, on PostgreSQL."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import logging
import socket
import threading
from itertools import count
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from forewarn.core import Group, Machine
from forewarn.core.changes import MachinePut
from forewarn.core.registry import Registry
from forewarn.node import Config, wiring
from forewarn.node.wiring import control_node
from forewarn.store import Batch, Entry, OutcomeUnknown, Store, StoreFailed, base
from forewarn.store.lease_watch import LeaseWatch
from forewarn.store.port import (
    Deposed,
    MachineSighting,
    Member,
    NotLeading,
    PollSightings,
    States,
    StoreUnusable,
)
from forewarn.store.postgres import (
    database,
    engine,
    follower,
    leader,
    leadership,
    lease,
    mirror,
    nodes,
    session,
)
from forewarn.store.postgres.engine import PostgresStore
from forewarn.store.sql import read, schema
from forewarn.support import guard
from helpers import postgres
from helpers.engines import SHARED, Open, expire, kill, renew, shared_state, shorten
from helpers.leadership import (
    break_next_commit,
    claimed_at,
    commit_in_doubt,
    commit_without_standby,
    execute,
    hosts,
    node,
    numbers,
    opened,
    put,
    run,
    shut,
    take,
    waits,
)
from helpers.waiting import LIMIT
from helpers.waiting import until_async as until

SHORT = 0.5  # seconds of a lease that is to run out


@pytest.fixture
def url() -> str:
    postgres.needed()
    return postgres.shared_server().new_state()


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> Open:
    return shared_state(request.param)


def join(shared: Open, name: str, *, length: float = 30.0) -> Any:
    member = Member(name=name, machine=f"machine-of-{name}", address=f"{name}:8170")
    return shared(member, length)


async def log(store: Store) -> list[int]:
    """The numbers of the commits that this store knows of."""
    return [commit.seq async for commit in store.commits(0)]


def test_a_follower_sees_every_commit_in_order(shared: Open) -> None:
    async def body() -> None:
        first, second = join(shared, "c1"), join(shared, "c2")
        seen: list[int] = []
        second.on_commit(lambda commit, _: seen.append(commit.seq))
        async with opened(first, second):
            await take(first)
            await asyncio.gather(*(put(first, f"h{i}") for i in range(300)))
            await until(lambda: second.seq == 300)
            assert seen == list(range(1, 301))
            assert second.registry.hosts == first.registry.hosts
            await until(lambda: second.leadership.leader() is not None)
            leader = second.leadership.leader()
            assert (leader.name, leader.address, leader.held) == ("c1", "c1:8170", True)

    run(body())


def test_what_is_loaded_is_one_moment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is made while a node reads the state is read by it as a whole afterwards."""

    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        async with opened(first):
            await take(first)
            loop = asyncio.get_running_loop()
            registry = read.registry

            def late(connection: sa.Connection) -> Registry:
                asyncio.run_coroutine_threadsafe(first.transact(define), loop).result(LIMIT)
                return registry(connection)

            def define(_: States) -> Batch:
                machine = MachinePut(Machine(name="web_0"))
                return Batch(1, 0, (Entry("web", (machine,)),), hosts(("h1",)))

            monkeypatch.setattr(read, "registry", late)
            await second.open()
            monkeypatch.setattr(read, "registry", registry)
            try:
                assert (dict(second.groups), second.registry.hosts, second.seq) == ({}, {}, 0)
                second.leadership.follow()
                await until(lambda: second.seq == 1)
                assert dict(second.groups) == dict(first.groups)
            finally:
                await second.close()

    run(body())


def test_a_change_by_a_follower_is_refused_with_the_leaders_name(shared: Open) -> None:
    async def body() -> None:
        first, second = join(shared, "c1"), join(shared, "c2")
        async with opened(first, second):
            await take(first)
            await until(lambda: second.leadership.leader() is not None)
            with pytest.raises(NotLeading, match="control node 'c1' decides"):
                await put(second, "h1")
            assert not second.leadership.held()
            assert await log(first) == []

    run(body())


def test_a_lease_that_is_given_back_is_taken_at_once(shared: Open) -> None:
    """At once: the lease is longer than the patience of this test."""

    async def body() -> None:
        first, second = join(shared, "c1", length=900.0), join(shared, "c2", length=900.0)
        async with opened(second):
            await first.open()
            await take(first)
            await put(first, "h1")
            waiting = asyncio.get_running_loop().create_task(take(second))
            await first.close()
            await waiting
            assert second.seq == 1
            await put(second, "h2")
            assert await log(second) == [1, 2]

    run(body())


def test_a_lease_that_has_run_out_is_taken(shared: Open) -> None:
    async def body() -> None:
        first, second = join(shared, "c1"), join(shared, "c2")
        await first.open()
        await take(first)
        await put(first, "h1")
        await kill(first)
        shorten(first, SHORT)
        async with opened(second):
            await take(second)
            assert second.registry.hosts.keys() == {"h1"}
            await put(second, "h2")
            assert await log(second) == [1, 2]

    run(body())


@pytest.mark.parametrize("step", ["-3.9 s", "-2 h", "+1 h"])
def test_a_step_of_the_databases_clock_does_not_end_a_lease(
    url: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has stepped, or that of another primary is apart: what the row says is moved."""

    async def body() -> None:
        first, second = node(url, "c1", length=900.0), node(url, "c2", length=SHORT)
        async with opened(first, second):
            await take(first)
            execute(url, "UPDATE leader SET until = clock_timestamp() + interval '1 s'")
            execute(url, f"UPDATE leader SET until = until + interval '{step}'")
            waiting = asyncio.get_running_loop().create_task(second.leadership.take())
            await looked(second)
            assert not waiting.done()
            assert first.leadership.held()
            await put(first, "h1")
            waiting.cancel()

    run(body())


@pytest.mark.parametrize("step", ["-1 h", "+1 h"])
def test_a_step_of_the_databases_clock_does_not_prolong_a_lease(url: str, step: str) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        await first.open()
        await take(first)
        await kill(first)
        shorten(first, SHORT)
        execute(url, f"UPDATE leader SET until = until + interval '{step}'")
        async with opened(second):
            await take(second)

    run(body())


def test_the_length_of_a_lease_is_that_of_its_holder(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first, second = node(url, "c1", length=900.0), node(url, "c2", length=SHORT)
        await first.open()
        await take(first)
        await kill(first)
        async with opened(second):
            waiting = asyncio.get_running_loop().create_task(take(second))
            await looked(second)
            boottime = guard.boottime
            monkeypatch.setattr(guard, "boottime", lambda: boottime() + 800.0)
            await looked(second)
            assert not waiting.done()
            monkeypatch.setattr(guard, "boottime", lambda: boottime() + 900.0)
            await waiting

    run(body())


def test_a_lease_counts_from_before_it_is_asked_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the answer comes: others count from when they have seen it."""
    here, boottime = threading.get_ident(), guard.boottime

    async def body() -> None:
        first = node(url, "c1", length=900.0)
        async with opened(first):
            await take(first)
            asked = boottime()
            times = count(asked, 100.0)
            with (
                monkeypatch.context() as patch,
                psycopg.connect(url, autocommit=True) as connection,
            ):
                patch.setattr(
                    guard,
                    "boottime",
                    lambda: next(times) if threading.get_ident() == here else boottime(),
                )
                first._lease.renew(connection)
            assert first._lease.until < asked + 950.0

    run(body())


def test_a_lease_that_is_renewed_after_it_was_looked_at_is_not_taken(url: str) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        async with opened(first, second):
            await take(first)
            with psycopg.connect(url, autocommit=True) as connection:
                seen = lease.look(connection)
                first._lease.renew(connection)
                assert not second._lease.claim(connection, seen)
                assert lease.look(connection).term == 1

    run(body())


def test_a_command_waits_while_it_is_uncertain_whether_a_node_leads(shared: Open) -> None:
    async def body() -> None:
        first, command = join(shared, "c1"), join(shared, "command")
        await first.open()
        await take(first)
        async with opened(command):
            taking = asyncio.get_running_loop().create_task(command.leadership.take_at_once())
            async with asyncio.timeout(LIMIT):
                while not taking.done():
                    renew(first)
                    await guard.pause(0.01)
            with pytest.raises(NotLeading, match="'c1' decides"):
                await taking
        await kill(first)
        shorten(first, SHORT)
        command = join(shared, "command")
        async with opened(command):
            await asyncio.wait_for(command.leadership.take_at_once(), LIMIT)
            assert command.leadership.held()

    run(body())


def stop_boottime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no lease run out, however long this process is kept waiting."""
    now = guard.boottime()
    monkeypatch.setattr(guard, "boottime", lambda: now)


async def looked(store: PostgresStore) -> None:
    """Wait until this node, which follows, has looked at the lease as it is now, and has done
    whatever it does then. It reads the log before each look."""
    for _ in range(3):
        before = store.leadership._follower.read_at
        await until(lambda: store.leadership._follower.read_at > before)  # noqa: B023


def test_a_leader_that_can_open_no_session_to_write_gives_its_lease_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a limit of the role's connections: the one through which it renews is still there."""

    def refused(_url: str, _purpose: str, **_: object) -> None:
        raise psycopg.OperationalError("too many connections for role")

    async def body() -> None:
        stop_boottime(monkeypatch)
        first, second = node(url, "c1", length=SHORT), node(url, "c2", length=900.0)
        ends: list[OutcomeUnknown] = []
        first.on_unknown_outcome(ends.append)
        async with opened(first, second):
            await take(first)
            with monkeypatch.context() as patch:
                patch.setattr(engine, "connect", refused)
                first.connect_leader()
                async with asyncio.timeout(LIMIT):
                    while not ends:
                        with contextlib.suppress(StoreFailed, OutcomeUnknown):
                            await put(first, "h1")
                        await guard.pause(0.05)
            assert isinstance(ends[0], Deposed)
            assert "could write nothing" in str(ends[0])
            assert execute(url, "SELECT until = 'epoch' FROM leader") == [(True,)]
            await take(second)
            await put(second, "h2")

    run(body())


def test_a_leader_keeps_its_lease_if_no_node_can_write(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first = node(url, "c1", length=900.0)
        async with opened(first):
            await take(first)
            holder = first.leadership._holder
            with (
                psycopg.connect(url) as other,
                psycopg.connect(url, autocommit=True) as own,
                capture_logs() as lines,
            ):
                other.execute("LOCK TABLE commits IN ACCESS EXCLUSIVE MODE")
                with monkeypatch.context() as patch:  # while it is locked, and no longer
                    patch.setattr(holder, "_failing_for", lambda: 900.0)
                    for _ in range(2):
                        holder._check_writes(own)
            (line,) = lines
            assert "no control node" in line["event"]
            assert first.leadership.held()
            await put(first, "h1")

    run(body())


def test_a_node_that_cannot_write_claims_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nodes do not take turns at what none of them can do."""
    connect = session.connect

    def refused(url: str, purpose: str, **named: Any) -> psycopg.Connection[Any]:
        if purpose == "reader":
            raise psycopg.OperationalError("too many connections")
        return connect(url, purpose, **named)

    async def body() -> None:
        only = node(url, "c1")
        async with opened(only):
            with monkeypatch.context() as patch, capture_logs() as lines:
                patch.setattr(engine, "connect", refused)
                waiting = asyncio.get_running_loop().create_task(only.leadership.take())
                await until(lambda: "cannot write" in only.leadership.problem())
                await looked(only)
                assert execute(url, "SELECT term FROM leader") == [(0,)]
            assert [line["why"].rpartition(": ")[2] for line in lines] == ["too many connections"]
            await waiting
            assert not only.leadership.problem()

    run(body())


def test_a_process_that_was_killed_takes_its_own_lease_again(shared: Open) -> None:
    async def body() -> None:
        first, again = join(shared, "c1", length=900.0), join(shared, "c1", length=900.0)
        await first.open()
        await take(first)
        await kill(first)
        async with opened(again):
            await take(again)
            assert again.leadership.term == 2

    run(body())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Looks at the lease by nodes that follow, of which there are many."""
    looks: list[object] = []
    left = LeaseWatch.left

    def look(self: LeaseWatch, *row: Any) -> float:
        looks.append(row)
        return left(self, *row)

    monkeypatch.setattr(LeaseWatch, "left", look)
    monkeypatch.setattr(follower, "POLL", 0.01)
    return looks


def test_a_node_with_the_identity_of_one_that_decides_does_not_take_its_lease(
    shared: Open, looks: list[object]
) -> None:
    """A cloned machine: neither the restart of the node, which is quick, nor another node."""

    async def body() -> None:
        first, twin = join(shared, "c1", length=900.0), join(shared, "c1", length=SHORT)
        await first.open()
        await take(first)
        async with opened(twin):
            taking = asyncio.get_running_loop().create_task(twin.leadership.take())
            for _ in range(2):
                await put(first, "h1")
                looks.clear()
                await until(lambda: len(looks) > 2 or taking.done())
                assert (first.leadership.held(), taking.done()) == (True, False)
                renew(first)
            await kill(first)
            shorten(first, SHORT)
            await taking
            assert twin.leadership.term == 2

    run(body())


def test_a_clone_does_not_take_the_lease_while_the_sessions_of_the_leader_are_lost(
    shared: Open, looks: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a fail-over of the database, in which the leader has none for a moment."""

    async def body() -> None:
        first = shared(control_node(Config(name="c1")), 900.0)
        monkeypatch.setattr(wiring, "boot_id", lambda: "another")
        clone: Any = shared(control_node(Config(name="c1")), SHORT)
        await first.open()
        await take(first)
        await kill(first)
        async with opened(clone):
            taking = asyncio.get_running_loop().create_task(clone.leadership.take())
            looks.clear()
            await until(lambda: len(looks) > 2 or taking.done())
            assert not taking.done()
            shorten(first, SHORT)
            await taking
            assert clone.leadership.term == 2

    run(body())


@pytest.mark.parametrize("names", [("c1",), ("c2", "c1")], ids=["decides", "follows"])
def test_the_later_of_two_nodes_with_one_name_is_refused_and_named(
    url: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the other one decides or follows."""
    monkeypatch.setattr(nodes, "EVERY", 0.0)
    monkeypatch.setattr(leader, "RENEWALS", 90_000)  # one every 10 ms
    monkeypatch.setattr(follower, "POLL", 0.01)

    async def body() -> None:
        stores = [node(url, name, length=900.0) for name in names]
        later = node(url, "c1", length=900.0)
        async with opened(*stores):
            await take(stores[0])
            await until(lambda: stores[-1].leadership.reports._started is not None)
            async with opened(later):
                await until(lambda: bool(later.leadership.problem()))
                for store in (*stores, later):
                    await until(lambda s=store: bool(s.leadership.warnings()["name"]))  # type: ignore[misc]
                assert not any(store.leadership.problem() for store in stores)
                listed = await later.leadership.nodes()
                assert sorted(known.name for known in listed) == sorted([*names, "c1"])
                assert [known.name for known in listed if known.leads] == [names[0]]

    run(body())


def test_the_same_name_on_another_machine_waits(shared: Open) -> None:
    async def body() -> None:
        first = join(shared, "c1", length=900.0)
        impostor: Any = shared(Member(name="c1", machine="other", address=""), 900.0)
        async with opened(first, impostor):
            await take(first)
            waiting = asyncio.get_running_loop().create_task(impostor.leadership.take())
            await until(lambda: impostor.leadership.leader() is not None)
            await put(first, "h1")
            await until(lambda: impostor.seq == 1)  # it has looked since
            assert not waiting.done()
            waiting.cancel()

    run(body())


def test_a_deposed_leader_commits_nothing_and_raises_deposed(shared: Open) -> None:
    async def body() -> None:
        first, second = join(shared, "c1"), join(shared, "c2")
        ends: list[OutcomeUnknown] = []
        first.on_unknown_outcome(ends.append)
        async with opened(first, second):
            await take(first)
            await put(first, "h1")
            expire(first)
            await take(second)
            await put(second, "h2")
            with pytest.raises((OutcomeUnknown, StoreFailed)):
                await put(first, "h3")
            await until(lambda: bool(ends))
            assert isinstance(ends[0], Deposed)
            with pytest.raises(StoreFailed):
                await put(first, "h4")
            assert await log(second) == [1, 2]
            assert second.registry.hosts.keys() == {"h1", "h2"}

    run(body())


def test_a_connection_that_is_lost_after_a_claim_does_not_keep_the_node_from_deciding(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first = node(url, "c1", length=900.0)
        claim = lease.Lease.claim
        lost: list[int] = []

        def losing(
            self: lease.Lease, connection: psycopg.Connection[Any], seen: lease.LeaseRow
        ) -> bool:
            claimed = claim(self, connection, seen)
            if not lost:
                lost.append(self.term)
                shut(connection)
            return claimed

        monkeypatch.setattr(lease.Lease, "claim", losing)
        async with opened(first):
            await take(first)
            assert lost == [1]
            await put(first, "h1")
        assert numbers(url) == [1]

    run(body())


def test_a_commit_that_is_announced_while_a_follower_asks_something_else_is_read_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        loop = asyncio.get_running_loop()
        went_back = mirror.went_back
        busy: list[int] = []

        def asking(connection: psycopg.Connection[Any]) -> str:
            if second.seq == 1 and not busy:
                busy.append(1)
                monkeypatch.setattr(follower, "POLL", 3600.0)
                asyncio.run_coroutine_threadsafe(put(first, "h2"), loop).result(LIMIT)
                connection.execute("SELECT 1")  # with its answer comes the announcement
            return went_back(connection)

        async with opened(first, second):
            await take(first)
            await put(first, "h1")
            await until(lambda: second.seq == 1)
            monkeypatch.setattr(mirror, "went_back", asking)
            await until(lambda: bool(busy))
            await until(lambda: second.seq == 2)

    run(body())


def test_a_leader_is_not_notified_of_its_own_commits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would read what is announced to it: it would stay in memory for ever."""
    sessions: list[psycopg.Connection[Any]] = []

    def connect(url: str, purpose: str, **named: Any) -> psycopg.Connection[Any]:
        connection = session.connect(url, purpose, **named)
        if purpose == "lease":
            sessions.append(connection)
        return connection

    async def body() -> None:
        monkeypatch.setattr(leadership, "connect", connect)
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            await put(first, "h1")
            (lease_session,) = sessions
            lease_session.execute("SELECT 1")
            assert list(lease_session.notifies(timeout=0)) == []

    run(body())


def test_a_node_with_thousands_of_connections_follows_and_takes_over(url: str) -> None:
    """The descriptors of its own connections are higher than `select` can take."""
    import resource

    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            with contextlib.ExitStack() as stack:
                files = resource.RLIMIT_NOFILE
                limits = resource.getrlimit(files)
                stack.callback(resource.setrlimit, files, limits)
                resource.setrlimit(files, (2048, limits[1]))
                while stack.enter_context(socket.socket()).fileno() < 1024:
                    pass
                second = node(url, "c2")
                async with opened(second):
                    await put(first, "h1")
                    await until(lambda: second.seq == 1)
                    expire(first)
                    await take(second)

    run(body())


def test_nodes_of_this_version_go_on_with_a_schema_that_the_next_one_has_expanded(
    url: str,
) -> None:
    """So that one node after the other can be upgraded. What has been added has a default."""

    async def body() -> None:
        first, second, third = (node(url, name) for name in ("c1", "c2", "c3"))
        async with opened(first, second):
            await take(first)
            await put(first, "h1")
            for table in schema.metadata.tables.keys() | {"leader", "control_nodes"}:
                execute(url, f"ALTER TABLE {table} ADD COLUMN added text")
            execute(url, "CREATE TABLE operators (name text PRIMARY KEY)")
            next_schema = int(schema.SCHEMA_VERSION) + 1
            execute(url, "UPDATE alembic_version SET version_num = %s", f"{next_schema:04}")
            with pytest.raises(StoreUnusable, match="newer version"):
                await third.open()
            execute(
                *(url, "INSERT INTO service (key, value) VALUES (%s, %s)"),
                *(database.OLDEST_SCHEMA, next_schema - 1),
            )
            third = node(url, "c3")
            async with opened(third):
                machines = (MachinePut(Machine(name="web_0")),)
                await first.transact(lambda _: Batch(2, 0, (Entry("web", machines),)))
                await until(lambda: third.seq == second.seq == 2)
                expire(first)
                await take(third)
                await put(third, "h3")
                await until(lambda: second.seq == 3)
                assert second.registry.hosts.keys() == {"h1", "h3"}
                assert [n.name for n in await third.leadership.nodes()] == ["c1", "c2", "c3"]

    run(body())


def test_what_cannot_be_followed_ends_the_node(url: str) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        ends: list[OutcomeUnknown] = []
        second.on_unknown_outcome(ends.append)
        async with opened(first):
            await take(first)
            async with opened(second):
                execute(url, "INSERT INTO commits (seq, at, body) VALUES (1, 1, 'of later')")
                await until(lambda: bool(ends))
                assert "cannot follow" in str(ends[0])

    run(body())


def test_a_claim_at_any_statement_of_a_commit_sees_all_of_it_or_nothing() -> None:
    """Whoever claims sees the whole commit in the log, or nothing of it, for ever."""
    postgres.needed()
    statements = 0
    while run(claimed_at(statements)):
        statements += 1
    assert statements > 7  # with its COMMIT


OK, FAILED, NOT_CARRIED_OUT = (
    psycopg.pq.ExecStatus.COMMAND_OK,
    psycopg.pq.ExecStatus.FATAL_ERROR,
    psycopg.pq.ExecStatus.PIPELINE_ABORTED,
)


def sent_together(connection: psycopg.Connection[Any], *statements: str) -> list[int]:
    """Send statements in a pipeline, all of them before the first answer is read, and return how
    each has ended."""
    session = connection.pgconn
    session.nonblocking = 0
    session.enter_pipeline_mode()
    for statement in statements:
        session.send_query_params(statement.encode(), None)
    session.pipeline_sync()
    ends: list[int] = []
    while (result := session.get_result()) is None or result.status != END_OF_PIPELINE:
        if result is not None:  # which is between two answers
            ends.append(result.status)
    session.exit_pipeline_mode()
    session.nonblocking = 1
    return ends


END_OF_PIPELINE = psycopg.pq.ExecStatus.PIPELINE_SYNC


def test_what_is_sent_after_a_fence_that_fails_is_not_carried_out_and_locks_nothing(
    url: str,
) -> None:
    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            with psycopg.connect(url) as late:
                assert sent_together(
                    late,
                    "BEGIN",
                    lease.FENCE.replace("%s", str(first._lease.term - 1)),
                    "INSERT INTO commits (seq, at, body) VALUES (1, 1, 'late')",
                ) == [OK, FAILED, NOT_CARRIED_OUT]
                await put(first, "h1")
                late.commit()  # which the server turns into a rollback
            assert numbers(url) == [1]
            assert execute(url, "SELECT body FROM commits WHERE body = 'late'") == []

    run(body())


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_in_doubt_is_resolved(
    url: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(commit_in_doubt(url, happened, monkeypatch))


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_commit_that_is_on_one_disk_only_is_in_doubt(
    url: str, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(commit_without_standby(url, comes_back, monkeypatch))


def test_a_commit_that_did_not_wait_for_its_standby_is_in_doubt(url: str) -> None:
    """If its wait was cancelled, the server reports success, with a warning, as this trigger
    does. The claim of another term waits for the standby, and so for the commit as well."""

    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            execute(
                url,
                "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE WARNING 'canceling wait'; RETURN NULL; END $$",
            )
            execute(
                url,
                "CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON commits DEFERRABLE INITIALLY"
                " DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()",
            )
            await put(first, "h1")
            assert first._lease.term == 2
            execute(url, "DROP TRIGGER warn ON commits")
            await put(first, "h2")
            assert first._lease.term == 2
        assert numbers(url) == [1, 2]

    run(body())


@pytest.mark.parametrize("error", [psycopg.OperationalError, OSError])
def test_a_leader_that_cannot_resolve_a_doubt_ends_although_it_renews_its_lease(
    url: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it could open no new connections: the one through which it renews is still there."""

    async def body() -> None:
        stop_boottime(monkeypatch)
        first = node(url, "c1", length=SHORT)
        connect = session.connect

        def refused(url: str, purpose: str, **named: Any) -> psycopg.Connection[Any]:
            if purpose == "claim":
                raise error
            return connect(url, purpose, **named)

        async with opened(first):
            await take(first)
            monkeypatch.setattr(lease, "connect", refused)
            break_next_commit(monkeypatch, after=True)
            with pytest.raises(Deposed, match="unknown whether"):
                await asyncio.wait_for(put(first, "h1"), LIMIT)
        assert numbers(url) == [1]

    run(body())


def test_a_commit_that_is_interrupted_is_given_up_and_not_cancelled(url: str) -> None:
    """By Ctrl-C in a command that writes into the database."""
    sent: list[int] = []

    def write(connection: psycopg.Connection[Any]) -> None:
        while True:
            sent.append(len(sent))
            connection.execute("INSERT INTO numbers VALUES (%s)", sent[-1:])
            connection.commit()

    def interrupt() -> None:
        while not waits(url, "forewarn start"):
            pass
        _thread.interrupt_main()

    execute(url, "CREATE TABLE numbers (number int)")
    with session.connect(url, "start", autocommit=False) as connection:
        watching = threading.Thread(target=interrupt)
        with postgres.shared_server().without_standby():
            watching.start()
            with pytest.raises((psycopg.OperationalError, KeyboardInterrupt)):
                write(connection)
            watching.join()
            numbers = execute(url, "SELECT number FROM numbers ORDER BY number")
            assert [number for (number,) in numbers] == sent[:-1]


def test_a_batch_in_doubt_is_not_written_after_another_node_has_taken_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        async with opened(first, second):
            await take(first)
            again = lease.Lease.claim_again

            def late(self: lease.Lease) -> None:
                execute(url, "UPDATE leader SET until = 'epoch'")
                with psycopg.connect(url, autocommit=True) as connection:
                    assert second._lease.claim(connection, lease.look(connection))
                again(self)

            monkeypatch.setattr(lease.Lease, "claim_again", late)
            break_next_commit(monkeypatch, after=False)
            with pytest.raises(Deposed):
                await put(first, "h1")
        assert numbers(url) == []

    run(body())


def test_the_default_isolation_of_a_role_does_not_matter(url: str) -> None:
    with session.connect(f"{url}%20-cdefault_transaction_isolation%3Dserializable", "x") as found:
        assert found.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


def test_a_leader_that_stands_still_in_a_transaction_is_no_obstacle(url: str) -> None:
    schema = "größe"  # which is not ASCII
    execute(url, f"CREATE SCHEMA {schema}")
    url = postgres.shared_server().url(quote(schema))

    async def body() -> None:
        second = node(url, "c2")
        async with opened(second):
            with session.connect(url, "writer", term=1) as still:
                still.execute("BEGIN")
                still.execute("SELECT 1 FROM leader FOR KEY SHARE")
                await take(second)
                await put(second, "h1")
                with pytest.raises(psycopg.OperationalError):
                    still.execute("SELECT 1")

    run(body())


def test_a_claim_ends_all_sessions_of_earlier_terms_and_no_others(url: str) -> None:
    """As of a leader that was cut off: the server notices that only after some time."""

    async def body() -> None:
        first, second, third = (node(url, name) for name in ("c1", "c2", "c3"))
        async with opened(first, second, third):
            await take(first)
            await put(first, "h1")
            assert await log(first) == [1]  # through a session of its own
            leaders, others = sessions(url, term=1), sessions(url, term=None)
            assert sorted(leaders.values()) == ["lease", "reader", "writer"]
            shorten(first, SHORT)
            await take(second)
            await until(lambda: not leaders.keys() & sessions(url, term=1).keys())
            kept = sessions(url, term=None).keys() | sessions(url, term=2).keys()
            assert [others[pid] for pid in others.keys() - kept] == ["reader"]  # writes from now on

    run(body())


def sessions(url: str, *, term: int | None) -> dict[int, str]:
    """Return the sessions of leaders of this term, or of nodes that follow: their processes at the
    server, and what they are for."""
    rows = execute(url, "SELECT pid, application_name FROM pg_stat_activity")
    words = {pid: name.split() for pid, name in rows if name.startswith("forewarn ")}
    wanted = [] if term is None else [str(term)]
    return {pid: name[1] for pid, name in words.items() if name[2:3] == wanted}


def test_a_write_that_hangs_is_given_up_and_the_next_one_succeeds(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            monkeypatch.setattr(engine, "WRITE_LIMIT", 0.3)
            with psycopg.connect(url) as other:
                other.execute("LOCK TABLE commits IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(StoreFailed):
                    await put(first, "h1")
            monkeypatch.setattr(engine, "WRITE_LIMIT", LIMIT)
            await put(first, "h2")
            assert first.registry.hosts.keys() == {"h2"}
        assert numbers(url) == [1]

    run(body())


def test_a_large_commit_and_many_sightings_have_more_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first = node(url, "c1")
        limits: list[float] = []
        limit = session.Watchdog.limit

        def recorded(self: session.Watchdog, *arguments: Any) -> Any:
            if threading.current_thread().name.startswith("store"):
                limits.append(arguments[1])
            return limit(self, *arguments)

        machines = tuple(MachinePut(Machine(name=f"web_{i}")) for i in range(100))
        async with opened(first):
            await take(first)
            monkeypatch.setattr(session.Watchdog, "limit", recorded)
            await first.transact(lambda _: Batch(1, 0, (Entry("web", machines),)))
            sighting = MachineSighting(polled=1, version="", polls=1)
            polled = {f"web_{i}": sighting for i in range(100)}
            await first.save(PollSightings(seen={}, machines=polled, served_until=1))
        assert limits == [engine.WRITE_LIMIT + 100 * base.CHANGE_LIMIT] * 2

    run(body())


def test_a_connection_that_is_lost_writes_nothing_past_the_log(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries log errors of their own, which Python writes to standard error as they are
    unless somebody takes them."""
    raw: list[str] = []

    class LastResort(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raw.append(record.getMessage())

    write_batch = engine.PostgresStore._write_batch

    def lost(self: engine.PostgresStore, statements: Any, *batch: Any) -> None:
        write_batch(self, statements, *batch)
        shut(statements._driver)

    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            monkeypatch.setattr(engine.PostgresStore, "_write_batch", lost)
            with pytest.raises(StoreFailed):
                await put(first, "h1")

    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging, "lastResort", LastResort())
    run(body())
    assert raw == []


def test_a_first_start_without_its_standby_logs_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres.needed()
    server = postgres.shared_server()
    urls = [server.new_state() for _ in range(30)]

    async def waiting_start() -> tuple[PostgresStore, asyncio.Task[None]]:
        """A start that waits for another session first, and then for a standby."""
        while True:
            first = node(urls.pop(), "c1")
            lines.clear()
            with psycopg.connect(first.url) as other:
                other.execute("SELECT pg_advisory_xact_lock(%s)", (database._LOCK,))
                opening = asyncio.get_running_loop().create_task(first.open())
                await until(lambda: bool(lines))
            while not opening.done() and not waits(first.url, "forewarn start"):
                await guard.pause(0.01)
            if not opening.done():
                return first, opening
            await first.close()  # the server has not read its setting yet

    async def body() -> None:
        with server.without_standby():
            first, opening = await waiting_start()
            await until(lambda: len(lines) > 1)
        await opening
        await first.close()
        assert [line["why"] for line in lines[:2]] == [database._SLOW, database._NO_STANDBY]

    monkeypatch.setattr(database, "REPORT_AFTER", 0.1)
    with capture_logs() as lines:
        run(body())


def test_a_node_whose_clock_differs_from_the_databases_does_not_lead(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        async with opened(first):
            now = guard.wall_us
            monkeypatch.setattr(guard, "wall_us", lambda: now() + 3_000_000)
            waiting = asyncio.get_running_loop().create_task(first.leadership.take())
            await until(lambda: "3.0 s ahead" in first.leadership.problem())
            assert not waiting.done()
            assert execute(url, "SELECT term FROM leader") == [(0,)]  # nothing was even claimed
            monkeypatch.setattr(guard, "wall_us", now)
            await waiting
            await put(first, "h1")
        async with opened(second):
            await take(second)  # what could not lead has kept nothing

    run(body())


def test_a_follower_reports_that_its_clock_differs_from_the_databases(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(nodes, "EVERY", 0.01)
        only = node(url, "c1")
        async with opened(only):
            now = guard.wall_us
            monkeypatch.setattr(guard, "wall_us", lambda: now() - 3_000_000)
            await until(lambda: "3.0 s behind the database's" in only.leadership.problem())
            monkeypatch.setattr(guard, "wall_us", now)
            await until(lambda: not only.leadership.problem())

    run(body())


def test_a_leader_whose_clock_steps_gives_its_lease_back_and_ends(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        first, second = node(url, "c1", length=1.0), node(url, "c2", length=900.0)
        ends: list[OutcomeUnknown] = []
        first.on_unknown_outcome(ends.append)
        async with opened(first):
            await take(first)
            now = guard.wall_us
            monkeypatch.setattr(guard, "wall_us", lambda: now() - 3_600_000_000)
            await until(lambda: bool(ends))
            monkeypatch.setattr(guard, "wall_us", now)
            assert "behind the database's" in str(ends[0])
            async with opened(second):
                await take(second)

    run(body())


async def put_at(store: Store, at: int) -> None:
    await store.transact(lambda _: Batch(at, 0, puts=hosts((f"h{at}",))))


def test_a_time_that_is_ahead_of_the_databases_clock_is_not_stored(url: str) -> None:
    """A step of the clock may be noticed by a commit before the next renewal."""

    async def body() -> None:
        first, second = node(url, "c1", length=900.0), node(url, "c2", length=900.0)
        ends: list[OutcomeUnknown] = []
        first.on_unknown_outcome(ends.append)
        async with opened(first):
            await take(first)
            await put_at(first, guard.wall_us())
            with pytest.raises(OutcomeUnknown):
                await put_at(first, guard.wall_us() + 200_000_000)
            assert "ahead of the database's" in str(ends[0])
            assert numbers(url) == [1]
            async with opened(second):
                await take(second)  # the lease was given back
                sightings = PollSightings(seen={}, served_until=guard.wall_us() + 200_000_000)
                with pytest.raises(OutcomeUnknown):
                    await second.save(sightings)
                assert (await second.sightings()).served_until is None

    run(body())


def test_a_node_can_write_although_a_time_is_stored_that_is_ahead(url: str) -> None:
    """As long as it stores no later one: another clock was wrong, and this one is not."""

    async def body() -> None:
        first = node(url, "c1")
        async with opened(first):
            await take(first)
            await put_at(first, guard.wall_us())
            ahead = guard.wall_us() + 3_600_000_000
            execute(url, "UPDATE commits SET at = %s", ahead)
            await put_at(first, ahead)
            await first.save(PollSightings(seen={}, served_until=ahead))
            with pytest.raises(OutcomeUnknown):
                await put_at(first, ahead + 1)

    run(body())


def test_a_lease_runs_out_while_the_machine_is_suspended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that stands still then, and on which sockets and threads wait, knows nothing."""

    async def body() -> None:
        first = node(url, "c1", length=900.0)
        async with opened(first):
            await take(first)
            assert first.leadership.held()
            boottime = guard.boottime
            monkeypatch.setattr(guard, "boottime", lambda: boottime() + 900.0)
            assert not first.leadership.held()

    run(body())


@pytest.mark.parametrize(
    ("asked", "database", "now", "problem"),
    [
        (100, 100.0, 100, ""),
        (100, 101.0, 109, ""),  # the answer was late
        (100, 97.0, 109, "3.0 s ahead of"),
        (100, 112.0, 109, "3.0 s behind"),
        (100, 103.0, 10, "93.0 s behind"),  # a clock that was set back meanwhile
    ],
)
def test_a_late_answer_does_not_mean_that_a_clock_is_wrong(
    asked: int, database: float, now: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "wall_us", lambda: now * 1_000_000)
    found = lease.clock_problem(asked * 1_000_000, database)
    assert bool(found) == bool(problem)
    assert problem in found


def test_a_node_does_not_lead_on_a_database_that_has_lost_commits(url: str) -> None:
    """A follower knows what the database has lost, and writes it down for all others."""

    async def body() -> None:
        first, second, third = node(url, "c1"), node(url, "c2"), node(url, "c3")
        ends: list[OutcomeUnknown] = []
        second.on_unknown_outcome(ends.append)
        async with opened(second):
            await first.open()
            await take(first)
            for i in range(3):
                await put(first, f"h{i}")
            await until(lambda: second.seq == 3)
            await first.close()
            execute(url, "DELETE FROM commits WHERE seq > 1")
            await until(lambda: bool(ends))
            assert "has lost commits 2 to 3" in str(ends[0])
        async with opened(third):
            waiting = asyncio.get_running_loop().create_task(third.leadership.take())
            await until(lambda: "has lost commits 2 to 3" in third.leadership.problem())
            assert not waiting.done()
            waiting.cancel()

    run(body())


@pytest.mark.parametrize("term", [1, 0])
def test_a_leader_notices_at_its_next_commit_that_the_database_went_back(
    url: str, term: int
) -> None:
    """As after a fail-over to a standby that did not have everything, perhaps not even its term."""

    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        async with opened(first):
            await take(first)
            for i in range(3):
                await put(first, f"h{i}")
            execute(url, "DELETE FROM commits WHERE seq > 1")
            execute(url, "UPDATE leader SET term = %s, until = 'epoch'", term)
            with pytest.raises(Deposed, match="has lost commits 2 to 3"):
                await put(first, "h3")
            assert numbers(url) == [1]
        async with opened(second):
            waiting = asyncio.get_running_loop().create_task(second.leadership.take())
            await until(lambda: "has lost commits 2 to 3" in second.leadership.problem())
            waiting.cancel()

    run(body())


def test_another_commit_in_the_place_of_one_that_is_known_is_noticed(url: str) -> None:
    async def body() -> None:
        first, second = node(url, "c1"), node(url, "c2")
        ends: list[OutcomeUnknown] = []
        second.on_unknown_outcome(ends.append)
        async with opened(second):
            await first.open()
            await take(first)
            await put(first, "h1")
            await until(lambda: second.seq == 1)
            await first.close()
            execute(url, "UPDATE commits SET body = replace(body::text, 'a', 'b')::bytea")
            await until(lambda: bool(ends))
            assert "lost commits" in str(ends[0])

    run(body())


def test_groups_that_are_forgotten_are_forgotten_by_followers(shared: Open) -> None:
    from forewarn.core.registry import GroupForgotten

    async def body() -> None:
        first, second = join(shared, "c1"), join(shared, "c2")
        async with opened(first, second):
            await take(first)
            await put(first, "h1")
            await first.transact(lambda _: Batch(1, 0, puts=(GroupForgotten("web"),)))
            await until(lambda: second.seq == 2)
            assert dict(second.groups) == {} == dict(first.groups)
            assert second.groups.get("web", Group(name="web")) == Group(name="web")

    run(body())
