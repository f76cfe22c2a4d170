"""Which control node decides, for the rest of this process: a thread of its own follows, claims the
lease when it is wanted and over, and renews it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import psycopg

from forewarn.store.port import (
    CannotFollow,
    ControlNode,
    Deposed,
    Leader,
    Leadership,
    OutcomeUnknown,
    StoreFailed,
)
from forewarn.store.postgres import mirror
from forewarn.store.postgres.database import first_line
from forewarn.store.postgres.follower import Follower, Replica
from forewarn.store.postgres.leader import LeaseHolder
from forewarn.store.postgres.lease import ClockApart, Lease
from forewarn.store.postgres.reports import NodeReports
from forewarn.store.postgres.session import Watchdog, connect
from forewarn.support import guard
from forewarn.support.logs import logger

RETRY = 0.2  # seconds until the next attempt to reach the database

log = logger("forewarn")


class SharedStore(Replica, Protocol):
    """The store of this node, which also writes if this node decides."""

    def begin_term(self) -> None:
        """Decide from now on: what was read is the state."""

    def failing_for(self) -> float:
        """Return for how many seconds every write has failed."""

    def end(self, why: OutcomeUnknown) -> None:
        """Write nothing any more, and have the process end."""

    async def read_nodes(self) -> Sequence[ControlNode]: ...

    async def forget_node(self, name: str) -> None:
        """Remove the rows of this name whose node is away."""


class PostgresLeadership(Leadership):
    def __init__(
        self, store: SharedStore, lease: Lease, watchdog: Watchdog, *, managed: bool
    ) -> None:
        self._store = store
        self._lease = lease
        self._watchdog = watchdog
        self._stopped = threading.Event()
        self.reports = NodeReports(lease, lambda: store.seq, managed=managed)
        self._follower = Follower(
            *(store, lease, watchdog, self.reports, self._stopped),
            refuse=lambda why: self._call(self._set_refused, why),
        )
        self._holder = LeaseHolder(
            *(lease, watchdog, self.reports, self._stopped), failing_for=store.failing_for
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.taken = False  # the lease, and what was read is the state
        self.held = lease.held  # without a call in between

    def follow(self) -> None:
        if self._thread is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    async def take(self) -> None:
        await self._take(at_once=False)

    async def take_at_once(self) -> None:
        self.reports.silent = True
        await self._take(at_once=True)

    async def _take(self, *, at_once: bool) -> None:
        self.follow()
        assert self._waiting is not None
        self._follower.want(at_once=at_once)
        await asyncio.shield(self._waiting)

    @property
    def until(self) -> float:
        return self._lease.until

    def watch(self, listener: Callable[[float], None]) -> None:
        self._lease.watch(listener)

    @property
    def term(self) -> int:
        return self._lease.term

    def give_up(self, why: str) -> None:
        self._end(Deposed(why))

    def leader(self) -> Leader | None:
        return self._follower.leader

    def problem(self) -> str:
        return self._follower.problem

    def warnings(self) -> Mapping[str, str]:
        return self.reports.warnings

    def lag(self) -> tuple[int, float]:
        if self.taken:
            return 0, 0.0
        return self.reports.lag, guard.monotonic() - self._follower.read_at

    async def nodes(self) -> Sequence[ControlNode]:
        return await self._store.read_nodes()

    async def forget(self, name: str) -> None:
        await self._store.forget_node(name)

    def pause(self, seconds: float) -> None:
        """Wait, unless the store is closed."""
        self._stopped.wait(seconds)

    async def stop(self) -> None:
        """Give the lease back, if there is one, and end following."""
        self._stopped.set()
        self._follower.wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._follower.close()

    def _set_taken(self) -> None:
        assert self._waiting is not None
        if not self.taken:
            self._store.begin_term()
            self.taken = True
        if not self._waiting.done():
            self._waiting.set_result(None)

    def _set_refused(self, why: StoreFailed) -> None:
        assert self._waiting is not None
        if not self._waiting.done():
            self._waiting.set_exception(why)

    # In the thread of the lease.

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with connect(self._store.url, "lease", term=self._lease.term) as connection:
                    self._follower.problem = ""
                    self._follower.follow(connection)
                    if self._follower.claimed:
                        self._call(self._set_taken)
                    self._holder.hold(connection)
            except ClockApart as error:
                self._follower.report_problem(str(error))
            except mirror.WentBack:
                self._mark_went_back()
                return
            except Deposed as deposed:
                self._end(deposed)
                return
            except mirror.TooFarBehind:
                self._end(CannotFollow(_BEHIND))
                return
            except (psycopg.Error, OSError) as error:
                self._report_unreachable(error)
            except Exception as error:  # such as a commit of a later version, which cannot be read
                log.error("this control node cannot follow", exc_info=error)
                self._end(CannotFollow(f"it cannot follow: {error}"))
                return
            self._stopped.wait(RETRY)

    def _report_unreachable(self, error: Exception) -> None:
        why = f"{self._store.name}: {first_line(error)}"
        self._follower.report_problem("the database cannot be reached", why)

    def _mark_went_back(self) -> None:
        """Write down for all nodes what this one knows, and end."""
        while not self._stopped.is_set():
            try:
                with connect(self._store.url, "lease") as connection:
                    mirror.mark_went_back(connection, self._store.position.seq)
                    self._end(CannotFollow(mirror.went_back(connection)))
                return
            except (psycopg.Error, OSError) as error:
                self._report_unreachable(error)
                self._stopped.wait(RETRY)

    def _call(self, function: Any, *arguments: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    # In the thread of the watchdog.

    def check_lease(self) -> None:
        """End this process when its lease has run out, whatever its threads are waiting for."""
        if self._lease.term and not self._lease.held():
            self._end(Deposed(_RUN_OUT))

    def _end(self, why: OutcomeUnknown) -> None:
        self._store.end(why)


_BEHIND = "this control node was away for so long that commits it has not read were removed"
_RUN_OUT = "the lease of this control node has run out, and could not be renewed"
