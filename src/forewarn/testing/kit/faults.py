"""Faults in a test's hands: what is to go wrong on purpose, and how much of it has.

What goes wrong on a socket is met there as it is. In process there is no connection that could
break, so a client is told by the exceptions that Python's own would raise.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from forewarn.core import Duration, Refused
from forewarn.metadata.faults.delay import MAX_UNWOUND
from forewarn.service.faults.model import Account
from forewarn.service.faults.validate import NewFault
from forewarn.support.text import parse_duration
from forewarn.testing.kit.errors import RefusedByService

if TYPE_CHECKING:
    from forewarn.testing.kit.machines import Group, Machine
    from forewarn.testing.kit.service import Service


class Fault:
    """One that was added; what it says of itself is as it is now, and after it was cleared as it
    was then."""

    def __init__(self, faults: Faults, account: Account) -> None:
        self._faults = faults
        self._last = account
        self.id = account.fault.id
        self.kind = account.fault.kind.value

    @property
    def account(self) -> Account:
        return self.remember(self._faults.look(self.id))

    def remember(self, account: Account | None) -> Account:
        self._last = account or self._last
        return self._last

    @property
    def matched(self) -> int:
        """Requests, or events, that it was asked about."""
        return self.account.matched

    @property
    def consumed(self) -> int:
        """Those of them that it has met."""
        return self.account.consumed

    @property
    def left(self) -> int | None:
        """How often it still will; None: until it is cleared."""
        return self.account.left

    @property
    def by_machine(self) -> dict[str, int]:
        return self.account.by_machine

    @property
    def state(self) -> str:
        """waiting, active, used up or over."""
        return self.account.state

    def clear(self) -> None:
        """It meets nobody any more. Once is enough, and twice does no harm."""
        self._faults.forget(self)

    def __repr__(self) -> str:
        return f"<fault {self.id} {self.kind}: {self.account.says}, {self.state}>"


class Faults:
    """`service.faults`: all that were added, in that order."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handles: dict[str, Fault] = {}

    def add(
        self,
        kind: str,
        *,
        machine: str | Machine | None = None,
        machines: Sequence[str | Machine] = (),
        group: str | Group | None = None,
        groups: Sequence[str | Group] = (),
        method: str = "",
        times: int | None = None,
        skip: int = 0,
        starts_in: str | float | None = None,
        lasts: str | float | None = None,
        probability: float = 1.0,
        seed: int | None = None,
        seconds: float | None = None,
        status: int | None = None,
        body: str | None = None,
        takes_effect: bool | None = None,
    ) -> Fault:
        """Of this kind, for whom one names or for everybody; at once, or as the rest says."""
        wanted = _wanted(
            kind=kind,
            machines=_names(machine, machines),
            groups=_names(group, groups),
            method=str(method).upper(),
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

        async def added() -> Account | Refused:
            return self._service.node.faults.add(wanted, "test")

        account = self._service.run(added())
        if isinstance(account, Refused):
            raise RefusedByService(account.says)
        made = self._handles[account.fault.id] = Fault(self, account)
        return made

    @contextmanager
    def during(self, kind: str, **words: Any) -> Iterator[Fault]:
        """Only inside of the block."""
        fault = self.add(kind, **words)
        try:
            yield fault
        finally:
            fault.clear()

    def list(self) -> list[Fault]:
        """Those that are not cleared, used up or not; also those that others have added."""

        async def found() -> list[Account]:
            return self._service.node.faults.all()

        return [self._handle(account) for account in self._service.run(found())]

    def clear(self) -> None:
        """All of them."""
        for fault in self.list():
            fault.clear()

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def look(self, id: str) -> Account | None:
        async def found() -> Account | Refused:
            return self._service.node.faults.find(id)

        account = self._service.run(found())
        return None if isinstance(account, Refused) else account

    def forget(self, fault: Fault) -> None:
        async def cleared() -> Account | None:
            done = self._service.node.faults.clear(fault.id)
            return None if isinstance(done, Refused) else done[0]

        fault.remember(self._service.run(cleared()))

    def _handle(self, account: Account) -> Fault:
        return self._handles.setdefault(account.fault.id, Fault(self, account))


def _wanted(**said: Any) -> NewFault:
    """Values that are none are refused as the control API refuses them."""
    try:
        for when in ("starts_in", "lasts"):
            said[when] = None if said[when] is None else _length(said[when])
        return msgspec.convert(said, NewFault)
    except (msgspec.ValidationError, ValueError) as error:
        raise RefusedByService(f"that is no fault: {error}") from error


def _length(said: str | float) -> Duration:
    return parse_duration(f"{said:f}" if isinstance(said, float) else str(said))


def _names(one: Any, several: Any) -> tuple[str, ...]:
    """Names, or machines and groups that have one."""
    more = (several,) if isinstance(several, str) else several
    return tuple(
        getattr(named, "name", named) for named in (*(() if one is None else (one,)), *more)
    )


def broken_off(start: Mapping[str, Any], said: bytes, *, stalled: bool) -> Exception:
    """What a client of Python's own would have met on a connection."""
    if stalled:
        return TimeoutError("the answer began and did not go on (in process nobody waits for it)")
    if not start:
        return ConnectionResetError("the service cut the connection without an answer")
    headers = {name.lower(): value for name, value in start["headers"]}
    return http.client.IncompleteRead(said, int(headers[b"content-length"]) - len(said))


def never_wound() -> Exception:
    return TimeoutError(
        f"the answer is slow on purpose, and in {MAX_UNWOUND:g} s nobody has wound the clock for"
        " it; ask in a thread or a task, and wind the clock meanwhile"
    )
