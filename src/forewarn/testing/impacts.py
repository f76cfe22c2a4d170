"""Impacts on machines of a test: callbacks when an event begins to be carried out on a machine, and
when the machine is back.

A simulated machine is only an entry in a journal, and the program under test would go on as if
nothing had happened. A callback does to the program what happens to its machine. It also knows
whether the program was still busy, which is recorded in the trace for the verdict. `kit` offers
callbacks to tests; the scenario player uses them for `--impact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from forewarn.core import EventType as CoreEventType
from forewarn.core import Group
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.drivers import port
from forewarn.drivers.simulated import SimulatedDriver
from forewarn.node import Node
from forewarn.service.engine.catch_up import CatchUp
from forewarn.store.port import Commit
from forewarn.support import guard
from forewarn.testing.errors import RefusedError
from forewarn.testing.names import EventType
from forewarn.traces.exchanges import Stamp, exchange

BEGINS: Literal["begins"] = "begins"
ENDS: Literal["ends"] = "ends"
ANSWERED_WITHIN = 1.0  # real seconds for which an impact waits for the answer to an approval
MAX_REASON = 500  # characters that are kept of what a machine was busy with

NOT_SIMULATED = "impacts are only known for simulated machines; create the service without driver="
NOT_OBSERVED = "impacts are not observed with front=True; use front=False"

_in_callback: ContextVar[bool] = ContextVar("forewarn_impact", default=False)


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning or the end of an event's impact on one machine."""

    machine: str
    """The name of the machine."""
    event: str
    """The id of the event."""
    type: EventType
    """The type of the event: Freeze, Reboot, Redeploy, Preempt or Terminate."""
    phase: Literal["begins", "ends"]
    """`begins` when the event is carried out, `ends` when the machine is back. The impact of a
    Preempt or a Terminate never ends."""
    seconds: float | None = None
    """How long the machine is away, if the event says so; otherwise until the event is over."""

    def __str__(self) -> str:
        return f"the impact of {self.type} {self.event[:8]} on {self.machine} {self.phase}"


Callback: TypeAlias = Callable[[Impact], object]


def in_callback() -> bool:
    """Return whether the caller is a callback for an impact, for which everything else waits."""
    return _in_callback.get()


class _Entry(NamedTuple):
    machine: str | None  # None: every machine
    callback: Callback
    takes_away: bool


