"""What a control node writes into the database about itself now and then, and what it learns then
about the database and the other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import psycopg

from forewarn.store.postgres import examine, nodes
from forewarn.store.postgres.lease import Lease, look_at_clock
from forewarn.support import guard


class NodeReports:
    def __init__(self, lease: Lease, seq: Callable[[], int], *, managed: bool) -> None:
        self._lease = lease
        self._seq = seq
        self._managed = managed  # the replication, by somebody else
        self._started: datetime | None = None  # as it was reported first
        self.silent = False  # a command that has the lease for a moment is no control node
        self.next_at = 0.0  # when this node is to report next
        self.lag = 0  # commits, when this was last reported
        self.warnings: Mapping[str, str] = {}  # by subject
        self.clock_problem = ""  # when the clock was last compared with the database's
        self.name_problem = ""  # when this was last reported

    def report(self, connection: psycopg.Connection[Any]) -> None:
        now = guard.monotonic()
        if self.silent or now < self.next_at:
            return
        self.next_at = now + nodes.EVERY
        self.examine(connection)
        reported = nodes.report(
            *(connection, self._lease.member, self._lease.length, self._seq(), self._started)
        )
        if reported is not None:
            self.lag, self._started, known = reported
            self.warnings = {**self.warnings, **nodes.differences(known)}
            self.name_problem = nodes.name_problem(known, self._lease.member.process)

    def examine(self, connection: psycopg.Connection[Any]) -> None:
        """Note what is wrong with the replication and the clock. Must be called before a commit,
        which may wait for a standby that is missing."""
        if not self._managed:
            problem = examine.replication_problem(connection)
            self.warnings = {**self.warnings, "replication": problem}
        self.clock_problem = look_at_clock(connection)
