"""How time passes while a scenario is played: a virtual clock moved from change to change, waiting
for clients, or real time. What happens meanwhile is not known here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from forewarn.core.time import SECOND, Time
from forewarn.service.faults.registry import Faults
from forewarn.support import guard
from forewarn.testing.scenarios.engine.event_tracker import EventTracker
from forewarn.testing.session import Session

LAST_POLLS_WITHIN = 3.0  # real seconds at the end of a scenario in real time
CHECK_EVERY = 0.2  # real seconds between two checks of what sends no notification
MAX_CALLS = 20  # of the client at one stop, while it still changes something


class Pace(Protocol):
    def settle(self) -> None:
        """Wait until the clients have seen the present state."""
        ...

    def go_on(self, times: Sequence[Time]) -> bool:
        """Proceed to the first of these times, or to anything that happens before. Return False if
        nothing ever will."""
        ...

    def finish(self) -> None:
        """Let clients see the final state."""
        ...


class VirtualPace:
    """A virtual clock. `client` is called at every stop; without one, the clock waits for clients
    that poll: at most `patience` seconds, and `react` more while there is something to approve.
    It does not wait for the machines in `ended_on`, whose program has ended."""

    def __init__(
        self,
        session: Session,
        tracker: EventTracker,
        client: Callable[[], object] | None,
        react: float,
        patience: float,
        ended_on: Callable[[], Collection[str]],
    ) -> None:
        self._session = session
        self._tracker = tracker
        self._client = client
        self._react = react
        self._patience = patience
        self._ended_on = ended_on
        self._forgotten: set[str] = set()
        self._reacted = -1
        self._faults = 0  # that there were the last time

    def settle(self) -> None:
        self._step(self._session.node.writer.now().at)
        if self._client is not None:
            self._call(self._client)
            return
        faults = self._session.node.faults
        if (known := self._session.call(lambda: len(faults.all()))) != self._faults:
            self._faults = known
            self._wait_for_faults(faults)
        if self._react > 0:
            self._wait_for_reactions()

    def go_on(self, times: Sequence[Time]) -> bool:
        due = self._session.call(self._session.node.scheduler.next_due)
        to = min([*times, *([due] if due is not None else [])], default=None)
        if to is not None:
            self._step(to)
        return to is not None

    def finish(self) -> None:
        self.settle()

    def _step(self, to: Time) -> None:
        virtual_time = self._session.node.virtual_time
        assert virtual_time is not None
        stepping = self._session.submit(virtual_time.step(to, self._client is None, self._patience))
        try:
            while not stepping.done():
                for machine in set(self._ended_on()) - self._forgotten:
                    self._forgotten.add(machine)
                    self._session.call(virtual_time.catch_up.forget, machine)
                with contextlib.suppress(TimeoutError):
                    stepping.result(CHECK_EVERY)
            stepping.result()
        finally:
            stepping.cancel()

    def _call(self, client: Callable[[], object]) -> None:
        for _ in range(MAX_CALLS):
            before = self._tracker.changes
            client()
            self._session.settle()
            machines = set(self._tracker.last)
            pending = self._session.call(_fault_pending, self._session.node.faults, machines)
            if self._tracker.changes == before and not pending:
                return

    def _wait_for_faults(self, faults: Faults) -> None:
        """Wait until polling clients have met the present faults, so that they do not pile up."""
        end = guard.monotonic() + self._patience
        while True:
            count = self._tracker.count
            machines = self._tracker.active_machines(self._patience).difference(self._ended_on())
            if not self._session.call(_fault_pending, faults, machines):
                self._step(self._session.node.writer.now().at)
                return
            with self._tracker.changed:
                left = end - guard.monotonic()
                if left <= 0:
                    return
                if self._tracker.count == count:
                    self._tracker.changed.wait(left)

    def _wait_for_reactions(self) -> None:
        """Give clients time after a change, while there is something to approve."""
        end = guard.monotonic() + self._react
        with self._tracker.changed:
            if self._tracker.changes == self._reacted:
                return
            while self._unapproved() and (left := end - guard.monotonic()) > 0:
                self._tracker.changed.wait(left)
            self._reacted = self._tracker.changes

    def _unapproved(self) -> bool:
        return any(
            event.visible is not None and event.started is None and not event.approved
            for event in self._tracker.active()
        )


def _fault_pending(faults: Faults, machines: set[str]) -> bool:
    """Return whether the next poll of one of these machines is sure to meet a fault. Runs in the
    service's loop."""
    return any(
        account.state == "active"
        and account.left is not None
        and not account.fault.traits.of_events
        and account.fault.method != "POST"
        and (account.fault.everybody or machines.intersection(account.fault.machines))
        for account in faults.all()
    )


class RealPace:
    """Real time. `client` is called at every turn."""

    def __init__(
        self, session: Session, tracker: EventTracker, client: Callable[[], object] | None
    ) -> None:
        self._session = session
        self._tracker = tracker
        self._client = client
        self._count = 0

    def settle(self) -> None:
        if self._client is not None:
            self._client()
        self._count = self._tracker.count

    def go_on(self, times: Sequence[Time]) -> bool:
        now = self._session.node.writer.now().at
        left = min([CHECK_EVERY, *((at - now) / SECOND for at in times)])
        with self._tracker.changed:
            if self._tracker.count == self._count and left > 0:
                self._tracker.changed.wait(left)
        return True

    def finish(self) -> None:
        """Wait for one more poll of every existing machine that has polled before."""
        if self._client is not None:
            self._client()
            return
        machine_index = self._session.node.machine_index
        places = self._session.call(lambda: [machine_index.machine(m) for m in self._tracker.polls])
        alive = [place[1].name for place in places if place is not None and place[1].alive]
        end = guard.monotonic() + LAST_POLLS_WITHIN
        with self._tracker.changed:
            before = dict(self._tracker.polls)
            while (left := end - guard.monotonic()) > 0:
                if all(self._tracker.polls[m] > before[m] for m in alive):
                    return
                self._tracker.changed.wait(left)
