"""Hosts that cannot be reached, because their node is cut off, and those whose node has just joined
again. Kept in memory by whoever has the connections to the nodes; decisions see it as
`World.unreachable`.

Only hosts that are expected to have a node (`Host.node`) can be unreachable. When a process begins
to decide, no node has a connection to it yet, so all of them are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from forewarn.core import Group, Time, World
from forewarn.core.fleet import Health
from forewarn.core.registry import ClockAccepted, HostPut, HostRemoved
from forewarn.core.time import Duration
from forewarn.store.port import Commit, Store
from forewarn.support import guard

JOIN_WITHIN = 10.0  # seconds within which nodes usually join a process that begins to decide

Copies: TypeAlias = tuple[Mapping[str, Time | None], Mapping[str, Time], Mapping[str, Time]]


class NodeConnection(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node from its connection, or from the last one that it had."""

    version: str
    lag: Duration | None  # since it was sent what it has not confirmed; None: it has no connection
    heard: Time  # when it sent something last
    ended: str = ""  # why its last connection, before the present one, was ended


class UnreachableHosts:
    def __init__(self, store: Store) -> None:
        self._store = store
        # Empty nearly always, which is all that most decisions look at. By host: None, or when its
        # node joined again, as long as the grace after that may not be over.
        self.hosts: dict[str, Time | None] = {}
        self._since: dict[str, Time] = {}  # by these hosts: when the node was cut off
        self._back: dict[str, Time] = {}  # those of them that have joined, in that order
        self._heard: dict[str, Time] = {}  # by host that was ever unreachable: when it joined last
        # By host that was cut off: what these three were before that.
        self._earlier: dict[str, tuple[Time | None, Time | None, Time | None]] = {}
        # By machine that could not be reached until it left such a host, or was found on another
        # one: when, in that order.
        self.left: dict[str, Time] = {}
        self._copies: Copies | None = None
        self._listeners: list[Callable[[str], None]] = []
        # The connection of the node of a host.
        self.connection: Callable[[str], NodeConnection | None] = lambda _: None
        self.known = False  # is this the process that knows which nodes have joined?
        self._awaited: set[str] = set()  # hosts that have not joined since this process began
        self._awaited_until = 0.0  # in guard time
        store.on_commit(self._on_commit)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have a function called with the name of each host that is cut off, joined or forgotten,
        right after that."""
        self._listeners.append(listener)

    def begin(self, at: Time) -> None:
        """Consider every host that is expected to have a node as unreachable, until it joins.
        Nothing has been decided yet, so nobody is told."""
        self.known = True
        self._awaited_until = guard.monotonic() + JOIN_WITHIN
        for host in self._store.registry.hosts.values():
            if host.node:
                self.hosts[host.name] = None
                self._since[host.name] = at
                self._awaited.add(host.name)
        self._copies = None

    def cut_off(self, host: str, at: Time) -> None:
        """Note that the node of a host is disconnected from now on, if the host is expected to
        have one: nothing starts for the machines on it."""
        known = self._store.registry.hosts.get(host)
        if known is None or not known.node or self.is_unreachable(host):
            return
        back = self._back.pop(host, None)
        self._earlier[host] = self._since.get(host), back, self._heard.get(host)
        self.hosts[host] = None
        self._since[host] = at
        self._changed(host)

    def joined(self, host: str, at: Time) -> None:
        """Note that the node of a host has joined, and knows all that it has missed."""
        self._awaited.discard(host)
        if self.is_unreachable(host):
            self.hosts[host] = self._back[host] = self._heard[host] = at
            self._changed(host)

    def missed_nothing(self, host: str) -> None:
        """Note that the node of a host, which has just joined, was without a connection only for a
        moment, in which nothing was shown without it: all is as it was before."""
        if host not in self._back:
            return
        since, back, heard = self._earlier.pop(host, (None, None, None))
        del self._heard[host]
        if heard is not None:
            self._heard[host] = heard
        if since is None or back is None:
            self._drop(host)
        else:
            self._since[host] = since
            self.hosts[host] = self._back[host] = back
        self._changed(host)

    def forget(self, host: str) -> None:
        """Note that a host is no longer expected to have a node."""
        self._heard.pop(host, None)
        if host in self.hosts:
            self._drop(host)
            self._changed(host)

    def is_unreachable(self, host: str) -> bool:
        return host in self.hosts and self.hosts[host] is None

    def since(self, host: str) -> Time | None:
        """Return since when a host is unreachable; None if it is not."""
        return self._since[host] if self.is_unreachable(host) else None

    def joined_at(self, host: str) -> Time | None:
        """Return when the node of a host joined last; None if that is not known."""
        return self._heard.get(host)

    def is_awaited(self, host: str) -> bool:
        """Return whether the node of a host has not had time to join since this process began."""
        return host in self._awaited and guard.monotonic() < self._awaited_until

    def all(self) -> dict[str, Time]:
        """Return the hosts that are unreachable, and since when; without those that have failed, of
        which it is known anyway that nothing can be reached there."""
        known = self._store.registry.hosts
        return {
            host: self._since[host]
            for host, back in self.hosts.items()
            if back is None and known[host].health is not Health.FAILED
        }

    def at(self, now: World) -> Copies:
        """Return `World.unreachable`, `World.unreachable_since` and `World.left_unreachable` for
        this instant."""
        while self._back and now.at >= now.grace_after(next(iter(self._back.values()))):
            self._drop(next(iter(self._back)))
        while self.left and now.at >= now.grace_after(next(iter(self.left.values()))):
            del self.left[next(iter(self.left))]
            self._copies = None
        if self._copies is None:
            self._copies = self.hosts.copy(), self._since.copy(), self.left.copy()
        return self._copies

    def moved(self, machine: str, host: str, at: Time) -> None:
        """Note that a machine has left a host, which may be unreachable."""
        if host in self.hosts:
            self.informed_late(machine, at)

    def informed_late(self, machine: str, at: Time) -> None:
        """Note that a machine could not be informed until now."""
        self.left.pop(machine, None)  # it becomes the latest
        self.left[machine] = at
        self._copies = None

    def heard_since(self, group: Group) -> Time:
        """Return since when polls of the group's machines are known of again, if all its hosts have
        been unreachable; otherwise 0."""
        if not self._heard:
            return 0
        return min((self._heard.get(m.host, 0) for m in group.machines if m.alive), default=0)

    def _drop(self, host: str) -> None:
        del self.hosts[host], self._since[host]
        self._back.pop(host, None)
        self._earlier.pop(host, None)
        self._copies = None

    def _changed(self, host: str) -> None:
        self._copies = None
        for listener in self._listeners:
            listener(host)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for put in commit.puts:
            match put:
                case HostPut(host=host) if not host.node:
                    self.forget(host.name)
                case HostRemoved(name=name):
                    self.forget(name)
                case ClockAccepted():
                    self._correct(commit.at)

    def _correct(self, at: Time) -> None:
        """Correct times that are ahead of an accepted clock."""
        for times in (self._since, self._back, self._heard, self.left):
            times |= {host: min(time, at) for host, time in times.items()}
        self._earlier.clear()
        self.hosts |= self._back
        self._copies = None
