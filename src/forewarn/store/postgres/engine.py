"""The PostgreSQL engine: one process decides and writes, the others follow.

A process that has opened the state follows: it has everything in memory that the leader has, read
from the log, and takes over when the lease is over (`leadership.py`). Whoever decides writes in one
thread, through one connection, and every transaction proves its term first.

If the connection is lost while a COMMIT is under way, nobody knows what became of it. The process
begins another term, which waits for the transaction or ends it, and reads the log: if the batch is
there, it is acknowledged, and otherwise written again. Nobody else can have written meanwhile,
because then the new term would not be the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
import sqlalchemy as sa

from forewarn.core import Group, Time
from forewarn.store.base import CHANGE_LIMIT, count_changes
from forewarn.store.port import (
    Commit,
    ControlNode,
    Copy,
    Deposed,
    Member,
    NotLeading,
    OutcomeUnknown,
    StoreFailed,
    StoreUnusable,
    Work,
)
from forewarn.store.postgres import arrays, database, mirror, nodes
from forewarn.store.postgres.arrays import Pipelined
from forewarn.store.postgres.follower import READ_LIMIT
from forewarn.store.postgres.leadership import RETRY, PostgresLeadership
from forewarn.store.postgres.lease import CHANNEL, COMMITTED, FENCE, Lease, time_problem, try_write
from forewarn.store.postgres.session import Watchdog, connect, waited_for_standby
from forewarn.store.sql import read
from forewarn.store.sql.store import SqlStore
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.urls import without_password

WRITE_LIMIT = 6.0  # seconds after which a transaction is given up, and CHANGE_LIMIT for each change

T = TypeVar("T")

log = logger("forewarn")


class InDoubt(Exception):
    """A COMMIT was sent, and not answered."""


class PostgresStore(SqlStore):
    dialect = "postgresql"
    errors = (*SqlStore.errors, psycopg.Error)

    def __init__(
        self, url: str, member: Member, *, lease: float = 6.0, managed: bool = False
    ) -> None:
        """If the replication is `managed` by somebody else, it is believed to lose nothing."""
        super().__init__()
        self.url = url
        self.name = without_password(url)
        self._watchdog = Watchdog(lambda: self.leadership.check_lease())
        self._lease = Lease(url, member, lease, self._watchdog, self._check_log)
        self._engine: sa.Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = 0  # the last commit that is in the log, as far as this process knows
        self._failures: tuple[float, float] | None = None  # first and last since a write succeeded
        self.position = mirror.Position()
        self.leadership: PostgresLeadership = PostgresLeadership(
            self, self._lease, self._watchdog, managed=managed
        )

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchdog.start()
        try:
            await super().open()
        except BaseException:
            await self.leadership.stop()
            self._watchdog.stop()
            raise

    async def close(self) -> None:
        await self._finish_batches()  # within the lease, which is given back then
        await self.leadership.stop()
        await super().close()
        self._watchdog.stop()

    def size(self) -> int:
        return 0

    async def check(self) -> None:
        """Whether commits can be made durable is known from the renewals of the lease."""

    async def copy(self, at: Time) -> Copy | None:  # noqa: ARG002
        return None  # the database has backups of its own

    async def transact(self, work: Work) -> Commit | None:
        self._check_leading()
        return await super().transact(work)

    def _check_leading(self) -> None:
        if not self.leadership.taken:
            leader = self.leadership.leader()
            raise NotLeading(leader if leader and leader.held else None)

    async def read_nodes(self) -> Sequence[ControlNode]:
        def read() -> Sequence[ControlNode]:
            with self._connection() as connection:
                return nodes.read(_driver(connection))

        return await self._run_read(read)

    async def forget_node(self, name: str) -> None:
        def forget() -> None:
            with self._writing() as connection:
                nodes.forget(_driver(connection), name)

        await self._run_write(forget)

    async def _run_write(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            result = await super()._run_write(call, *arguments)
        except NotLeading:
            raise
        except StoreFailed:
            now = guard.monotonic()
            self._failures = (now if self._failures is None else self._failures[0], now)
            raise
        self._failures = None
        return result

    def begin_term(self) -> None:
        self._last = self.seq

    # For the thread of the lease.

    def adopt(self, commits: Sequence[Commit]) -> None:
        self._call(self._adopt, commits)

    def check_writable(self) -> None:
        self._thread.submit(self._try_write).result()

    def connect_leader(self) -> None:
        self._reading.submit(self._close_reader)
        self._thread.submit(self._connect_again).result()

    def failing_for(self) -> float:
        failures = self._failures
        return 0.0 if failures is None else failures[1] - failures[0]

    def end(self, why: OutcomeUnknown) -> None:
        if not self._outcome_unknown:
            self._outcome_unknown = str(why)
            self._call(self._on_unknown_outcome, why)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _error_text(self, error: Exception) -> str:
        return f"{self.name}: {database.first_line(error)}"

    # In the writer's thread from here on.

    def _open(self) -> None:
        database.prepare(self.url)
        self._engine = database.engine(self._connect)
        try:
            with self._engine.connect() as connection:
                # One snapshot of the state and of the log that led to it.
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                self._load(connection)
                self.position = mirror.position(_driver(connection))
                connection.rollback()
        except (sa.exc.DBAPIError, psycopg.Error, msgspec.MsgspecError) as error:
            self._close()
            raise StoreUnusable(
                f"{self.name} cannot be used as state: {database.first_line(error)}"
            ) from error

    def _connect(self) -> psycopg.Connection[Any]:
        """Open a connection that writes only if this process decides: those of others are ended."""
        if self._lease.term:
            connection = connect(self.url, "writer", term=self._lease.term, sends_much=True)
            arrays.register(connection)
            return connection
        return connect(self.url, "reader", autocommit=False)

    def _connect_again(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _try_write(self) -> None:
        """Check that a session can be opened now, and can write."""
        self._connect_again()
        assert self._engine is not None
        with self._session(self._engine, WRITE_LIMIT) as connection:
            try_write(_driver(connection))

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sa.Connection]:
        if self._engine is None:
            raise StoreFailed(f"{self.name}: the store is closed")
        with self._session(self._engine, READ_LIMIT) as connection:
            yield connection
            connection.rollback()

    @contextlib.contextmanager
    def _writing(self, changes: int = 0, at: Time = 0) -> Iterator[sa.Connection]:
        try:
            with self._in_term(changes, at) as connection:
                yield connection
        except InDoubt as doubt:  # everything else that is written may be written again
            raise StoreFailed(str(doubt)) from doubt

    @contextlib.contextmanager
    def _in_term(
        self, changes: int = 0, at: Time = 0, *, pipelined: bool = False
    ) -> Iterator[sa.Connection]:
        """Run the block, with so many changes, of which the latest is dated `at`, in a transaction
        of this term; `pipelined`: all statements are sent before the first is answered. Raises
        InDoubt if its COMMIT was not answered, and Deposed if another term has begun or the clock
        of this machine is ahead."""
        if self._outcome_unknown:
            raise StoreFailed(self._outcome_unknown)
        self._check_leading()
        if self._engine is None:
            raise StoreFailed(f"{self.name}: the store is closed")
        limit = WRITE_LIMIT + CHANGE_LIMIT * changes
        with self._session(self._engine, limit) as connection:
            driver = _driver(connection)
            connection.begin()
            try:
                with driver.pipeline() if pipelined else contextlib.nullcontext():
                    driver.execute("BEGIN")
                    fence = driver.execute(FENCE, (self._lease.term,), prepare=True)
                    yield connection
                # Nothing is committed unless the fence has answered, and said yes.
                row = fence.fetchone()
                if row is None or row[0] != 1:
                    self._lease.end(driver)
                if row[1] < self._last:
                    connection.rollback()
                    self._check_log(driver)
                if problem := time_problem(at, row[2], row[3]):
                    connection.rollback()
                    self._lease.give_back(driver)
                    raise Deposed(problem)
            except BaseException as error:
                with contextlib.suppress(sa.exc.DBAPIError):
                    connection.rollback()
                if isinstance(error, psycopg.errors.DivisionByZero):
                    self._lease.end(driver)
                raise
            try:
                with waited_for_standby(driver):
                    connection.commit()
            except (sa.exc.DBAPIError, psycopg.Error) as error:
                connection.invalidate()
                raise InDoubt(self._error_text(error)) from error

    @contextlib.contextmanager
    def _session(self, engine: sa.Engine, seconds: float) -> Iterator[sa.Connection]:
        """Give the connection up if the block takes longer."""
        with engine.connect() as connection, self._watchdog.limit(_driver(connection), seconds):
            yield connection

    def _write(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        at = max(commit.at for commit in commits)
        changes = count_changes(commits)
        while True:
            try:
                with self._in_term(changes, at, pipelined=True) as connection:
                    driver = _driver(connection)
                    self._write_batch(Pipelined(connection, driver), commits, before, after)
                    driver.execute(f"NOTIFY {CHANNEL}, '{COMMITTED}'")
                break
            except InDoubt as doubt:
                log.warning("it is unknown whether a commit has happened", why=str(doubt))
                if self._has_happened(commits):
                    break
        self._last = commits[-1].seq

    def _has_happened(self, commits: Sequence[Commit]) -> bool:
        """Return whether a batch in doubt is in the log. Tries for as long as a lease lasts, though
        it may be renewed meanwhile, through another connection: then another node can do better."""
        end = guard.monotonic() + self._lease.length
        while self._lease.held() and guard.monotonic() < end:
            try:
                self._lease.claim_again()
                with self._connection() as connection:
                    self._check_log(_driver(connection))
                    happened = read.last_commit(connection) >= commits[-1].seq
                log.warning("the outcome of the commit is known", happened=happened)
                return happened
            except self.errors:
                self.leadership.pause(RETRY)
        raise Deposed(
            f"{self.name} was not reached again within the lease: it is unknown whether the last"
            " commit has happened; whoever decides next finds it in the log, or does not"
        )

    def _check_log(self, connection: psycopg.Connection[Any]) -> None:
        """Raises Deposed if the log ends before what this process has committed, and writes that
        down for all nodes. Asked in every transaction: another server may have become the
        primary."""
        if mirror.last(connection) < self._last:
            mirror.mark_went_back(connection, self._last)
            connection.commit()
            raise Deposed(mirror.went_back(connection))

    # In the reading thread.

    def _make_reader(self) -> sa.Engine:
        return database.engine(lambda: connect(self.url, "reader", term=self._lease.term))


def _driver(connection: sa.Connection) -> psycopg.Connection[Any]:
    driver: Any = connection.connection.driver_connection
    return driver  # type: ignore[no-any-return]
