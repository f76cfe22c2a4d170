"""Hosts that cannot be reached: what their machines are shown is not known, so nothing starts
there. The same holds for a machine that polls on another host than the one that it is known to be
on.

While the node of a host is cut off, its machines may be shown an event as Scheduled that has long
been approved or is overdue. So no event starts that names a living machine there; and when the node
is back, or a machine has left the host, nothing starts by its NotBefore until guests there have had
time to poll again.
"""

from __future__ import annotations

import msgspec

from forewarn.core.changes import Change, Changes, MachinePut
from forewarn.core.commands import AnswerOn
from forewarn.core.deciding.holds import Hold, HoldKind
from forewarn.core.events import Event
from forewarn.core.fleet import Machine, reached_by
from forewarn.core.group import Group
from forewarn.core.time import Time
from forewarn.core.world import World
from forewarn.support.text import listing, utc

MAX_NAMED_HOSTS = 10  # hosts for each of which a waiting event has a hold of its own


class UnreachableMachines:
    """The machines of a group on hosts that are unreachable, or have been a moment ago. Which these
    are is computed once for several events, and not at all if there is no such host."""

    def __init__(self, group: Group, now: World) -> None:
        self._group, self._now = group, now
        self._hosts: dict[str, tuple[str, ...]] | None = None  # by machine

    def by_host(self, event: Event) -> dict[str, list[str]]:
        """Return the hosts that are unreachable, or have been a moment ago, on which the event has
        machines, and these machines. They count even if they have moved away since it was raised,
        and are not disturbed by it: they are shown it."""
        found: dict[str, list[str]] = {}
        hosts = self._of_machines() if self._now.unreachable else {}
        for name in event.resources if hosts else ():
            for host in hosts.get(name, ()):
                found.setdefault(host, []).append(name)
        return found

    def cut_off(self, event: Event) -> bool:
        """Does the event have a machine on a host that is unreachable now, or one that polls on
        another host than the one that it is known to be on?"""
        unreachable, strayed = self._now.unreachable, self._now.strayed
        if strayed and not strayed.keys().isdisjoint(event.resources):
            return True
        return bool(unreachable) and any(unreachable[host] is None for host in self.by_host(event))

    def grace_ends(self, event: Event) -> Time | None:
        """Return until when the event does not start by its NotBefore because its machines have
        been reachable again only for a moment; None if they always were."""
        if not self._now.unreachable and not self._now.left_unreachable:
            return None
        ends = [self._now.unreachable_until(host) for host in self.by_host(event)]
        ends += [self._now.grace_after(at) for at in self.left(event).values()]
        return max((at for at in ends if at is not None), default=None)

    def left(self, event: Event) -> dict[str, Time]:
        """Return the machines of the event that have just left a host that is unreachable, and
        when."""
        left = self._now.left_unreachable
        if not left:
            return {}
        alive = self._group.named(name for name in event.resources if name in left)
        return {name: left[name] for name, machine in alive.items() if machine.alive}

    def stop(self, event: Event) -> bool:
        """Is the event kept from starting?"""
        if not self._now.unreachable and not self._now.left_unreachable and not self._now.strayed:
            return False
        if self.cut_off(event):
            return True
        ends = self.grace_ends(event) if event.approved is None else None
        return ends is not None and self._now.at < ends

    def _of_machines(self) -> dict[str, tuple[str, ...]]:
        if self._hosts is None:
            unreachable = self._now.unreachable
            self._hosts = {
                machine.name: hosts
                for machine in self._group.machines
                if machine.alive
                and (hosts := tuple(h for h in _places(machine) if h in unreachable))
            }
        return self._hosts


def reach_holds(
    event: Event, unreachable: UnreachableMachines, now: World, *, agreed: bool
) -> list[Hold]:
    """Return the holds of hosts that cannot be reached: approved or not, the event waits; and of
    hosts that have just joined again, unless everybody who has to has approved it (`agreed`)."""
    holds = []
    for host, machines in list(unreachable.by_host(event).items())[:MAX_NAMED_HOSTS]:
        joined, ends = now.unreachable[host], now.unreachable_until(host)
        if joined is None:
            holds.append(_cut_off(event, host, machines, now))
        elif ends is not None and now.at < ends and not agreed:
            holds.append(
                Hold(
                    kind=HoldKind.REACH,
                    message=f"host {host} could not be reached until {utc(joined)}, when its node"
                    f" joined again; nothing starts by its NotBefore for {listing(machines)} until"
                    " guests there have had time to poll again",
                    since=max(event.raised_at, joined),
                    until=ends,
                    unblocked_by=_approvers(event),
                )
            )
    if strayed := [name for name in event.resources if name in now.strayed]:
        holds.append(_strayed(event, strayed, now))
    left = {} if agreed else unreachable.left(event)
    fresh = {name: at for name, at in left.items() if now.at < now.grace_after(at)}
    if fresh:
        last = max(fresh.values())
        holds.append(
            Hold(
                kind=HoldKind.REACH,
                message=f"{listing(list(fresh))} could not be reached until {utc(last)}, when it"
                " was recorded where it is; nothing starts by its NotBefore until guests have"
                " had time to poll again",
                since=max(event.raised_at, last),
                until=now.grace_after(last),
                unblocked_by=_approvers(event),
            )
        )
    return holds


