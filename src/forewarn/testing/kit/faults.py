"""`service.faults`: faults that a test injects, and how often each has been hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

import msgspec

from forewarn.core import Refused
from forewarn.service.faults.model import FaultAccount
from forewarn.service.faults.validate import NewFault
from forewarn.support.convert import convert
from forewarn.testing.durations import Duration, in_microseconds
from forewarn.testing.errors import RefusedError, refusal
from forewarn.testing.kit.machines import Group, Machine
from forewarn.testing.names import FaultKind, FaultMethod
from forewarn.testing.session import Session


class FaultOptions(TypedDict, total=False):
    """Options of a fault. By default it applies to every machine, at once, until it is cleared."""

    machine: str | Machine | None
    """Only this machine."""
    machines: Sequence[str | Machine]
    """Only these machines."""
    group: str | Group | None
    """Only the machines of this group."""
    groups: Sequence[str | Group]
    """Only the machines of these groups."""
    method: FaultMethod | None
    """Only requests of this method."""
    times: int | None
    """Only so many requests or events."""
    skip: int
    """How many requests or events are let through first."""
    starts_in: Duration | None
    """The time from now after which it begins to apply."""
    lasts: Duration | None
    """How long it applies."""
    probability: float
    """The probability with which it applies to a request or event; 1 by default."""
    seed: int | None
    """The seed of the probability; by default the number of the fault, so that a run repeats."""
    seconds: float | None
    """The delay of `slow` and `stalled`, the time until `vanish`, the notice of `short-notice`."""
    status: int | None
    """The status of `error`, from 500 to 599."""
    body: str | None
    """The body of `error` and `plain`."""
    takes_effect: bool | None
    """Whether an approval takes effect although its answer goes wrong."""


class Fault:
    """A fault that was added.

    Its counters are read when they are used; once it has been cleared, they keep their last values.
    """

    id: str
    """Its id, such as `f1`."""

    kind: FaultKind
    """The kind of fault, which determines what it does."""

    def __init__(self, faults: Faults, account: FaultAccount) -> None:
        self._faults = faults
        self._last = account
        self.id = account.fault.id
        self.kind = account.fault.kind.value

    @property
    def matches(self) -> int:
        """The number of requests or events to which it could have been applied."""
        return self._account.matched

    @property
    def consumed(self) -> int:
        """The number of requests or events to which it was applied."""
        return self._account.consumed

    @property
    def left(self) -> int | None:
        """How often it will still be applied; None if that is not limited."""
        return self._account.left

    @property
    def by_machine(self) -> dict[str, int]:
        """How often it was applied to each machine."""
        return self._account.by_machine

    @property
    def status(self) -> str:
        """`waiting` until it begins to apply, `active`, `used up` or `over`."""
        return self._account.state

    def clear(self) -> None:
        """Remove the fault. Clearing it again does nothing."""
        self._faults._remove(self)

    @property
    def _account(self) -> FaultAccount:
        return self._remember(self._faults._find(self.id))

    def _remember(self, account: FaultAccount | None) -> FaultAccount:
        self._last = account or self._last
        return self._last

    def __repr__(self) -> str:
        return f"<fault {self.id} {self.kind}: {self._account.consumption}, {self.status}>"


class Faults:
    """The faults of a service in the order in which they were added, as `service.faults`."""

    def __init__(self, session: Any) -> None:  # Any: what it is, is not for users
        self._session: Session = session
        self._handles: dict[str, Fault] = {}

    def add(self, kind: FaultKind, **options: Unpack[FaultOptions]) -> Fault:
        """Add a fault: `service.faults.add("gone", machine="web_0", times=3)`.

        Args:
            kind: What the fault does.
            options: See `FaultOptions`.

        Raises:
            RefusedError: An option does not fit the kind, or has an invalid value.
        """
        new = _new_fault(kind, **options)
        account = self._session.call(self._session.node.faults.add, new, "test")
        if isinstance(account, Refused):
            raise RefusedError(refusal(account))
        fault = self._handles[account.fault.id] = Fault(self, account)
        return fault

    @contextmanager
    def during(self, kind: FaultKind, **options: Unpack[FaultOptions]) -> Iterator[Fault]:
        """Add a fault for the duration of a block.

        Args:
            kind: What the fault does.
            options: See `FaultOptions`.

        Raises:
            RefusedError: An option does not fit the kind, or has an invalid value.
        """
        fault = self.add(kind, **options)
        try:
            yield fault
        finally:
            fault.clear()

    def list(self) -> list[Fault]:
        """Return all faults that have not been cleared, including those added by other means."""
        accounts = self._session.call(self._session.node.faults.all)
        return [self._handle(account) for account in accounts]

    def clear(self) -> None:
        """Remove all faults."""
        for fault in self.list():
            fault.clear()

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def _find(self, id: str) -> FaultAccount | None:
        account = self._session.call(self._session.node.faults.find, id)
        return None if isinstance(account, Refused) else account

    def _remove(self, fault: Fault) -> None:
        cleared = self._session.call(self._session.node.faults.clear, fault.id)
        fault._remember(None if isinstance(cleared, Refused) else cleared[0])

    def _handle(self, account: FaultAccount) -> Fault:
        return self._handles.setdefault(account.fault.id, Fault(self, account))


def _new_fault(
    kind: FaultKind,
    *,
    machine: str | Machine | None = None,
    machines: Sequence[str | Machine] = (),
    group: str | Group | None = None,
    groups: Sequence[str | Group] = (),
    method: FaultMethod | None = None,
    starts_in: Duration | None = None,
    lasts: Duration | None = None,
    **others: Any,
) -> NewFault:
    """Convert the options, refusing what the control API refuses."""
    if unknown := others.keys() - FaultOptions.__annotations__.keys():
        known = ", ".join(FaultOptions.__annotations__)
        raise TypeError(f"a fault has no option '{min(unknown)}'; expected one of {known}")
    try:
        return convert(
            {
                "kind": kind,
                "machines": _names(machine, machines),
                "groups": _names(group, groups),
                "method": (method or "").upper(),
                "starts_in": None if starts_in is None else in_microseconds(starts_in),
                "lasts": None if lasts is None else in_microseconds(lasts),
                **others,
            },
            NewFault,
        )
    except (msgspec.ValidationError, RefusedError) as error:
        raise RefusedError(f"invalid fault: {error}") from error


def _names(single: Any, several: Any) -> tuple[str, ...]:
    """Return the names of machines or groups, each given as a name or as a handle."""
    more = (several,) if isinstance(several, str) else several
    handles = (*(() if single is None else (single,)), *more)
    return tuple(getattr(handle, "name", handle) for handle in handles)
