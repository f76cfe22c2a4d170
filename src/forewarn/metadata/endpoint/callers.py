"""Identifying callers: which machine a request comes from.

In a fleet a machine is identified by its source address; on a developer's machine, where all guests
have the same one, by the address to which it sends the request, or by the port where there is only
one loopback address.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from forewarn.metadata.endpoint.documents import GroupDocument
from forewarn.metadata.endpoint.limits import UNKNOWN_CALLER
from forewarn.metadata.endpoint.to_wire import Guest
from forewarn.metadata.upstream import GroupNews


class Identity(enum.Enum):
    SOURCE = "source"  # the address the request comes from
    TARGET = "target"  # the address the request goes to


class Caller(Guest, frozen=True):
    """The machine that a request comes from."""

    document: GroupDocument  # of its group


class Callers:
    def __init__(self, identity: Identity, default: str | None = None) -> None:
        self.by_source = identity is Identity.SOURCE
        self._default = default
        self._by_address: dict[str, Caller] = {}
        self._present: dict[str, Caller] = {}  # of those, the machines that are not gone
        self.at: Callable[[str], Caller | None] = (
            self._present.get if self.by_source else self._at_or_default
        )
        self._default_caller: Caller | None = None  # of an address that no machine has
        self._of_group: dict[str, tuple[GroupNews, tuple[Caller, ...]]] = {}
        # With Identity.TARGET: the address of the machine that a port belongs to, where machines
        # have ports in place of addresses.
        self.by_port: dict[int, str] = {}

    def update(self, news: GroupNews, document: GroupDocument) -> None:
        group = news.view.name
        last_news, before = self._of_group.get(group, (None, ()))
        if last_news and last_news.machines is news.machines and last_news.place is news.place:
            return
        callers = tuple(
            Caller(machine.name, group, machine, news.place, document) for machine in news.machines
        )
        for caller in before:
            if self._default_caller is caller:
                self._default_caller = None
            for address in caller.machine.addresses:
                if self._by_address.get(address) is caller:
                    del self._by_address[address]
                    self._present.pop(address, None)
        self._of_group[group] = news, callers
        for caller in callers:
            if caller.name == self._default:
                self._default_caller = caller
            for address in caller.machine.addresses:
                self._by_address[address] = caller
                if caller.machine.gone:
                    self._present.pop(address, None)
                else:
                    self._present[address] = caller

    def names(self) -> set[str]:
        """Return the machines that are answered."""
        return {caller.name for caller in self._present.values()}

    def target(self, sockname: tuple[str, int]) -> str:
        """Return the address to which a connection was made, or that of the machine whose port
        it was made to. `sockname` is the local address of its socket."""
        return self.by_port.get(sockname[1], sockname[0])

    def find(self, source: str, target: str) -> Caller | None:
        """Return the machine that sent a request, or None if it is unknown or gone."""
        return self.at(self.address(source, target))

    def address(self, source: str, target: str) -> str:
        """Return the address that identifies the caller, for `at`. An IPv4 address that arrived on
        a socket for both families is returned as IPv4."""
        return (source if self.by_source else target).removeprefix("::ffff:")

    def _at_or_default(self, address: str) -> Caller | None:
        caller = self._by_address.get(address) or self._default_caller
        return caller if caller is not None and not caller.machine.gone else None

    def owner(self, address: str, source: str) -> str:
        """Return whose connection it is: a machine's name, or a name for a source that is none."""
        caller = self.at(address)
        return caller.name if caller else f"{UNKNOWN_CALLER}{source}"
