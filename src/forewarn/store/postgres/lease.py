"""Which control node decides: a row in the database, with a term that only grows.

A node claims the row when the lease in it is over, and renews it while it decides. Every claim
begins a new term, and every transaction that writes locks the row of its own term first (`FENCE`).
So a commit is in the log only if no later term had begun, whatever clocks, pauses and links do. The
lease itself only bounds for how long two nodes can *believe* that they decide: a node counts it
from before it sent the renewal, by its own clock, which also runs while the machine is suspended.

The wall clock of the database decides nothing: it may step, and another server may become the
primary. `until` changes with every renewal, and whoever wants to claim must have seen it unchanged
for the length of the lease (`lease_watch.py`). The claim is refused if it has changed since. What
`until` means as a time is for people.

A claim is a write: once it is acknowledged, everything before it is as durable as it will ever be,
so what is read after a claim is the log.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import psycopg

from forewarn.core import Time
from forewarn.store.lease_watch import LeaseWatch
from forewarn.store.port import CLOCK_LIMIT, Deposed, Leader, Member
from forewarn.store.postgres.session import (
    Watchdog,
    connect,
    end_sessions,
    name_session,
    waited_for_standby,
)
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

# An error (division by zero) if the term is over: then the server carries nothing out that was sent
# after it, and can only roll back. Returns 1; the last commit, because a server that became the
# primary may not have those before; its time, in microseconds since 1970; and the latest that is
# stored.
FENCE = """
SELECT 1 / count(*), (SELECT coalesce(max(seq), 0) FROM commits),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  greatest((SELECT at FROM commits ORDER BY seq DESC LIMIT 1),
           (SELECT value FROM service WHERE key = 'served_until'), 0)
  FROM (SELECT FROM leader WHERE term = %s FOR KEY SHARE) AS own
"""
CHANNEL = "forewarn"  # on which commits, and the end of a lease, are announced
COMMITTED = "committed"  # what is said there about a commit

_NOW = "SELECT extract(epoch FROM clock_timestamp())"
_UNTIL = "(extract(epoch FROM until) * 1000000)::bigint"
_LOOK = f"""
SELECT term, name, machine, address, {_UNTIL}, length, until >= clock_timestamp() FROM leader
"""
_CLAIM = f"""
UPDATE leader SET term = term + 1, name = %(name)s, machine = %(machine)s, address = %(address)s,
  until = clock_timestamp() + make_interval(secs => %(length)s), length = %(length)s
 WHERE term = %(seen_term)s AND {_UNTIL} = %(seen_until)s
RETURNING term, extract(epoch FROM clock_timestamp())
"""
_CLAIM_AGAIN = """
UPDATE leader SET term = term + 1, until = clock_timestamp() + make_interval(secs => %s)
 WHERE term = %s RETURNING term
"""
_RENEW = """
UPDATE leader SET until = clock_timestamp() + make_interval(secs => %s)
 WHERE term = %s RETURNING extract(epoch FROM clock_timestamp())