class Impacts:
    """Calls the callbacks of one service, each in a thread, one after the other.

    The event is not carried on until they have returned, and so no clock is moved meanwhile. Made
    and used in the service's loop.
    """

    def __init__(self, node: Node) -> None:
        if not isinstance(node.driver, SimulatedDriver):
            raise RefusedError(NOT_SIMULATED)
        if node.trace is None:
            raise RefusedError(NOT_OBSERVED)
        self._node = node
        self._trace = node.trace
        self._callbacks: list[_Entry] = []
        self._ongoing: dict[str, port.Impact] = {}  # by event
        self._polling: set[str] = set()  # machines that were polled for when they went away
        self._approvers: dict[str, str] = {}  # machines whose approval has started an event
        self._answered: dict[str, None] = {}  # events with an approval that has been answered
        self._on_answer = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks = guard.Tasks(lambda _, error: self.errors.append(error))
        self.away: set[str] = set()  # machines that have a callback and are away
        self.returned: dict[str, float] = {}  # machines that are back, since when in real time
        self.errors: list[BaseException] = []  # that callbacks have raised
        node.driver.listener = self
        node.trace.add_sink(self._on_line)
        node.store.on_commit(self._on_commit)

    def add(
        self, callback: Callback, machine: str | None = None, *, takes_away: bool = False
    ) -> Callable[[], None]:
        """Call this function for every impact, or for those on one machine; return how to undo.

        One that `takes_away` stops or kills every client of the machine, so that the clock does not
        wait for it until the machine is back.
        """
        if not callable(callback):
            raise TypeError(f"on_impact needs a function that takes an Impact, not {callback!r}")
        entry = _Entry(machine, callback, takes_away)
        self._callbacks.append(entry)
        return lambda: self._callbacks.remove(entry)

    async def impact_begins(self, impact: port.Impact) -> None:
        async with self._turn:
            if not self._callbacks:
                return
            await self._approval_answered(impact.event)
            self._ongoing[impact.event] = impact
            for machine in impact.machines:
                if self._entries_for(machine):
                    self._leave(machine)
                    await self._call_all(machine, impact, BEGINS)
                    self._disturb(machine)  # it may have polled until the callback had returned

    async def impact_ends(self, event: str) -> None:
        async with self._turn:
            impact = self._ongoing.pop(event, None)
            if impact is None or CoreEventType(impact.type).traits.deletes:
                return
            for machine in impact.machines:
                if machine in self.away:
                    await self._call_all(machine, impact, ENDS)
                    self._return(machine)

    def _leave(self, machine: str) -> None:
        self.away.add(machine)
        self.returned.pop(machine, None)
        if self._catch_up is not None and self._catch_up.is_polling(machine):
            self._polling.add(machine)
        self._disturb(machine)

    def _disturb(self, machine: str) -> None:
        if self._catch_up is None:
            return
        if any(entry.takes_away for entry in self._entries_for(machine)):
            self._catch_up.leave(machine)
        else:
            self._catch_up.disturb(machine)

    def _return(self, machine: str) -> None:
        self.away.discard(machine)
        self.returned[machine] = guard.monotonic()
        if self._catch_up is not None:
            self._catch_up.back(machine, expected=machine in self._polling)
        self._polling.discard(machine)

    @property
    def _catch_up(self) -> CatchUp | None:
        return self._node.catch_up

    def _entries_for(self, machine: str) -> list[_Entry]:
        return [entry for entry in self._callbacks if entry.machine in (None, machine)]

    async def _call_all(
        self, machine: str, impact: port.Impact, phase: Literal["begins", "ends"]
    ) -> None:
        value = Impact(
            machine=machine,
            event=impact.event,
            type=cast(EventType, impact.type),
            phase=phase,
            seconds=impact.seconds if impact.seconds >= 0 else None,
        )
        for entry in self._entries_for(machine):
            activity = await self._call(entry.callback, value)
            if activity is not None and phase == BEGINS:
                self._trace.write(
                    "activity",
                    self._node.writer.now().at,
                    event=impact.event,
                    machine=machine,
                    busy=bool(activity),
                    reason=activity[:MAX_REASON],
                    real=guard.monotonic(),
                )

    async def _call(self, callback: Callback, impact: Impact) -> str | None:
        """Return what the machine was busy with; an empty text if with nothing, None: unknown."""

        def call() -> object:
            _in_callback.set(True)  # in the context of this call only
            return callback(impact)

        try:
            result = await asyncio.to_thread(call)
        except AssertionError as error:
            if impact.phase == BEGINS:
                return str(error).strip() or "an assertion failed"
            self.errors.append(error)
            return None
        except Exception as error:
            self.errors.append(error)
            return None
        return result.strip() if isinstance(result, str) else None

    async def _approval_answered(self, event: str) -> None:
        """Wait until the machine whose approval has started the event has got its answer."""
        if event not in self._approvers:
            return
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                while event not in self._answered:
                    self._on_answer.clear()
                    await self._on_answer.wait()
        except TimeoutError:  # the answer is delayed by a fault, for instance
            return

    def _on_line(self, line: dict[str, Any]) -> None:
        if line["kind"] == "exchange" and line.get("method") == "POST":
            self._answered |= dict.fromkeys(exchange(line, Stamp(line["t"])).approved_ids())
            self._on_answer.set()

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for entry in commit.entries:
            names = {machine.name for machine in changed[entry.group].machines}
            for item in entry.items:
                if not isinstance(item, EventMoved):
                    continue
                event = item.event
                if item.what is Move.START and event.approved and event.approved.by in names:
                    self._approvers[event.id] = event.approved.by
                if event.status.over:
                    self._approvers.pop(event.id, None)
                    self._answered.pop(event.id, None)
                    if event.id in self._ongoing:  # an operator has ended it
                        what = f"the end of the impact of {event.type.value} {event.id}"
                        self._node.ledger.take(what)
                        self._tasks.start(self._end(event.id, what), what)

    async def _end(self, event: str, what: str) -> None:
        try:
            await self.impact_ends(event)
        finally:
            self._node.ledger.release(what)
