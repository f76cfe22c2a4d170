"""How time passes while a scenario is played: wound from change to change, waiting for whoever
listens, or by itself. What happens in it is not known here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from forewarn.core.time import SECOND, Time
from forewarn.service.faults.registry import Faults
from forewarn.support import guard
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios.engine.event_tracker import EventTracker

LAST_LOOK = 3.0  # real seconds at the end of a scenario in real time, for clients to see it
LOOK_EVERY = 0.2  # real seconds between two looks at what cannot be heard
MAX_TURNS = 20  # of a client that is called at a stop, while it still changes something


class Pace(Protocol):
    def settle(self) -> None:
        """Until those who are waited for have seen how things are."""
        ...

    def go_on(self, times: Sequence[Time]) -> bool:
        """On to the first of these, or to whatever happens before. False: nothing ever will."""
        ...

    def farewell(self) -> None:
        """What has come of it can still be seen."""
        ...


class Wound:
    """A virtual clock. `client` is called at every stop; without one, whoever asks is waited for:
    at most `patience` seconds, and `react` more while there is something to approve. Nobody waits
    for the machines that were `left` by their program."""

    def __init__(
        self,
        service: Service,
        hearing: EventTracker,
        client: Callable[[], object] | None,
        react: float,
        patience: float,
        left: Callable[[], Collection[str]],
    ) -> None:
        self._service = service
        self._hearing = hearing
        self._client = client
        self._react = react
        self._patience = patience
        self._left = left
        self._forgotten: set[str] = set()
        self._reacted = -1
        self._faults = 0  # that have been there to be met

    def settle(self) -> None:
        self._step(self._service.node.writer.now().at)
        if self._client is not None:
            self._call(self._client)
            return
        faults = self._service.node.faults
        if (known := self._service.call(lambda: len(faults.all()))) != self._faults:
            self._faults = known
            self._let_meet(faults)
        if self._react > 0:
            self._let_react()

    def go_on(self, times: Sequence[Time]) -> bool:
        due = self._service.call(self._service.node.scheduler.next_due)
        to = min([*times, *([due] if due is not None else [])], default=None)
        if to is not None:
            self._step(to)
        return to is not None

    def farewell(self) -> None:
        self.settle()

    def _step(self, to: Time) -> None:
        virtual_time = self._service.node.virtual_time
        assert virtual_time is not None
        stepping = self._service.submit(virtual_time.step(to, self._client is None, self._patience))
        try:
            while not stepping.done():
                for machine in set(self._left()) - self._forgotten:
                    self._forgotten.add(machine)
                    self._service.call(virtual_time.catch_up.forget, machine)
                with contextlib.suppress(TimeoutError):
                    stepping.result(LOOK_EVERY)
            stepping.result()
        finally:
            stepping.cancel()

    def _call(self, client: Callable[[], object]) -> None:
        for _ in range(MAX_TURNS):
            before = self._hearing.stages
            client()
            self._service.settle()
            asking = set(self._hearing.last)
            met = not self._service.call(_about_to_be_met, self._service.node.faults, asking)
            if self._hearing.stages == before and met:
                return

    def _let_meet(self, faults: Faults) -> None:
        """Those who ask meet the faults that are there; else these would come all at once."""
        end = guard.monotonic() + self._patience
        while True:
            heard = self._hearing.heard
            asking = self._hearing.asking(self._patience).difference(self._left())
            if not self._service.call(_about_to_be_met, faults, asking):
                self._step(self._service.node.writer.now().at)
                return
            with self._hearing.changed:
                left = end - guard.monotonic()
                if left <= 0:
                    return
                if self._hearing.heard == heard:
                    self._hearing.changed.wait(left)

    def _let_react(self) -> None:
        """Time to think, after a change and while there is something to approve."""
        end = guard.monotonic() + self._react
        with self._hearing.changed:
            if self._hearing.stages == self._reacted:
                return
            while self._open_questions() and (left := end - guard.monotonic()) > 0:
                self._hearing.changed.wait(left)
            self._reacted = self._hearing.stages

    def _open_questions(self) -> bool:
        return any(
            told.visible is not None and told.started is None and not told.approved
            for told in self._hearing.active()
        )


def _about_to_be_met(faults: Faults, asking: set[str]) -> bool:
    """Is there a fault that somebody who asks is bound to meet? In the service's loop."""
    return any(
        account.state == "active"
        and account.left is not None
        and not account.fault.nature.of_events
        and account.fault.method != "POST"
        and (account.fault.everybody or asking.intersection(account.fault.machines))
        for account in faults.all()
    )


class Passing:
    """Real time."""

    def __init__(
        self, service: Service, hearing: EventTracker, client: Callable[[], object] | None
    ) -> None:
        self._service = service
        self._hearing = hearing
        self._client = client
        self._heard = 0

    def settle(self) -> None:
        if self._client is not None:
            self._client()
        self._heard = self._hearing.heard

    def go_on(self, times: Sequence[Time]) -> bool:
        now = self._service.node.writer.now().at
        left = min([LOOK_EVERY, *((at - now) / SECOND for at in times)])
        with self._hearing.changed:
            if self._hearing.heard == self._heard and left > 0:
                self._hearing.changed.wait(left)
        return True

    def farewell(self) -> None:
        """Once more by all who are there and have asked before."""
        if self._client is not None:
            self._client()
            return
        machine_index = self._service.node.machine_index
        found = self._service.call(lambda: [machine_index.machine(m) for m in self._hearing.asked])
        there = [one[1].name for one in found if one is not None and one[1].alive]
        end = guard.monotonic() + LAST_LOOK
        with self._hearing.changed:
            before = dict(self._hearing.asked)
            while (left := end - guard.monotonic()) > 0:
                if all(self._hearing.asked[m] > before[m] for m in there):
                    return
                self._hearing.changed.wait(left)
