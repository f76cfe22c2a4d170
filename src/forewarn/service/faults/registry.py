"""The faults of a service: add, list and clear them, and find the one that applies.

Of several faults that match, the one that was added first is met, and the others are not counted.
One fault is `model.py`, their kinds are `kinds.py`, and what may be requested is `validate.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count

from forewarn.core import Group, Refused, Time, World
from forewarn.core.refusal import Hint, conflict, unknown
from forewarn.service.faults.kinds import KINDS, FaultKind
from forewarn.service.faults.model import STATES, ActiveFault, Fault, FaultAccount
from forewarn.service.faults.validate import NewFault, fault_problem
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.telemetry.samples import Sample, counter, gauge
from forewarn.store.port import Commit, Store
from forewarn.support.suggest import instead_of

MAX_FAULTS = 1_000  # including those that are used up

FORBIDDEN = conflict(
    "faults are not allowed here: they are for tests; use forewarn dev, or set faults = true"
    " in a service that nobody relies on"
)


class AllMachines(set[str]):
    """A set that contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


class Faults:
    def __init__(
        self, store: Store, machine_index: MachineIndex, now: Callable[[], World], allowed: bool
    ) -> None:
        self._machine_index = machine_index
        self._now = now
        self._numbers = count(1)
        self._all: dict[str, ActiveFault] = {}
        self._requests: tuple[ActiveFault, ...] = ()  # those that can still meet a request
        self._events: tuple[ActiveFault, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._consumed = 0  # by all faults since the start
        self.allowed = allowed
        store.on_commit(self._on_commit)

    def add(self, wanted: NewFault, by: str) -> FaultAccount | Refused:
        if not self.allowed:
            return FORBIDDEN
        if refused := fault_problem(wanted, self._machine_index):
            return refused
        if len(self._all) >= MAX_FAULTS:
            return conflict(
                f"there are {MAX_FAULTS} faults, which is the maximum", hint=Hint.CLEAR_FAULTS
            )
        number, now = next(self._numbers), self._now().at
        kind = FaultKind(wanted.kind)
        traits = KINDS[kind]
        begins = now + (wanted.starts_in or 0)
        fault = Fault(
            id=f"f{number}",
            kind=kind,
            machines=tuple(dict.fromkeys(wanted.machines)),
            groups=tuple(dict.fromkeys(wanted.groups)),
            method=traits.methods[0] if len(traits.methods) == 1 else wanted.method,
            times=wanted.times,
            skip=wanted.skip,
            begins=begins,
            ends=None if wanted.lasts is None else begins + wanted.lasts,
            probability=wanted.probability,
            seed=number if wanted.seed is None else wanted.seed,
            seconds=traits.seconds if wanted.seconds is None else wanted.seconds,
            status=wanted.status,
            body=wanted.body,
            takes_effect=(
                bool(traits.takes_effect) if wanted.takes_effect is None else wanted.takes_effect
            ),
            added_at=now,
            by=by,
        )
        added = self._all[fault.id] = ActiveFault(fault)
        self._changed()
        return added.account(now)

    def all(self) -> list[FaultAccount]:
        """Return all faults in the order in which they were added."""
        now = self._now().at
        return [active.account(now) for active in self._all.values()]

    def find(self, id: str) -> FaultAccount | Refused:
        active = self._all.get(id)
        if active is None:
            return unknown(f"no fault '{id[:40]}'; {instead_of(id, self._all)}")
        return active.account(self._now().at)

    def clear(self, id: str | None = None) -> list[FaultAccount] | Refused:
        """Remove one fault, or all, and return what has come of them."""
        if id is None:
            cleared = self.all()
        else:
            account = self.find(id)
            if isinstance(account, Refused):
                return account
            cleared = [account]
        for account in cleared:
            del self._all[account.fault.id]
        self._changed()
        return cleared

    def readings(self) -> Iterator[Sample]:
        """Return the metrics."""
        now = self._now().at
        states = Counter(fault.state(now) for fault in self._all.values())
        held: dict[tuple[str, ...], float] = {(state,): states[state] for state in STATES}
        yield gauge("forewarn_faults", "Faults, by state", held, "state")
        help = "Requests and events that a fault has met"
        yield counter("forewarn_faults_consumed", help, {(): self._consumed})

    def known(self, id: str) -> bool:
        return id in self._all

    # For the metadata endpoint, and for the announcement of events.

    @property
    def meets_requests(self) -> bool:
        return bool(self._requests)

    @property
    def meets_events(self) -> bool:
        return bool(self._events)

    @property
    def next_end(self) -> Time | None:
        """When the next of the faults that can meet a request is over; None if none ends."""
        now = self._now().at
        ends = [active.fault.ends for active in self._requests if active.fault.ends is not None]
        return min((end for end in ends if end > now), default=None)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a function whenever other machines may be met by a fault."""
        self._listeners.append(listener)

    def for_request(
        self, machine: str, group: str, method: str, suits: Callable[[FaultKind], bool]
    ) -> Fault | None:
        """Return the fault that this request meets, if any. `suits` says whether a kind of fault
        applies to it."""
        for active in self._live(self._requests):
            fault = active.fault
            due = fault.method in ("", method) and fault.concerns((machine,), group)
            if due and suits(fault.kind) and active.meets():
                return self._met(active, (machine,))
        return None

    def for_event(
        self, machines: Collection[str], group: str, suits: Callable[[FaultKind], bool]
    ) -> Fault | None:
        """Return the fault that an event meets that is about to be raised, if any."""
        for active in self._live(self._events):
            fault = active.fault
            if fault.concerns(machines, group) and suits(fault.kind) and active.meets():
                return self._met(active, machines)
        return None

    def give_back(self, fault: Fault, machines: Collection[str]) -> None:
        """Undo that a fault was met, except in the metric."""
        if active := self._all.get(fault.id):
            active.give_back(machines)
            self._changed()

    def detours(self, also: Collection[str] = ()) -> set[str]:
        """Return the machines whose requests may meet a fault, and all of the groups `also`."""
        names: set[str] = set()
        groups = set(also)
        for active in self._requests:
            if active.fault.everybody:
                return AllMachines()
            names.update(active.fault.machines)
            groups.update(active.fault.groups)
        for name in groups:
            if group := self._machine_index.group(name):
                names.update(machine.name for machine in group.machines)
        return names

    def _live(self, faults: tuple[ActiveFault, ...]) -> list[ActiveFault]:
        now = self._now().at
        states = [(active, active.state(now)) for active in faults]
        if any(state == "over" for _, state in states):
            self._changed()  # so that their machines are no longer checked
        return [active for active, state in states if state == "active"]

    def _met(self, active: ActiveFault, machines: Collection[str]) -> Fault:
        active.met(machines, self._now().at)
        self._consumed += 1
        if active.consumed == active.fault.times:
            self._changed()
        return active.fault

    def _changed(self) -> None:
        now = self._now().at
        live = [fault for fault in self._all.values() if fault.state(now) in ("active", "waiting")]
        self._requests = tuple(fault for fault in live if not fault.fault.traits.of_events)
        self._events = tuple(fault for fault in live if fault.fault.traits.of_events)
        self.notify()

    def notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _on_commit(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        """Notify listeners if a group that a fault is for may have other machines now."""
        if any(name in changed for active in self._requests for name in active.fault.groups):
            self.notify()
