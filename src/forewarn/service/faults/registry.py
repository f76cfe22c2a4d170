"""Faults: what is to go wrong on purpose, for whom, how often, and what has come of it.

In memory, gone with the process. Whoever answers, or raises an event, asks here whether a fault
meets it; of several that would, the one that was added first does, and the others do not hear
of it. One of them is `model.py`; which kinds there are is `kinds.py`, what may be
asked for `validate.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count

from forewarn.core import Group, Now, Refused
from forewarn.core.refusal import Hint, conflict, unknown
from forewarn.service.faults.kinds import KINDS, Kind
from forewarn.service.faults.model import STATES, Account, ActiveFault, Fault
from forewarn.service.faults.validate import NewFault, wrong
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.telemetry.samples import Sample, counter, gauge
from forewarn.store.port import Commit, Store
from forewarn.support.text import listing

MAX_FAULTS = 1_000  # that are listed, those that are used up too

FORBIDDEN = conflict(
    "faults are not allowed here: they are for tests; use forewarn dev, or set faults = true"
    " in a service that nobody relies on"
)


class AllMachines(set[str]):
    """A set of names that has them all."""

    def __contains__(self, name: object) -> bool:
        return True


class Faults:
    def __init__(
        self, store: Store, machine_index: MachineIndex, now: Callable[[], Now], allowed: bool
    ) -> None:
        self._machine_index = machine_index
        self._now = now
        self._numbers = count(1)
        self._all: dict[str, ActiveFault] = {}
        self._requests: tuple[ActiveFault, ...] = ()  # those that can still meet one
        self._events: tuple[ActiveFault, ...] = ()
        self._tell: list[Callable[[], None]] = []
        self._consumed = 0  # by all that there ever were
        self.allowed = allowed
        store.attach(self._on_commit)

    def add(self, wanted: NewFault, by: str) -> Account | Refused:
        if not self.allowed:
            return FORBIDDEN
        if refused := wrong(wanted, self._machine_index):
            return refused
        if len(self._all) >= MAX_FAULTS:
            return conflict(
                f"there are {MAX_FAULTS} faults, the most there can be", hint=Hint.CLEAR_FAULTS
            )
        number, now = next(self._numbers), self._now().at
        kind = Kind(wanted.kind)
        nature = KINDS[kind]
        begins = now + (wanted.starts_in or 0)
        fault = Fault(
            id=f"f{number}",
            kind=kind,
            machines=tuple(dict.fromkeys(wanted.machines)),
            groups=tuple(dict.fromkeys(wanted.groups)),
            method=nature.methods[0] if len(nature.methods) == 1 else wanted.method,
            times=wanted.times,
            skip=wanted.skip,
            begins=begins,
            ends=None if wanted.lasts is None else begins + wanted.lasts,
            probability=wanted.probability,
            seed=number if wanted.seed is None else wanted.seed,
            seconds=nature.seconds if wanted.seconds is None else wanted.seconds,
            status=wanted.status,
            body=wanted.body,
            takes_effect=(
                bool(nature.takes_effect) if wanted.takes_effect is None else wanted.takes_effect
            ),
            added_at=now,
            by=by,
        )
        standing = self._all[fault.id] = ActiveFault(fault)
        self._changed()
        return standing.account(now)

    def all(self) -> list[Account]:
        """In the order in which they were added."""
        now = self._now().at
        return [standing.account(now) for standing in self._all.values()]

    def find(self, id: str) -> Account | Refused:
        standing = self._all.get(id)
        if standing is None:
            known = f"there are {listing(list(self._all))}" if self._all else "there are none"
            return unknown(f"no fault '{id[:40]}'; {known}")
        return standing.account(self._now().at)

    def clear(self, id: str | None = None) -> list[Account] | Refused:
        """One, or all: they meet nobody any more. What they were, and what came of them."""
        if id is None:
            found = self.all()
        else:
            one = self.find(id)
            if isinstance(one, Refused):
                return one
            found = [one]
        for account in found:
            del self._all[account.fault.id]
        self._changed()
        return found

    def readings(self) -> Iterator[Sample]:
        """For whoever watches a service that should have none."""
        now = self._now().at
        states = Counter(one.state(now) for one in self._all.values())
        held: dict[tuple[str, ...], float] = {(state,): states[state] for state in STATES}
        yield gauge("forewarn_faults", "What is to go wrong on purpose", held, "state")
        says = "Requests and events that a fault has met"
        yield counter("forewarn_faults_consumed", says, {(): self._consumed})

    def known(self, id: str) -> bool:
        return id in self._all

    # For those who answer, and those who raise events.

    @property
    def meets_requests(self) -> bool:
        return bool(self._requests)

    @property
    def meets_events(self) -> bool:
        return bool(self._events)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Other machines may be met from now on."""
        self._tell.append(tell)

    def for_request(
        self, machine: str, group: str, method: str, suits: Callable[[Kind], bool]
    ) -> Fault | None:
        """What meets this request. `suits`: could a fault of this kind meet it at all?"""
        for standing in self._live(self._requests):
            fault = standing.fault
            due = fault.method in ("", method) and fault.concerns((machine,), group)
            if due and suits(fault.kind) and standing.meets():
                return self._met(standing, (machine,))
        return None

    def for_event(
        self, machines: Collection[str], group: str, suits: Callable[[Kind], bool]
    ) -> Fault | None:
        """What meets this event, which is about to be raised."""
        for standing in self._live(self._events):
            fault = standing.fault
            if fault.concerns(machines, group) and suits(fault.kind) and standing.meets():
                return self._met(standing, machines)
        return None

    def give_back(self, fault: Fault, machines: Collection[str]) -> None:
        """Nothing came of it after all; that it was met is counted for all."""
        if standing := self._all.get(fault.id):
            standing.give_back(machines)
            self._changed()

    def detours(self, also: Collection[str] = ()) -> set[str]:
        """Machines that have to be asked about; `also` those of these groups."""
        names: set[str] = set()
        groups = set(also)
        for standing in self._requests:
            if standing.fault.everybody:
                return AllMachines()
            names.update(standing.fault.machines)
            groups.update(standing.fault.groups)
        for name in groups:
            if group := self._machine_index.group(name):
                names.update(machine.name for machine in group.machines)
        return names

    def _live(self, standings: tuple[ActiveFault, ...]) -> list[ActiveFault]:
        now = self._now().at
        states = [(standing, standing.state(now)) for standing in standings]
        if any(state == "over" for _, state in states):
            self._changed()  # and nobody takes the long way for those any more
        return [standing for standing, state in states if state == "active"]

    def _met(self, standing: ActiveFault, machines: Collection[str]) -> Fault:
        standing.met(machines, self._now().at)
        self._consumed += 1
        if standing.consumed == standing.fault.times:
            self._changed()
        return standing.fault

    def _changed(self) -> None:
        now = self._now().at
        live = [one for one in self._all.values() if one.state(now) in ("active", "waiting")]
        self._requests = tuple(one for one in live if not one.fault.nature.of_events)
        self._events = tuple(one for one in live if one.fault.nature.of_events)
        self.look_again()

    def look_again(self) -> None:
        for tell in self._tell:
            tell()

    def _on_commit(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        """A group that a fault is for may have other machines now."""
        if any(name in changed for one in self._requests for name in one.fault.groups):
            self.look_again()
