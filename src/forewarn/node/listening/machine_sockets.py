"""Sockets that belong to one machine each, on a computer that simulates a fleet.

A machine has either a port of its own on 127.0.0.1 or, if one socket cannot cover all of loopback,
sockets on its loopback address. They are opened when the machine's URL is first asked for or, if
clients can know the URL without asking, at once; and they are closed when the machine is removed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Mapping, Sequence

from forewarn.core import Group, Machine
from forewarn.metadata.endpoint.callers import Callers
from forewarn.node.config import Address
from forewarn.node.listening.serve import GuestServer
from forewarn.node.listening.sockets import (
    SECOND_LOOPBACK,
    CannotListen,
    all_or_none,
    open_socket,
)
from forewarn.service.indexes.machines import MachineIndex
from forewarn.store.port import Commit
from forewarn.support.logs import logger

ONLY_LOOPBACK = "127.0.0.1"
FIRST_PORT = 2  # of a machine, after that of the endpoint; the one between is the control API's
MAX_PORT = 65_535

log = logger("forewarn")


class MachineSockets:
    """The sockets of each machine. `ports` are those of the endpoint, as they were asked for.

    Any thread can ask for an address; requests to the control API are handled in several.
    """

    def __init__(
        self, guests: GuestServer, callers: Callers, machines: MachineIndex, ports: Sequence[int]
    ) -> None:
        self._guests = guests
        self._callers = callers
        self._machines = machines
        self._ports = ports
        self._opened: dict[str, tuple[str, list[socket.socket]]] = {}  # with the machine's address
        self._opening = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._members: dict[str, tuple[Machine, ...]] = {}  # of each group, as of the last change
        self.at_once = True  # open the sockets of every machine, not only of those asked for

    def address(self, machine: Machine) -> Address:
        """Return where requests are answered as those of this machine."""
        return Address(*self._of(machine)[0].getsockname()[:2])

    def update(self) -> None:
        """Close the sockets of machines that were removed, and open those of new ones."""
        machines = {
            machine.name: machine
            for group in self._machines.groups()
            for machine in group.machines
            if machine.addresses
        }
        with self._opening:
            for name, (address, _) in list(self._opened.items()):
                if name not in machines or machines[name].addresses[0] != address:
                    self._close(name)
        if self.at_once:
            for machine in machines.values():
                self._of(machine)

    def on_commit(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        if all(self._members.get(name) is group.machines for name, group in changed.items()):
            return
        self._members |= {name: group.machines for name, group in changed.items()}
        try:
            self.update()
        except CannotListen as error:  # the change is made all the same
            log.error("a machine cannot be reached", why=str(error))

    def _of(self, machine: Machine) -> list[socket.socket]:
        with self._opening:
            if machine.name not in self._opened:
                sockets = self._open(machine)
                self._opened[machine.name] = machine.addresses[0], sockets
                for listener in sockets:
                    self._loop.call_soon_threadsafe(self._guests.listen, listener)
            return self._opened[machine.name][1]

    def _open(self, machine: Machine) -> list[socket.socket]:
        with all_or_none() as sockets:
            for port in self._ports:
                sockets.append(open_socket(Address(machine.addresses[0], port)))
        return sockets

    def _close(self, name: str) -> None:
        _, sockets = self._opened.pop(name)
        for listener in sockets:  # after `listen`, which may not have been called yet
            self._loop.call_soon_threadsafe(self._guests.stop_listening, listener)


class MachinePorts(MachineSockets):
    """One socket for each machine on 127.0.0.1.

    If the endpoint has a port that somebody chose, those of machines follow it, in the order of
    their loopback addresses, so that they are the same after a restart. A port that is in use is
    replaced by any that is free.
    """

    def __init__(
        self, guests: GuestServer, callers: Callers, machines: MachineIndex, ports: Sequence[int]
    ) -> None:
        super().__init__(guests, callers, machines, ports)
        self.at_once = ports[0] != 0

    def _open(self, machine: Machine) -> list[socket.socket]:
        listener = self._first_free(machine.addresses[0])
        self._callers.by_port[listener.getsockname()[1]] = machine.addresses[0]
        return [listener]

    def _close(self, name: str) -> None:
        _, (listener,) = self._opened[name]
        del self._callers.by_port[listener.getsockname()[1]]
        super()._close(name)

    def _first_free(self, address: str) -> socket.socket:
        if self._ports[0]:
            first = int(ipaddress.IPv4Address(SECOND_LOOPBACK))
            port = self._ports[0] + FIRST_PORT + int(ipaddress.IPv4Address(address)) - first
            try:
                if port <= MAX_PORT:
                    return open_socket(Address(ONLY_LOOPBACK, port))
            except CannotListen:  # somebody else has it
                pass
        return open_socket(Address(ONLY_LOOPBACK, 0))
