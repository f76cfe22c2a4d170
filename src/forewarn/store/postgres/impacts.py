"""What the simulated driver has done, in the table `impacts`: all control nodes see the same
simulated machines.

It is no part of the state. The driver has a connection of its own, on which nothing proves a term:
what a deposed leader does late is refused by the fence number of the call alone, as a real target
would refuse it.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg

from forewarn.store.postgres.session import Watchdog, connect

TABLE = """
CREATE TABLE impacts (
  event text PRIMARY KEY,
  fence bigint NOT NULL,
  impact text,
  finished boolean NOT NULL DEFAULT false
);
CREATE INDEX impacts_finished ON impacts (fence) WHERE finished;
"""
LIMIT = 6.0  # seconds after which a call is given up
KEPT_COMMITS = 100_000  # for which the impact of an event that is over is kept

_TOUCH = """
INSERT INTO impacts (event, fence) VALUES (%s, %s)
ON CONFLICT (event) DO UPDATE SET fence = excluded.fence WHERE impacts.fence <= excluded.fence
RETURNING impact IS NOT NULL
"""
_FENCE = "SELECT fence FROM impacts WHERE event = %s"
_STORE = "UPDATE impacts SET impact = %s WHERE event = %s"
_FINISH = "UPDATE impacts SET finished = true WHERE event = %s"
_PRUNE = "DELETE FROM impacts WHERE finished AND fence < %s"


class Impacts:
    """Blocks, and may be called in any thread. Raises psycopg.Error."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._watchdog = Watchdog(lambda: None)
        self._watchdog.start()

    def touch(self, event: str, fence: int, impact: str | None = None) -> tuple[int, bool]:
        """Return the highest fence number with which an event was touched, this one included, and
        whether it has an impact. Without one, it has this one from now on. If the number is higher
        than this one, nothing was changed."""
        with self._lock:
            connection = self._connected()
            with self._watchdog.limit(connection, LIMIT), connection.transaction():
                row = connection.execute(_TOUCH, (event, fence)).fetchone()
                if row is None:
                    highest = connection.execute(_FENCE, (event,)).fetchone()
                    return highest[0] if highest else fence + 1, False
                if not row[0] and impact is not None:
                    connection.execute(_STORE, (impact, event))
                return fence, row[0]

    def finish(self, event: str, fence: int) -> None:
        """Note that the impact of an event need not be kept for much longer."""
        with self._lock:
            connection = self._connected()
            with self._watchdog.limit(connection, LIMIT), connection.transaction():
                connection.execute(_FINISH, (event,))
                connection.execute(_PRUNE, (fence - KEPT_COMMITS,))

    def close(self) -> None:
        with self._lock:  # a call that is under way would connect again
            self._closed = True
            if self._connection is not None:
                self._connection.close()
        self._watchdog.stop()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._closed:
            raise psycopg.OperationalError("the simulated driver is closed")
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, "impacts")
        return self._connection
