"""`service.faults`: faults that a test injects, and how often each has been hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from forewarn.core import Refused
from forewarn.service.faults.model import FaultAccount
from forewarn.service.faults.validate import NewFault
from forewarn.testing.durations import Duration, in_microseconds
from forewarn.testing.errors import RefusedError, refusal
from forewarn.testing.kit.machines import Group, Machine
from forewarn.testing.names import FaultKind, FaultMethod
from forewarn.testing.session import Session


class Fault:
    """A fault that was added.

    Its counters are read when used; once it has been cleared, they keep their last values.
    """

    def __init__(self, faults: Faults, account: FaultAccount) -> None:
        self._faults = faults
        self._last = account
        self.id = account.fault.id
        self.kind = account.fault.kind.value

    @property
    def _account(self) -> FaultAccount:
        return self._remember(self._faults._find(self.id))

    def _remember(self, account: FaultAccount | None) -> FaultAccount:
        self._last = account or self._last
        return self._last

    @property
    def matches(self) -> int:
        """Requests or events to which it could have applied."""
        return self._account.matched

    @property
    def consumed(self) -> int:
        """Requests or events to which it was applied."""
        return self._account.consumed

    @property
    def left(self) -> int | None:
        """How often it will still apply; None if until it is cleared."""
        return self._account.left

    @property
    def by_machine(self) -> dict[str, int]:
        return self._account.by_machine

    @property
    def status(self) -> str:
        """`waiting`, `active`, `used up` or `over`."""
        return self._account.state

    def clear(self) -> None:
        """Remove it. Clearing it again does nothing."""
        self._faults._remove(self)

    def __repr__(self) -> str:
        return f"<fault {self.id} {self.kind}: {self._account.consumption}, {self.status}>"


class Faults:
    """The faults of a service, in the order in which they were added."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handles: dict[str, Fault] = {}

    def add(
        self,
        kind: FaultKind,
        *,
        machine: str | Machine | None = None,
        machines: Sequence[str | Machine] = (),
        group: str | Group | None = None,
        groups: Sequence[str | Group] = (),
        method: FaultMethod | None = None,
        times: int | None = None,
        skip: int = 0,
        starts_in: Duration | None = None,
        lasts: Duration | None = None,
        probability: float = 1.0,
        seed: int | None = None,
        seconds: float | None = None,
        status: int | None = None,
        body: str | None = None,
        takes_effect: bool | None = None,
    ) -> Fault:
        """Add a fault, by default for every machine and active at once. See "Faults" in the
        documentation."""
        new = _new_fault(
            kind=kind,
            machines=_names(machine, machines),
            groups=_names(group, groups),
            method=(method or "").upper(),
            times=times,
            skip=skip,
            starts_in=starts_in,
            lasts=lasts,
            probability=probability,
            seed=seed,
            seconds=seconds,
            status=status,
            body=body,
            takes_effect=takes_effect,
        )

        account = self._session.call(self._session.node.faults.add, new, "test")
        if isinstance(account, Refused):
            raise RefusedError(refusal(account))
        fault = self._handles[account.fault.id] = Fault(self, account)
        return fault

    @contextmanager
    def during(self, kind: FaultKind, **options: Any) -> Iterator[Fault]:
        """Add a fault for the duration of the block; takes what `add` takes."""
        fault = self.add(kind, **options)
        try:
            yield fault
        finally:
            fault.clear()

    def list(self) -> list[Fault]:
        """Return all faults that are not cleared, also those that others have added."""

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


def _new_fault(**options: Any) -> NewFault:
    """Convert the options, refusing what the control API refuses."""
    try:
        for key in ("starts_in", "lasts"):
            options[key] = None if options[key] is None else in_microseconds(options[key])
        return msgspec.convert(options, NewFault)
    except (msgspec.ValidationError, RefusedError) as error:
        raise RefusedError(f"invalid fault: {error}") from error


def _names(single: Any, several: Any) -> tuple[str, ...]:
    """Return the names of machines or groups, each given as a name or as a handle."""
    more = (several,) if isinstance(several, str) else several
    handles = (*(() if single is None else (single,)), *more)
    return tuple(getattr(handle, "name", handle) for handle in handles)