"""
_GIVE_BACK = "UPDATE leader SET until = 'epoch' WHERE term = %s"
_LOCK_PATIENCE = "300ms"
_LOOK_AGAIN = 0.2  # seconds between two looks at a row that may be renewed
_LOCK = f"SELECT term FROM leader WHERE term = %s AND {_UNTIL} = %s FOR UPDATE"
_TRIAL = "INSERT INTO commits (seq, at, body) VALUES (-1, 0, '')"

log = logger("forewarn")


class LeaseRow(msgspec.Struct, frozen=True):
    """The row, as it was read."""

    term: int = 0  # 0: nobody has ever claimed it
    name: str = ""
    machine: str = ""  # its place: machine and process
    address: str = ""
    until: int = 0  # microseconds since 1970, by the clock of the database; 0: it was given back
    length: float = 0.0  # seconds, as whoever has claimed it has set them
    held: bool = False  # by the clock of the database, so this is only for people to read

    def is_free(self) -> bool:
        return not self.until

    def belongs_to(self, member: Member) -> bool:
        """Return whether a process of this name on this machine has claimed the row."""
        machine, _, _ = self.machine.rpartition("/")
        return (self.name, machine) == (member.name, member.machine)

    def claimed_by(self, member: Member) -> bool:
        """Return whether this very process has claimed the row."""
        return (self.name, self.machine) == (member.name, member.place)

    def leader(self) -> Leader | None:
        """Return who has claimed the row last; None if nobody ever has."""
        if not self.term:
            return None
        return Leader(term=self.term, name=self.name, address=self.address, held=self.held)


class Lease:
    """The lease of this process, once it has one."""

    def __init__(
        self,
        url: str,
        member: Member,
        length: float,
        watchdog: Watchdog,
        check_log: Callable[[psycopg.Connection[Any]], None],
    ) -> None:
        self.url = url
        self.member = member
        self.length = length  # seconds
        self.term = 0  # 0: this process does not decide
        self._until = 0.0  # in boot time
        self._changing = threading.Lock()  # held while the term changes
        self._watchdog = watchdog
        self._sessions_ended = LogThrottle()
        self._check_log = check_log  # raises Deposed if the database went back
        self._listener: Callable[[float], None] = lambda _: None

    def held(self) -> bool:
        """Return whether this process may still decide, as far as its own clock can tell."""
        return guard.boottime() < self._until

    @property
    def until(self) -> float:
        """When the lease runs out, in boot time."""
        return self._until

    def watch(self, listener: Callable[[float], None]) -> None:
        """Call a function with `until` now, and in any thread whenever it changes."""
        with self._changing:
            self._listener = listener
            listener(self._until)

    def _set_until(self, until: float) -> None:
        self._until = until
        self._listener(until)

    def claim(self, connection: psycopg.Connection[Any], seen: LeaseRow) -> bool:
        """Begin a new term, unless the row is no longer the one that was seen. What is in the log
        must be read afterwards."""
        started, asked = guard.boottime(), guard.wall_us()
        values = msgspec.structs.asdict(self.member) | {
            "machine": self.member.place,
            "length": self.length,
            "seen_term": seen.term,
            "seen_until": seen.until,
        }
        row = self._changed(connection, _CLAIM, values)
        if row is None:
            return False
        with self._changing:
            self.term = row[0]
            self._set_until(started + self.length)
        name_session(connection, "lease", self.term)
        if not seen.is_free():  # whoever gives it back closes its own
            end_sessions(connection, before_term=self.term)
        if problem := clock_problem(asked, float(row[1])):
            self.give_back(connection)
            raise ClockApart(problem)
        return True

    def claim_again(self) -> None:
        """Begin another term in place of one's own, and so wait for, or end, everything that was
        begun in it. Raises Deposed."""
        with self._changing, connect(self.url, "claim", term=self.term) as connection:
            with self._watchdog.limit(connection, self.length):
                started = guard.boottime()
                row = self._changed(connection, _CLAIM_AGAIN, (self.length, self.term))
            if row is None:
                self._set_until(0.0)
                self.end(connection)
            self.term = row[0]
            self._set_until(started + self.length)

    def renew(self, connection: psycopg.Connection[Any]) -> None:
        """Raises Deposed if another term has begun."""
        started, asked, term = guard.boottime(), guard.wall_us(), self.term
        row = connection.execute(_RENEW, (self.length, term)).fetchone()
        with self._changing:
            if self.term != term:
                return  # which has renewed it
            if row is None:
                self._set_until(0.0)
                self.end(connection)
            self._set_until(started + self.length)
        if problem := clock_problem(asked, float(row[0])):
            with contextlib.suppress(psycopg.Error):
                self.give_back(connection)
            raise Deposed(problem)

    def end(self, connection: psycopg.Connection[Any]) -> NoReturn:
        """Raises Deposed, with the reason why the term of this process is not in the database."""
        self._check_log(connection)
        raise Deposed("another control node has taken over")

    def give_back(self, connection: psycopg.Connection[Any]) -> None:
        """End the lease, so that another node need not wait for it to run out."""
        with self._changing:
            term, self.term = self.term, 0
            self._set_until(0.0)
        if term:
            connection.execute(_GIVE_BACK, (term,))
            connection.execute(f"NOTIFY {CHANNEL}")

    def _changed(self, connection: psycopg.Connection[Any], statement: str, values: Any) -> Any:
        """Change the key of the row. A transaction that has locked it is waited for, and after a
        moment its session is ended, unless it is committing: a writer that was stopped in the
        middle of one keeps the row locked for as long as it stands still."""
        while True:
            try:
                with waited_for_standby(connection), connection.transaction():
                    connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
                    return connection.execute(statement, values).fetchone()
            except psycopg.errors.LockNotAvailable:
                ended = end_sessions(connection, purpose="writer")
                if ended and self._sessions_ended.record():
                    log.warning(
                        "the last leader stands still in a transaction: its session is ended"
                    )


class ClockApart(Exception):
    """The clock of this machine and that of the database differ too much to decide anything."""


def look(connection: psycopg.Connection[Any]) -> LeaseRow:
    row = connection.execute(_LOOK).fetchone()
    return LeaseRow() if row is None else LeaseRow(*row)


def lock_if_over(connection: psycopg.Connection[Any]) -> Leader | None:
    """Lock the row until the end of the transaction if nobody decides, and return who does
    otherwise. While that is uncertain, wait: no longer than a lease lasts."""
    watch = LeaseWatch(guard.boottime)
    first = look(connection)
    while True:
        row = look(connection)
        left = watch.left((row.term, row.until), row.length)
        if row.is_free() or not left:
            if connection.execute(_LOCK, (row.term, row.until)).fetchone() is not None:
                return None
        elif (row.term, row.until) != (first.term, first.until):
            return row.leader()
        else:
            threading.Event().wait(min(_LOOK_AGAIN, left))


def try_write(connection: psycopg.Connection[Any]) -> None:
    """Write a commit, and roll it back. Raises psycopg.Error if it is refused, or has to wait."""
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
        connection.execute(_TRIAL)


def look_at_clock(connection: psycopg.Connection[Any]) -> str:
    """Return what is wrong with the clock of this machine; empty if nothing is."""
    asked = guard.wall_us()
    row = connection.execute(_NOW).fetchone()
    assert row is not None
    return clock_problem(asked, float(row[0]))


def clock_problem(asked: Time, database: float) -> str:
    """Return what is wrong with the clock of this machine, which showed `asked` before the database
    told its time; empty if nothing is. The answer may have taken long: a commit waits for its
    standby."""
    now = guard.wall_us() / 1e6
    difference = max(asked / 1e6 - database, 0.0) or min(now - database, 0.0)
    return "" if abs(difference) <= CLOCK_LIMIT else _clock_differs(difference)


def time_problem(at: Time, database: Time, stored: Time) -> str:
    """Return what is wrong with a time that is to be stored, if it is ahead of the clock of the
    database and of the latest that is stored: what was decided then may be early. (A step of the
    wall clock is followed at once, and only the next renewal would notice it.) Empty if nothing
    is."""
    ahead = (at - database) / 1e6
    return "" if at <= stored or ahead <= CLOCK_LIMIT else _clock_differs(ahead)


def _clock_differs(ahead: float) -> str:
    direction = "ahead of" if ahead > 0 else "behind"
    return (
        f"the clock of this machine is {abs(ahead):.1f} s {direction} the database's, so it cannot"
        " decide when events start; synchronize both"
    )
