"""A control node that decides: it renews its lease, and ends if it cannot do what it has it for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg

from forewarn.store.port import Deposed
from forewarn.store.postgres.database import first_line
from forewarn.store.postgres.lease import Lease, try_write
from forewarn.store.postgres.reports import NodeReports
from forewarn.store.postgres.session import Watchdog
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

RENEWALS = 4  # in the length of a lease

log = logger("forewarn")


class LeaseHolder:
    def __init__(
        self,
        lease: Lease,
        watchdog: Watchdog,
        reports: NodeReports,
        stopped: threading.Event,
        failing_for: Callable[[], float],
    ) -> None:
        """`failing_for` returns for how many seconds every write has failed."""
        self._lease = lease
        self._watchdog = watchdog
        self._reports = reports
        self._stopped = stopped
        self._failing_for = failing_for
        self._refused = LogThrottle()

    def hold(self, connection: psycopg.Connection[Any]) -> None:
        """Renew the lease until this process is stopped, and give it back then. Raises Deposed."""
        while not self._stopped.is_set():
            with self._watchdog.limit(connection, self._lease.length / 2):
                self._lease.renew(connection)
                self._reports.report(connection)
                self._check_writes(connection)
            self._stopped.wait(self._lease.length / RENEWALS)
        with self._watchdog.limit(connection, self._lease.length):
            self._lease.give_back(connection)

    def _check_writes(self, connection: psycopg.Connection[Any]) -> None:
        """Give the lease back if this process cannot write, for example because it can open no
        session, and another one may be able to. If the database lets nobody write, there is nothing
        to be gained: this node then goes on answering polls."""
        if self._failing_for() < self._lease.length:
            self._refused.reset()
            return
        try:
            try_write(connection)
        except psycopg.Error as error:
            if connection.closed:
                raise
            if self._refused.record():
                log.error(
                    "the database lets no control node write; this one keeps its lease, answers"
                    " polls, and goes on trying",
                    why=first_line(error),
                )
            return
        self._lease.give_back(connection)
        raise Deposed(_CANNOT_WRITE)


_CANNOT_WRITE = (
    "this control node could write nothing for as long as its lease lasts, although the database"
    " can be written to: it gives its lease back, so that another one can decide"
)
