"""A control node that does not decide: it reads the log, and claims the lease once it is over."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import psycopg

from forewarn.store.lease_watch import LeaseWatch
from forewarn.store.port import Commit, Leader, NotLeading, StoreFailed
from forewarn.store.postgres import mirror
from forewarn.store.postgres.database import first_line
from forewarn.store.postgres.lease import CHANNEL, COMMITTED, Lease, LeaseRow, look
from forewarn.store.postgres.reports import NodeReports
from forewarn.store.postgres.session import Watchdog, leader_has_sessions
from forewarn.support import guard
from forewarn.support.logs import logger

READ_LIMIT = 30.0  # seconds after which a read is given up: it may be much
POLL = 0.5  # seconds between two looks at the lease and the log, if nothing is announced

log = logger("forewarn")


class Replica(Protocol):
    """The store of this node, which becomes what the log says."""

    url: str
    name: str
    position: mirror.Position  # the last commit that is known, or is about to be
    errors: ClassVar[tuple[type[Exception], ...]]

    @property
    def seq(self) -> int: ...

    def adopt(self, commits: Sequence[Commit]) -> None:
        """Take commits over. Returns at once."""

    def check_writable(self) -> None:
        """Raises one of `errors` if no session can be opened, or none can write."""

    def connect_leader(self) -> None:
        """Have the next connections be those of a leader."""


class Follower:
    def __init__(
        self,
        store: Replica,
        lease: Lease,
        watchdog: Watchdog,
        reports: NodeReports,
        stopped: threading.Event,
        refuse: Callable[[StoreFailed], None],
    ) -> None:
        """`refuse` is called if the lease is wanted at once, and cannot be had."""
        self._store = store
        self._lease = lease
        self._watchdog = watchdog
        self._reports = reports
        self._stopped = stopped
        self._refuse = refuse
        self._watch = LeaseWatch(lambda: guard.boottime())
        self._wake = socket.socketpair()  # ends a wait for news
        self._wake[0].setblocking(False)
        self._wanted = False
        self._first: LeaseRow | None = None  # as it was first seen
        self.at_once = False  # a command wants the lease, or to know that somebody has it
        self.leader: Leader | None = None
        self.problem = ""  # why this node could not take over
        self.claimed = False  # and has read what was committed before
        self.read_at = guard.monotonic()  # when the whole log was last read

    def want(self, *, at_once: bool = False) -> None:
        """Claim the lease as soon as it is over."""
        self.at_once = at_once
        self._wanted = True
        self.wake()

    def wake(self) -> None:
        self._wake[1].send(b".")

    def close(self) -> None:
        for end in self._wake:
            end.close()

    # In the thread of the lease.

    def follow(self, connection: psycopg.Connection[Any]) -> None:
        """Follow until this process has the lease and has read the log, or is stopped. If the
        connection is lost in between, the lease is claimed again."""
        with self._watchdog.limit(connection, READ_LIMIT):
            connection.execute(f"LISTEN {CHANNEL}")
        while not self.claimed and not self._stopped.is_set():
            wanted = self._wanted
            with self._watchdog.limit(connection, READ_LIMIT):
                self._read_news(connection)
                row = self._look(connection)
                left = self._left(connection, row)
                self._examine(connection, claims=wanted and not left)
                if wanted and not left and not self.problem and self._claim(connection, row):
                    break
                if wanted and self.at_once:
                    self._refuse_if_certain(row)
                self._reports.report(connection)
            self._read_for_a_while(connection, min(POLL, left or POLL))
        with self._watchdog.limit(connection, READ_LIMIT):
            connection.execute(f"UNLISTEN {CHANNEL}")

    def report_problem(self, problem: str, details: str = "") -> None:
        """Note what is wrong, for everybody to see, and log it once with the details."""
        if problem and problem != self.problem and not self.at_once:
            log.warning("this control node cannot decide", why=details or problem)
        self.problem = problem
        if problem and self.at_once:
            self._refuse(StoreFailed(details or problem))

    def _look(self, connection: psycopg.Connection[Any]) -> LeaseRow:
        row = look(connection)
        leader = row.leader()
        if leader and self.leader and leader.term < self.leader.term:
            raise mirror.WentBack
        self.leader = leader
        self._first = self._first or row
        return row

    def _left(self, connection: psycopg.Connection[Any], row: LeaseRow) -> float:
        """Return in how many seconds the lease may be claimed, if nobody renews it until then."""
        left = self._watch.left((row.term, row.until), row.length)
        return 0.0 if row.is_free() or self._is_own(connection, row) else left

    def _is_own(self, connection: psycopg.Connection[Any], row: LeaseRow) -> bool:
        """Return whether this process has claimed the lease, or did so before it was killed and
        started again. Another one with its name on a machine with the same id, such as a clone, has
        sessions, and renews its lease."""
        member = self._lease.member
        if row.claimed_by(member):
            return True
        return (
            row.belongs_to(member)
            and not self._has_changed(row)
            and not leader_has_sessions(connection)
        )

    def _has_changed(self, row: LeaseRow) -> bool:
        """Return whether somebody has renewed or claimed the lease since it was first seen."""
        assert self._first is not None
        return (row.term, row.until) != (self._first.term, self._first.until)

    def _examine(self, connection: psycopg.Connection[Any], *, claims: bool) -> None:
        """Note why this node could not decide."""
        reports = self._reports
        if claims:
            reports.examine(connection)
        problem = mirror.went_back(connection) or reports.clock_problem or reports.name_problem
        if claims and not problem:
            try:
                self._store.check_writable()
            except self._store.errors as error:
                details = f"it cannot write to {self._store.name}: {first_line(error)}"
                self.report_problem("this control node cannot write to the database", details)
                return
        self.problem = problem

    def _claim(self, connection: psycopg.Connection[Any], row: LeaseRow) -> bool:
        if not self._lease.claim(connection, row):
            return False
        self._read_news(connection)  # what is read after a claim is the log
        self.leader = look(connection).leader()
        self._store.connect_leader()
        self.claimed = True
        return True

    def _refuse_if_certain(self, row: LeaseRow) -> None:
        """Whoever renews the lease, or has just claimed it, decides. As long as nothing changes, it
        is uncertain whether somebody does."""
        if self.problem:
            self._refuse(StoreFailed(self.problem))
            return
        if self._has_changed(row):
            self._refuse(NotLeading(row.leader()))

    def _read_news(self, connection: psycopg.Connection[Any]) -> None:
        while True:
            commits, known = mirror.news(connection, self._store.position)
            if commits:
                self._store.position = known
                self._store.adopt(commits)
            if len(commits) < mirror.PAGE:
                self.read_at = guard.monotonic()
                return

    def _read_for_a_while(self, connection: psycopg.Connection[Any], seconds: float) -> None:
        """Read commits as they are announced, until something else is, or the time is over."""
        end = guard.monotonic() + seconds
        while not self._stopped.is_set() and (left := end - guard.monotonic()) > 0:
            announced = {notify.payload for notify in connection.notifies(timeout=0)}
            if announced == {COMMITTED}:
                with self._watchdog.limit(connection, READ_LIMIT):
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
        with contextlib.suppress(BlockingIOError):
            wake.recv(64)
        return True