def _strayed(event: Event, machines: list[str], now: World) -> Hold:
    return Hold(
        kind=HoldKind.REACH,
        message=f"{listing(machines)} cannot be reached: it polls on another host than the one that"
        " it is known to be on",
        since=max(event.raised_at, *(now.strayed[name] for name in machines)),
        unblocked_by=f"an operator, with 'forewarn machine moved {machines[0]} --to HOST'",
    )


def _approvers(event: Event) -> str:
    if event.joint is not None:
        return "a machine of each of its groups, or an operator, by approving it"
    return f"any machine of group '{event.group}', or an operator, by approving it"


def with_departures(now: World, before: Group, after: Group) -> World:
    """Return `now` with the machines that have left hosts that are unreachable in between: nothing
    may start for them yet by its NotBefore."""
    if not now.unreachable or before.machines is after.machines:
        return now
    hosts = {m.name: m.host for m in before.machines if m.alive and m.host in now.unreachable}
    left = {
        machine.name: now.at
        for machine in after.machines
        if machine.name in hosts and machine.host != hosts[machine.name]
    }
    if not left:
        return now
    return msgspec.structs.replace(now, left_unreachable={**now.left_unreachable, **left})


def answer_on(group: Group, command: AnswerOn) -> Changes:
    """Have a machine answered on its former host, unless it has moved on since."""
    machine = group.machine(command.machine)
    if machine is None or machine.host != command.host:
        return Changes()
    after = msgspec.structs.replace(machine, answered_on=command.former)
    return Changes() if after == machine else Changes((MachinePut(after),))


def with_former_hosts(group: Group, items: tuple[Change, ...], now: World) -> tuple[Change, ...]:
    """Return changes in which machines that move to a host that is unreachable are answered where
    they were answered before."""
    unreachable = {host for host, joined in now.unreachable.items() if joined is None}
    puts = [item.machine for item in items if isinstance(item, MachinePut)]
    before = group.named(machine.name for machine in puts if machine.host in unreachable)
    moved: dict[str, Machine] = {}
    for machine in puts:
        former = before.get(machine.name)
        if former is not None and former.host != machine.host:
            host = (former.host in unreachable and former.answered_on) or former.host
            answered_on = "" if host == machine.host else host
            moved[machine.name] = msgspec.structs.replace(machine, answered_on=answered_on)
    return tuple(
        msgspec.structs.replace(item, machine=moved.get(item.machine.name, item.machine))
        if isinstance(item, MachinePut)
        else item
        for item in items
    )


def not_called(event: Event, host: str, now: World) -> Hold:
    """Return the hold of an event that had started when a host could not be reached any more."""
    return _unreachable(event, host, now, "so the driver has not been called yet")


def _cut_off(event: Event, host: str, machines: list[str], now: World) -> Hold:
    if event.unannounced:
        return _unreachable(event, host, now, f"so nothing is done to {listing(machines)}")
    effect = f"so {listing(machines)} may still be shown this as Scheduled"
    return _unreachable(event, host, now, effect)


def _unreachable(event: Event, host: str, now: World, effect: str) -> Hold:
    since = now.unreachable_since.get(host, event.raised_at)
    return Hold(
        kind=HoldKind.REACH,
        message=f"host {host} cannot be reached: its node has been cut off since {utc(since)}, "
        + effect,
        since=max(event.started_at or event.raised_at, since),
        unblocked_by=reached_by(host),
    )


def unheard(group: Group, now: World) -> bool:
    """Are all living machines of the group on hosts that are unreachable, so that polls of theirs
    would not be known of?"""
    if not now.unreachable:
        return False
    living = False
    for machine in group.machines:
        if machine.alive:
            living = True
            if any(now.unreachable.get(host, 0) is not None for host in _places(machine)):
                return False
    return living


def _places(machine: Machine) -> tuple[str, ...]:
    """Return the host that a machine is on, and another one that it may be on."""
    return (machine.host, machine.disputed) if machine.disputed else (machine.host,)
