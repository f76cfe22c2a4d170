"""The PostgreSQL engine: one process decides and writes, the others follow.

A process that has opened the state follows: it has everything in memory that the leader has, read
from the log (`mirror.py`), and takes over when the lease is free (`lease.py`). Whoever decides
writes in one thread, through one connection, and every transaction proves its term first.

If the connection is lost while a COMMIT is under way, nobody knows what became of it. The process
begins another term, which waits for the transaction or ends it, and reads the log: if the batch is
there, it is acknowledged, and otherwise written again. Nobody else can have written meanwhile,
because then the new term would not be the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
import sqlalchemy as sa

from forewarn.core import Group, Time
from forewarn.store.port import (
    Commit,
    ControlNode,
    Copy,
    Deposed,
    Leader,
    Leadership,
    Member,
    NotLeading,
    StoreFailed,
    StoreUnusable,
    Work,
)
from forewarn.store.postgres import arrays, database, examine, mirror, nodes
from forewarn.store.postgres.arrays import Pipelined
from forewarn.store.postgres.lease import (
    CHANNEL,
    COMMITTED,
    FENCE,
    ClockApart,
    Lease,
    look,
    look_at_clock,
)
from forewarn.store.postgres.session import Watchdog, connect, connect_writer, waited_for_standby
from forewarn.store.sql import read
from forewarn.store.sql.store import SqlStore
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.urls import without_password

WRITE_LIMIT = 6.0  # seconds after which a transaction is given up
CHANGE_LIMIT = 0.001  # and for each change in it: a fleet may have 100,000 machines
READ_LIMIT = 30.0  # likewise, for what may be much
POLL = 1.0  # seconds between two looks at the log, if nothing is announced
RETRY = 0.2  # seconds until the next attempt to reach the database

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
        self._watchdog = Watchdog(lambda: self._turns.check_lease())
        self._lease = Lease(url, member, lease, self._watchdog, self._check_log)
        self._managed = managed
        self._engine: sa.Engine | None = None
        self._known = mirror.Position()
        self._last = 0  # the last commit that is in the log, as far as this process knows
        self._turns = _Turns(self)
        self.leadership: PostgresLeadership = PostgresLeadership(self._lease, self._turns)

    async def open(self) -> None:
        self._watchdog.start()
        try:
            await super().open()
        except BaseException:
            await self._turns.stop()
            self._watchdog.stop()
            raise

    async def close(self) -> None:
        await self._finish_batches()  # within the lease, which is given back then
        await self._turns.stop()
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
        if not self._turns.taken:
            leader = self._turns.leader
            raise NotLeading(leader if leader and leader.held else None)

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
                self._known = mirror.position(_driver(connection))
                connection.rollback()
        except (sa.exc.DBAPIError, psycopg.Error, msgspec.MsgspecError) as error:
            self._close()
            raise StoreUnusable(
                f"{self.name} cannot be used as state: {database.first_line(error)}"
            ) from error

    def _connect(self) -> psycopg.Connection[Any]:
        """Open a connection that writes only if this process decides: those of others are ended."""
        if self._lease.term:
            connection = connect_writer(self.url)
            arrays.register(connection)
            return connection
        return connect(self.url, "reader", autocommit=False)

    def _connect_again(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

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
    def _writing(self, changes: int = 0) -> Iterator[sa.Connection]:
        try:
            with self._in_term(changes) as connection:
                yield connection
        except InDoubt as doubt:  # everything else that is written may be written again
            raise StoreFailed(str(doubt)) from doubt

    @contextlib.contextmanager
    def _in_term(self, changes: int = 0, *, pipelined: bool = False) -> Iterator[sa.Connection]:
        """Run the block, with so many changes, in a transaction of this term; `pipelined`: all
        statements are sent before the first is answered. Raises InDoubt if its COMMIT was not
        answered, and Deposed if another term has begun."""
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
        changes = sum(len(c.puts) + sum(len(e.items) for e in c.entries) for c in commits)
        while True:
            try:
                with self._in_term(changes, pipelined=True) as connection:
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
                self._turns.pause(RETRY)
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
        return database.engine(lambda: connect(self.url, "reader"))


class PostgresLeadership(Leadership):
    def __init__(self, lease: Lease, turns: _Turns) -> None:
        self._lease = lease
        self._turns = turns
        self.held = lease.held  # without a call in between

    def follow(self) -> None:
        self._turns.start()

    async def take(self) -> None:
        self._turns.start()
        await self._turns.take()

    async def take_at_once(self) -> None:
        self._turns.start()
        await self._turns.take(at_once=True)

    @property
    def until(self) -> float:
        return self._lease.until

    @property
    def term(self) -> int:
        return self._lease.term

    def give_up(self, why: str) -> None:
        self._turns.give_up(why)

    def leader(self) -> Leader | None:
        return self._turns.leader

    def problem(self) -> str:
        return self._turns.problem

    def warnings(self) -> Mapping[str, str]:
        return self._turns.warnings

    def lag(self) -> tuple[int, float]:
        turns = self._turns
        return (0, 0.0) if turns.taken else (turns.lag, guard.monotonic() - turns.read_at)

    async def nodes(self) -> Sequence[ControlNode]:
        return await self._turns.nodes()


class _Turns:
    """The thread that follows, claims the lease when it is free and wanted, and renews it."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._lease = store._lease
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._wake = socket.socketpair()  # ends a wait for news
        self._wake[0].setblocking(False)
        self._wanted = self._at_once = False
        self._waiting: asyncio.Future[None] | None = None
        self._began = False  # a term, and has read what was committed before
        self.taken = False  # likewise, and what was read is the state
        self._loop: asyncio.AbstractEventLoop | None = None
        self.leader: Leader | None = None
        self.problem = ""
        self._clock_problem = ""  # when the clock was last compared with the database's
        self.warnings: Mapping[str, str] = {}  # by subject
        self.lag = 0  # commits, when this was last reported
        self.read_at = guard.monotonic()  # when the whole log was last read
        self._report_at = 0.0  # when this node is to report next
        self._reported = False

    def start(self) -> None:
        if self._thread is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    async def take(self, *, at_once: bool = False) -> None:
        assert self._waiting is not None
        self._at_once = at_once
        self._wanted = True
        self._wake[1].send(b".")
        await asyncio.shield(self._waiting)

    def pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def give_up(self, why: str) -> None:
        self._depose(Deposed(why))

    async def nodes(self) -> Sequence[ControlNode]:
        store = self._store

        def read() -> Sequence[ControlNode]:
            with store._connection() as connection:
                return nodes.read(_driver(connection))

        return await store._run_read(read)

    async def stop(self) -> None:
        self._stopped.set()
        self._wake[1].send(b".")
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        for end in self._wake:
            end.close()

    # In the thread.

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with connect(self._store.url, "lease") as connection:
                    self.problem = ""
                    self._follow(connection)
                    self._renew(connection)
                    with self._store._watchdog.limit(connection, self._lease.length):
                        self._lease.give_back(connection)
            except ClockApart as apart:
                self._report(str(apart))
            except mirror.WentBack:
                self._mark_went_back()
                return
            except (Deposed, mirror.TooFarBehind) as error:
                self._depose(error if isinstance(error, Deposed) else Deposed(_BEHIND))
                return
            except (psycopg.Error, OSError) as error:
                self._report_unreachable(error)
            except Exception as error:  # such as a commit of a later version, which cannot be read
                log.error("this control node cannot follow", exc_info=error)
                self._depose(Deposed(f"it cannot follow: {error}"))
                return
            self._stopped.wait(RETRY)

    def _report_unreachable(self, error: Exception) -> None:
        why = f"{self._store.name}: {database.first_line(error)}"
        self._report("the database cannot be reached", why)

    def _report(self, problem: str, details: str = "") -> None:
        """Note what is wrong, for everybody to see, and log it once with the details."""
        if problem != self.problem and not self._at_once:
            log.warning("this control node cannot decide", why=details or problem)
        self.problem = problem
        self._refuse_if_at_once(StoreFailed(details or problem))

    def _refuse_if_at_once(self, why: StoreFailed) -> None:
        if self._at_once:
            self._call(self._set_refused, why)

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        """Follow until this process has the lease and has read the log, or is stopped. If the
        connection is lost in between, the lease is claimed again."""
        with self._store._watchdog.limit(connection, READ_LIMIT):
            connection.execute(f"LISTEN {CHANNEL}")
        while not self._began and not self._stopped.is_set():
            wanted = self._wanted
            with self._store._watchdog.limit(connection, READ_LIMIT):
                self._read_news(connection)
                leader = self._look(connection)
                free = leader is None or not leader.held or leader.name == self._lease.member.name
                if wanted and free:
                    self._look_at_replication(connection)
                    self._clock_problem = look_at_clock(connection)
                self.problem = mirror.went_back(connection) or self._clock_problem
                if wanted and free and not self.problem and self._lease.claim(connection):
                    self._read_news(connection)  # what is read after a claim is the log
                    self.leader = look(connection)
                    self._store._thread.submit(self._store._connect_again).result()
                    self._began = True
                    self._call(self._set_taken)
                    break
                if wanted:
                    self._refuse_if_at_once(
                        StoreFailed(self.problem) if self.problem else NotLeading(look(connection))
                    )
                self._report_node(connection)
            self._read_for_a_while(connection)
        with self._store._watchdog.limit(connection, READ_LIMIT):
            connection.execute(f"UNLISTEN {CHANNEL}")

    def _read_for_a_while(self, connection: psycopg.Connection[Any]) -> None:
        """Read commits as they are announced, until something else is, or for as long as `POLL`."""
        end = guard.monotonic() + POLL
        while not self._stopped.is_set() and (left := end - guard.monotonic()) > 0:
            announced = {notify.payload for notify in connection.notifies(timeout=0)}
            if announced == {COMMITTED}:
                with self._store._watchdog.limit(connection, READ_LIMIT):
                    self._read_news(connection)
            elif announced or self._woken(connection, left):
                return

    def _woken(self, connection: psycopg.Connection[Any], seconds: float) -> bool:
        """Wait until something arrives on the connection, or this thread is woken."""
        wake = self._wake[0]
        with selectors.DefaultSelector() as selector:  # for descriptors above 1023, too
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            ready = selector.select(seconds)
        if all(key.fileobj is not wake for key, _ in ready):
            return False
        wake.recv(64)
        return True

    def _look(self, connection: psycopg.Connection[Any]) -> Leader | None:
        leader = look(connection)
        if leader and self.leader and leader.term < self.leader.term:
            raise mirror.WentBack
        self.leader = leader
        return leader

    def _read_news(self, connection: psycopg.Connection[Any]) -> None:
        store = self._store
        while True:
            commits, known = mirror.news(connection, store._known)
            if commits:
                store._known = known
                self._call(store._adopt, commits)
            if len(commits) < mirror.PAGE:
                self.read_at = guard.monotonic()
                return

    def _renew(self, connection: psycopg.Connection[Any]) -> None:
        while not self._stopped.is_set():
            with self._store._watchdog.limit(connection, self._lease.length / 2):
                self._lease.renew(connection)
                self._report_node(connection)
            self._stopped.wait(self._lease.length / 4)

    def _report_node(self, connection: psycopg.Connection[Any]) -> None:
        """Write into the database now and then how far this node is."""
        now = guard.monotonic()
        if now < self._report_at or self._at_once:
            return
        self._report_at = now + nodes.EVERY
        self._look_at_replication(connection)
        self._clock_problem = look_at_clock(connection)
        reported = nodes.report(
            *(connection, self._lease.member, self._lease.length, self._store.seq),
            first=not self._reported,
        )
        if reported is not None:
            self.lag, known = reported
            self.warnings = {**self.warnings, **nodes.differences(known)}
            self._reported = True

    def _look_at_replication(self, connection: psycopg.Connection[Any]) -> None:
        """Note what is wrong with it. Must be called before a commit, which may wait for a standby
        that is missing."""
        if not self._store._managed:
            problem = examine.replication_problem(connection)
            self.warnings = {**self.warnings, "replication": problem}

    def _mark_went_back(self) -> None:
        """Write down for all nodes what this one knows, and end."""
        while not self._stopped.is_set():
            try:
                with connect(self._store.url, "lease") as connection:
                    mirror.mark_went_back(connection, self._store._known.seq)
                    self._depose(Deposed(mirror.went_back(connection)))
                return
            except (psycopg.Error, OSError) as error:
                self._report_unreachable(error)
                self._stopped.wait(RETRY)

    def _set_taken(self) -> None:
        assert self._waiting is not None
        self._store._last = self._store.seq
        self.taken = True
        if not self._waiting.done():
            self._waiting.set_result(None)

    def _set_refused(self, why: StoreFailed) -> None:
        assert self._waiting is not None
        if not self._waiting.done():
            self._waiting.set_exception(why)

    # In the thread of the watchdog.

    def check_lease(self) -> None:
        """End this process when its lease has run out, whatever its threads are waiting for."""
        if self._lease.term and not self._lease.held():
            self._depose(Deposed(_RUN_OUT))

    def _depose(self, why: Deposed) -> None:
        if self._store._outcome_unknown:
            return
        self._store._outcome_unknown = str(why)
        self._call(self._store._on_unknown_outcome, why)

    def _call(self, function: Any, *arguments: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)


_BEHIND = "this control node was away for so long that commits it has not read were removed"
_RUN_OUT = "the lease of this control node has run out, and could not be renewed"


def _driver(connection: sa.Connection) -> psycopg.Connection[Any]:
    driver: Any = connection.connection.driver_connection
    return driver  # type: ignore[no-any-return]
