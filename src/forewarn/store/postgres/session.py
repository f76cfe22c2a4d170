"""Connections to the database, and the watchdog that gives up those that hang.

libpq finds the primary among several hosts, and notices a link that is cut. It does not notice a
server that stands still, because its kernel goes on answering. A statement that takes too long is
therefore given up by shutting its socket. **Nothing ever sends a cancel request**: it would end the
wait of a COMMIT for its standby, and the commit would become visible although it is on one disk
only. If somebody else sends one, the server reports success, with a warning (`waited_for_standby`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from forewarn.store.port import StoreUnusable
from forewarn.support import guard

NAME_LENGTH = 63  # bytes of an application_name that a server keeps
# What libpq is told unless the URL says otherwise: times in seconds, tcp_user_timeout in
# milliseconds.
DEFAULTS = {
    "target_session_attrs": "read-write",
    "connect_timeout": 2,
    "tcp_user_timeout": 4000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
# milliseconds, for a session that sends much: a server that is busy reads nothing for some time,
# which counts as well. Whoever writes has limits of its own (`Watchdog`).
SENDING_TIMEOUT = 60_000
# What the server is told for each session. Without the first four, it would keep the session of a
# client that was cut off for hours, until it has no connections left. They are longer than the
# client's: a client that is busy reads nothing for some seconds. The next ends a transaction, and
# so its locks, of a process that stands still. The last is as it is by default, whatever the role
# has: in others, a renewal and the fence are in conflict.
SERVER_SETTINGS = {
    "tcp_keepalives_idle": "5s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
    "idle_in_transaction_session_timeout": "5min",
    "default_transaction_isolation": "read committed",
}
# In SQL, what the names of a leader's sessions end with. A database may contain several states,
# each in a schema of its own. The server would replace what is not ASCII, so that nobody found the
# session.
_SCHEMA = "regexp_replace(current_schema(), '[^ -~]', '_', 'g')"
_NAME = f"""
SELECT set_config('application_name', left(%s::text || {_SCHEMA}, {NAME_LENGTH}), false)
"""
_SESSIONS = f"""
FROM (
  SELECT *, substring(application_name FROM '^forewarn [a-z]+ [0-9]+ ') AS beginning
    FROM pg_stat_activity
) AS sessions
 WHERE application_name = left(beginning || {_SCHEMA}, {NAME_LENGTH})
   AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""
# A session whose COMMIT waits for a standby is left alone: to end it would make the commit visible
# although it is on one disk only.
_END = f"""
SELECT pg_terminate_backend(pid) {_SESSIONS}
   AND beginning LIKE %s AND split_part(beginning, ' ', 3)::bigint < %s
   AND wait_event IS DISTINCT FROM 'SyncRep'
"""
CHECK_INTERVAL = 0.25  # seconds between two looks of the watchdog

# Both log what goes wrong at the end of a connection that was lost, which is an exception as well,
# and so in our own log. Without a handler, Python would write it to standard error as it is.
for _name in ("psycopg", "sqlalchemy"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Session(psycopg.Connection[Any]):
    """A connection that is given up when what it does is interrupted, e.g. by Ctrl-C: psycopg would
    cancel it."""

    def cancel(self) -> None:
        with _duplicate(self) as duplicate, contextlib.suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)

    def cancel_safe(self, *, timeout: float = 0.0) -> None:
        del timeout
        self.cancel()


def connect(
    url: str,
    purpose: str,
    *,
    term: int = 0,
    autocommit: bool = True,
    sends_much: bool = False,
) -> psycopg.Connection[Any]:
    """Open a session. `purpose` is shown with it in pg_stat_activity, and so is the `term` of a
    leader."""
    defaults = {**DEFAULTS, "tcp_user_timeout": SENDING_TIMEOUT} if sends_much else DEFAULTS
    conninfo = make_conninfo(**{**defaults, **_parameters(url)})
    connection = Session.connect(conninfo, autocommit=True, application_name=f"forewarn {purpose}")
    try:
        connection.execute(
            "; ".join(f"SET {name} = '{value}'" for name, value in SERVER_SETTINGS.items())
        )
        if term:
            name_session(connection, purpose, term)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


def name_session(connection: psycopg.Connection[Any], purpose: str, term: int) -> None:
    """Let a later leader find a session of this term."""
    connection.execute(_NAME, (f"forewarn {purpose} {term} ",))


def end_sessions(
    connection: psycopg.Connection[Any], *, purpose: str = "%", before_term: int = 2**63 - 1
) -> int:
    """End the sessions of leaders: those with this purpose, of terms before this one. Returns how
    many there were."""
    return connection.execute(_END, (f"forewarn {purpose} %", before_term)).rowcount


def through_pooler(connection: psycopg.Connection[Any]) -> bool:
    """Return whether there is a connection pooler in between. It answers with a number of its own
    when a session begins."""
    return connection.info.backend_pid != backend(connection)


def shares_sessions(url: str) -> bool:
    """Return whether a connection pooler gives a session of the server to several clients, one
    transaction after the other: another one for the second transaction, or the same to the next
    client."""
    with connect(url, "look") as first, connect(url, "look") as second:
        before = backend(first)
        return before != backend(first) or before == backend(second)


def backend(connection: psycopg.Connection[Any]) -> int:
    """Return which process of the server carries statements out."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def leader_has_sessions(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a leader has sessions. Those of one that was killed end with it, unless its
    machine ended as well."""
    return connection.execute(f"SELECT 1 {_SESSIONS} LIMIT 1").fetchone() is not None


@contextlib.contextmanager
def waited_for_standby(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Raises psycopg.OperationalError if a COMMIT in the block was cancelled while it waited: it
    has happened, but a fail-over could lose it."""
    warnings: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.message_primary or "")

    connection.add_notice_handler(note)
    try:
        yield
    finally:
        connection.remove_notice_handler(note)
    if warnings:
        raise psycopg.OperationalError(warnings[0])


def _parameters(url: str) -> dict[str, Any]:
    """Return what libpq reads in a URL. What it quotes in an error may be a part of a password."""
    try:
        parameters = dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        why = re.sub(r':? "[^"]*"', "", str(error).strip())
        raise StoreUnusable(f"the URL of the state cannot be read: {why}") from None
    names = parameters.get("host") or "", parameters.get("dbname") or ""
    if any("@" in str(name)[1:] for name in names):
        raise StoreUnusable(
            "the URL of the state cannot be read: write / and @ in a password as %2F and %40"
        )
    return parameters


class Watchdog:
    """Shuts the sockets of sessions whose time is over, from a thread of its own, which also calls
    `check` again and again."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._limits: dict[int, tuple[float, socket.socket]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @contextlib.contextmanager
    def limit(self, connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
        """Give the connection up if the block takes longer."""
        duplicate = _duplicate(connection)
        key = id(duplicate)
        with self._lock:
            self._limits[key] = guard.monotonic() + seconds, duplicate
        try:
            yield
        finally:
            with self._lock:
                del self._limits[key]
            duplicate.close()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_INTERVAL):
            self._check()
            now = guard.monotonic()
            with self._lock:
                for ends, duplicate in self._limits.values():
                    if ends < now:
                        with contextlib.suppress(OSError):
                            duplicate.shutdown(socket.SHUT_RDWR)


def _duplicate(connection: psycopg.Connection[Any]) -> socket.socket:
    """Return a socket with a descriptor of its own, which stays the same whatever libpq does with
    the connection's."""
    return socket.socket(fileno=os.dup(connection.fileno()))
