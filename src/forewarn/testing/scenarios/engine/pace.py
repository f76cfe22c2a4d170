"""How time passes while a scenario is played: on a virtual clock, or in real time.

A virtual clock is moved from change to change, and waits for clients in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from forewarn.core.time import SECOND, Time
from forewarn.service.engine.catch_up import Patience
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.service.faults.registry import Faults
from forewarn.support import guard
from forewarn.testing.scenarios.engine.event_tracker import EventTracker
from forewarn.testing.session import Session

CHECK_EVERY = 0.2  # real seconds between two checks of what sends no notification
MAX_CALLS = 20  # of the client at one stop, while it still changes something


class Pace(Protocol):
    waits: bool  # whether time stands still while clients are waited for

    def settle(self) -> None:
        """Wait until the clients have seen the present state."""
        ...

    def go_on(self, times: Sequence[Time]) -> bool:
        """Proceed to the first of these times, or to the next event before it.

        Return False if nothing will ever happen.
        """
        ...

    def finish(self) -> None:
        """Let clients see the final state."""
        ...


class VirtualPace:
    """Moves a virtual clock, and lets clients react at every stop.

    `client` is called at every stop. Without one, the clock waits for clients that poll, as long as
    `patience` says, but not for the machines in `ended_on`, whose program has ended.
    """

    def __init__(
        self,
        session: Session,
        tracker: EventTracker,
        client: Callable[[], object] | None,
        patience: Patience,
        ended_on: Callable[[], Collection[str]],
    ) -> None:
        self.waits = True
        self._session = session
        self._tracker = tracker
        self._client = client
        self._patience = patience
        self._ended_on = ended_on
        self._faults = 0  # their number at the last stop

    def settle(self) -> None:
        self._step(self._session.node.writer.now().at)
        if self._client is not None:
            self._call(self._client)
            return
        faults = self._session.node.faults
        if (count := self._session.call(lambda: len(faults.all()))) != self._faults:
            self._faults = count
            self._wait_for_faults(faults)

    def go_on(self, times: Sequence[Time]) -> bool:
        due = self._session.run(self._virtual_time.next_due())
        to = min([*times, *([due] if due is not None else [])], default=None)
        if to is None:
            return False
        if self._client is not None:  # which is nobody that polls by itself
            to = self._session.call(self._virtual_time.next_moment, to, lambda _: True) or to
        self._step(to)
        return True

    def finish(self) -> None:
        self.settle()

    @property
    def _virtual_time(self) -> VirtualTime:
        virtual_time = self._session.node.virtual_time
        assert virtual_time is not None
        return virtual_time

    def _step(self, to: Time) -> None:
        virtual_time = self._virtual_time
        patience = self._patience if self._client is None else None
        stepping = self._session.submit(virtual_time.step(to, patience))
        try:
            while not stepping.done():
                for machine in self._ended_on():  # each time: its last request may come late
                    self._session.call(virtual_time.catch_up.ended, machine)
                with contextlib.suppress(TimeoutError):
                    stepping.result(CHECK_EVERY)
            stepping.result()
        finally:
            stepping.cancel()

    def _call(self, client: Callable[[], object]) -> None:
        for _ in range(MAX_CALLS):
            before = self._tracker.change_count
            client()
            self._session.settle()
            machines = set(self._tracker.last_request)
            pending = self._session.call(_fault_pending, self._session.node.faults, machines)
            if self._tracker.change_count == before and not pending:
                return

    def _wait_for_faults(self, faults: Faults) -> None:
        """Wait until polling clients have got the active faults, so that none accumulate."""
        seconds = self._patience.polls
        end = guard.monotonic() + seconds
        while True:
            count = self._tracker.line_count
            machines = self._tracker.active_machines(seconds).difference(self._ended_on())
            if not self._session.call(_fault_pending, faults, machines):
                self._step(self._session.node.writer.now().at)
                return
            with self._tracker.changed:
                remaining = end - guard.monotonic()
                if remaining <= 0:
                    return
                if self._tracker.line_count == count:
                    self._tracker.changed.wait(remaining)


def _fault_pending(faults: Faults, machines: set[str]) -> bool:
    """Return whether the next poll of one of these machines is certain to get a fault.

    Runs in the service's loop.
    """
    return any(
        account.state == "active"
        and account.left is not None
        and not account.fault.traits.of_events
        and account.fault.method != "POST"
        and (account.fault.everybody or machines.intersection(account.fault.machines))
        for account in faults.all()
    )


class RealPace:
    """Real time. `client` is called in every round. Without one, clients that poll are waited for
    at the end, for `timeout` seconds, but not on the machines in `ended_on`."""

    def __init__(
        self,
        session: Session,
        tracker: EventTracker,
        client: Callable[[], object] | None,
        timeout: float,
        ended_on: Callable[[], Collection[str]],
    ) -> None:
        self.waits = False
        self._timeout = timeout
        self._ended_on = ended_on
        self._session = session
        self._tracker = tracker
        self._client = client
        self._count = 0

    def settle(self) -> None:
        if self._client is not None:
            self._client()
        self._count = self._tracker.line_count

    def go_on(self, times: Sequence[Time]) -> bool:
        now = self._session.node.writer.now().at
        remaining = min([CHECK_EVERY, *((at - now) / SECOND for at in times)])
        with self._tracker.changed:
            if self._tracker.line_count == self._count and remaining > 0:
                self._tracker.changed.wait(remaining)
        return True

    def finish(self) -> None:
        """Wait until the clients have seen the final state."""
        if self._client is not None:
            self._client()
            return
        if (catch_up := self._session.node.catch_up) is not None:
            for machine in self._ended_on():
                self._session.call(catch_up.ended, machine)
        self._session.let_clients_catch_up(self._timeout)
