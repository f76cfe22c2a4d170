"""Seats: who asks. On a fleet a machine is known by its source address; on a developer's machine,
where every guest has the same, by the address it asks."""

from __future__ import annotations

import enum
from collections.abc import Callable

from forewarn.metadata.endpoint.documents import GroupDocument
from forewarn.metadata.endpoint.limits import STRANGER
from forewarn.metadata.endpoint.to_wire import Guest
from forewarn.metadata.upstream import GroupNews


class Identity(enum.Enum):
    SOURCE = "source"  # the address the request comes from
    ASKED = "asked"  # the address the request goes to


class Caller(Guest, frozen=True):
    """The machine that a request comes from."""

    board: GroupDocument  # its group's


class Callers:
    def __init__(self, identity: Identity, default: str | None = None) -> None:
        self.by_source = identity is Identity.SOURCE
        self._default = default
        self._by_address: dict[str, Caller] = {}
        self._living: dict[str, Caller] = {}  # of those, who is not gone
        self.at: Callable[[str], Caller | None] = (
            self._living.get if self.by_source else self._there_or_anybody
        )
        self._anybody: Caller | None = None  # who is meant by an address that is nobody's
        self._of_group: dict[str, tuple[GroupNews, tuple[Caller, ...]]] = {}

    def told(self, news: GroupNews, board: GroupDocument) -> None:
        group = news.view.name
        known, before = self._of_group.get(group, (None, ()))
        if known and known.machines is news.machines and known.place is news.place:
            return
        seats = tuple(
            Caller(machine.name, group, machine, news.place, board) for machine in news.machines
        )
        for seat in before:
            if self._anybody is seat:
                self._anybody = None
            for address in seat.machine.addresses:
                if self._by_address.get(address) is seat:
                    del self._by_address[address]
                    self._living.pop(address, None)
        self._of_group[group] = news, seats
        for seat in seats:
            if seat.name == self._default:
                self._anybody = seat
            for address in seat.machine.addresses:
                self._by_address[address] = seat
                if seat.machine.gone:
                    self._living.pop(address, None)
                else:
                    self._living[address] = seat

    def who(self, source: str, asked: str) -> Caller | None:
        """The seat of whoever sent this, or None: unknown, or gone."""
        return self.at(self.address(source, asked))

    def address(self, source: str, asked: str) -> str:
        """Which of the two says who asks: an IPv4 address as such, also when it arrived on a
        socket for both families. For `at`, as often as one likes."""
        return (source if self.by_source else asked).removeprefix("::ffff:")

    def _there_or_anybody(self, address: str) -> Caller | None:
        seat = self._by_address.get(address) or self._anybody
        return seat if seat is not None and not seat.machine.gone else None

    def whose(self, address: str, source: str) -> str:
        """Whose connection this is: a machine's, or that of a source which is none."""
        seat = self.at(address)
        return seat.name if seat else f"{STRANGER}{source}"
