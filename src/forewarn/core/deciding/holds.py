"""Holds: what keeps an event from starting. The same predicates decide (`start.py`) and explain.

An event can be held by its notice, by the grace after an outage or a restore, by a machine that is
busy with another event, by another update domain of its group that is in use, by other deletes of
its group, by a window that is not open or a blackout, by the other groups on its host or a machine
there that has not been warned (see `joint.py`), by a halt that an operator has placed, by a host
that cannot be reached (see `reachable_hosts.py`), or by a wall clock that is not trusted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from forewarn.core.deciding.configurations import configurations_of, never_open, unknown_zones
from forewarn.core.events import Event, Status
from forewarn.core.fleet import domain_name
from forewarn.core.group import Group
from forewarn.core.halts import Halt
from forewarn.core.labels import labels_of, matches, parse
from forewarn.core.time import Time
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.core.windows.openings import is_open, next_open, next_span
from forewarn.core.world import World
from forewarn.support.text import listing, utc

NEVER: Time = -1  # before every NotBefore
ONLY_OVERRIDE = "an operator, by letting it ignore windows and blackouts"  # they never allow it
WINDOWS_OVERRIDE = "nobody before then, but an operator can let it ignore windows and blackouts"
MAX_NAMED_DELETES = 10  # other deletes that a waiting one names


class HoldKind(enum.Enum):
    NOTICE = "notice"
    GRACE = "grace"
    RESTORED = "restored"
    MACHINE = "machine"
    DOMAIN = "domain"
    COUPLING = "coupling"
    WINDOW = "window"
    BLACKOUT = "blackout"
    JOINT = "joint"
    PLACEMENT = "placement"  # a machine on its host has not been warned
    HALT = "halt"  # an operator has halted it
    REACH = "reach"  # the host of one of its machines cannot be reached
    CLOCK = "clock"  # the wall clock contradicts the service's time
    STATE = "state"  # the state cannot be written, so that nothing can change
    DRIVER = "driver"  # it has started, and is being carried out
    BACK = "back"  # it was carried out, and its machines have not polled since


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an event has not started."""

    kind: HoldKind
    message: str
    since: Time
    until: Time | None = None  # at the latest; None: no time is set
    waits_for: tuple[str, ...] = ()  # ids of other events
    unblocked_by: str = ""  # who or what can lift it


def with_clock(holds: Iterable[Hold], now: World) -> tuple[Hold, ...]:
    """Return the holds, preceded by one for the clock if it is untrusted."""
    if now.untrusted is None:
        return tuple(holds)
    clock = Hold(
        kind=HoldKind.CLOCK,
        message=now.clock_problem,
        since=now.untrusted.since,
        unblocked_by="correcting the wall clock, or an admin, by accepting it",
    )
    return behind(clock, holds, "nobody before the clock is trusted again")


def behind(first: Hold, holds: Iterable[Hold], unblocked_by: str) -> tuple[Hold, ...]:
    """Return the holds, preceded by one that nothing overcomes. While it lasts, none of the others
    ends at a known time, and whoever could lift them cannot."""
    return (
        first,
        *(msgspec.structs.replace(hold, until=None, unblocked_by=unblocked_by) for hold in holds),
    )


def notice_over_at(event: Event, now: World) -> Time:
    """Return when the event may start without approval: at NotBefore, or when the grace after an
    outage ends if that is later."""
    grace = now.grace_ends
    return event.not_before if grace is None else max(event.not_before, grace)


def notice_over_by(now: World) -> Time:
    """Return the latest NotBefore with which an event may start without approval now."""
    if now.untrusted is not None:
        return NEVER
    grace = now.grace_ends
    return now.at if grace is None or now.at >= grace else NEVER


def notice_over(event: Event, now: World) -> bool:
    return event.not_before <= notice_over_by(now)


def in_restore_grace(event: Event, now: World) -> bool:
    """Is the event from a backup that was restored a moment ago? It may have been cancelled after
    the backup was made: approved or not, it waits until there was time to cancel it again."""
    return (
        now.restored is not None
        and event.raised_at <= now.restored
        and now.grace_ends is not None
        and now.at < now.grace_ends
    )


EVACUATIONS = "host/"  # how the cause of events begins that move machines off a host


class HaltedMachines:
    """The halts that cover machines of a group, and evacuations that have paused. Which machines
    are covered is computed once for several events, and not at all if nothing is asked."""

    def __init__(self, group: Group, now: World) -> None:
        self._group, self._hosts = group, now.halted_hosts
        self._not_back = now.not_back
        self._halts = [h for h in now.halts if not h.groups or group.name in h.groups]
        self._machines: dict[str, frozenset[str]] = {}  # by the id of a halt

    def covering(self, machines: Iterable[str]) -> Iterator[Halt]:
        """Yield the halts because of which nothing starts for these machines of the group."""
        for halt in self._halts:
            everywhere = not halt.label and not halt.host_label
            if everywhere or not self.machines(halt).isdisjoint(machines):
                yield halt

    def machines(self, halt: Halt) -> frozenset[str]:
        """Return the machines of the group that a halt covers, if it covers any of the group."""
        if halt.id not in self._machines:
            selector, machines = _selector(halt.label), self._group.machines
            if halt.host_label:
                hosts = self._hosts.get(halt.host_label, frozenset())
                machines = tuple(m for m in machines if m.host in hosts or m.disputed in hosts)
            self._machines[halt.id] = frozenset(
                m.name for m in machines if matches(selector, labels_of(self._group, m))
            )
        return self._machines[halt.id]

    def stop(self, event: Event) -> bool:
        """Is there such a halt, or is it part of an evacuation that has paused?"""
        covered = bool(self._halts) and any(True for _ in self.covering(event.resources))
        return covered or bool(self.missed(event))

    def missed(self, event: Event) -> dict[str, Time]:
        """Return the machines that have not come back from the evacuation of a host that an event
        is part of, and since when: until they do, nobody else is moved."""
        if not event.moves or not event.cause.startswith(EVACUATIONS):
            return {}
        own = {
            machine.name: machine.not_back.since
            for machine in self._group.machines
            if machine.alive and machine.not_back and machine.not_back.cause == event.cause
        }
        return {**self._not_back.get(event.cause, {}), **own}


_selector = lru_cache(maxsize=256)(parse)  # of halts, which are read for every decision


def halt_holds(event: Event, halted: HaltedMachines) -> list[Hold]:
    """Return the holds that operators have placed, and that of an evacuation which has paused:
    approved or not, the event waits."""
    paused = [
        Hold(
            kind=HoldKind.BACK,
            message=f"the evacuation of host '{event.host}' has paused: {listing([*missed])} did"
            " not come back after being moved",
            since=max(event.raised_at, *missed.values()),
            unblocked_by="the machine, by polling, or an operator, with 'forewarn machine restore'"
            " if it is back, or by cancelling the event",
        )
        for missed in (halted.missed(event),)
        if missed
    ]
    return paused + [
        Hold(
            kind=HoldKind.HALT,
            message=f"{'it' if halt.partial else 'the whole fleet'} is halted by {halt.by}"
            + (f": {halt.note}" if halt.note else ""),
            since=max(event.raised_at, halt.at),
            unblocked_by=f"an operator, by releasing halt {halt.id}",
        )
        for halt in halted.covering(event.resources)
    ]


class Occupancy:
    """The Started events of a group, by machine and by update domain."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_machine: dict[str, dict[str, Event]] = {}
        self._by_domain: dict[int, dict[str, Event]] = {}
        for event in events:
            if event.status is Status.STARTED:
                self.add(event)

    def add(self, event: Event) -> None:
        self._by_domain.setdefault(event.domain, {})[event.id] = event
        for name in event.resources:
            self._by_machine.setdefault(name, {})[event.id] = event

    def remove(self, event: Event) -> None:
        self._by_domain.get(event.domain, {}).pop(event.id, None)
        for name in event.resources:
            self._by_machine.get(name, {}).pop(event.id, None)

    def blocks(self, event: Event) -> bool:
        """Does the event have to wait for the end of another one?"""
        if event.waits and any(self._by_machine.get(name) for name in event.resources):
            return True
        return event.waits_for_domain and any(
            events for domain, events in self._by_domain.items() if domain != event.domain
        )

    def on_machines(self, names: Iterable[str]) -> dict[str, Event]:
        return {id: event for name in names for id, event in self._by_machine.get(name, {}).items()}

    def in_other_domains(self, domain: int) -> dict[str, Event]:
        return {
            id: event
            for other, events in self._by_domain.items()
            if other != domain
            for id, event in events.items()
        }


def waiting_deletes(events: Iterable[Event], now: World) -> list[Event]:
    """Return the unapproved deletes whose notice has not passed, the earliest NotBefore first.

    Approved deletes wait for these.
    """
    waiting = [
        event
        for event in events
        if event.status is Status.SCHEDULED
        and event.approved is None
        and event.traits.coupled
        and not notice_over(event, now)
    ]
    return sorted(waiting, key=lambda event: event.not_before)


def span_open(event: Event, now: World) -> bool:
    """Is the window of its rollout open, if it has one?"""
    span = event.span
    return span is None or (span.opens <= now.at and (span.closes is None or now.at < span.closes))


def window_open(group: Group, event: Event, now: World) -> bool:
    """Is this a time at which the event may start?"""
    return span_open(event, now) and is_open(configurations_of(group, event, now), now.at)


def opens_at(
    event: Event, configurations: Sequence[MaintenanceConfiguration], at: Time
) -> Time | None:
    """Return the first instant, not before `at`, at which the event may start as far as windows and
    blackouts are concerned; None if there is none."""
    if event.span is not None:
        at = max(at, event.span.opens)
    if configurations:
        span = next_open(configurations, at)
        forced = event.deadline
        if forced is not None and (span is None or span.opens > forced):
            at = max(at, forced)
        elif span is None:
            return None
        else:
            at = max(at, span.opens)
    closes = None if event.span is None else event.span.closes
    return at if closes is None or at < closes else None


def awaits_approval(event: Event, now: World) -> bool:
    """Has nobody approved it, and has its notice not passed?"""
    return event.approved is None and not notice_over(event, now)


def earlier_deletes(event: Event, now: World, deletes: Sequence[Event]) -> tuple[str, ...]:
    """Return the ids of the deletes that the event has to wait for. `deletes` are its group's
    `waiting_deletes`."""
    if not event.traits.coupled or notice_over(event, now):
        return ()
    return tuple(
        other.id for other in deletes[:MAX_NAMED_DELETES] if other.not_before <= event.not_before
    )


def window_holds(
    event: Event, configurations: Sequence[MaintenanceConfiguration], now: World
) -> list[Hold]:
    """Return the holds of windows that are not open, and of blackouts: approved or not, the event
    waits."""
    return [*_span_holds(event, now), *_configuration_holds(event, configurations, now)]


def _configuration_holds(
    event: Event, configurations: Sequence[MaintenanceConfiguration], now: World
) -> list[Hold]:
    if is_open(configurations, now.at):
        return []
    opens = opens_at(event, configurations, now.at)
    holds: list[Hold] = []
    for configuration in configurations:
        if blackout := configuration.blackout_at(now.at):
            holds.append(
                Hold(
                    kind=HoldKind.BLACKOUT,
                    message=f"'{configuration.name}' has a blackout until {utc(blackout.ends)}"
                    f" ({blackout.text})",
                    since=max(event.raised_at, blackout.begins),
                    until=opens,
                    unblocked_by=WINDOWS_OVERRIDE if opens is not None else ONLY_OVERRIDE,
                )
            )
        if not configuration.windows:
            continue
        own = next_span(configuration.windows, now.at)
        if own is None or own.opens > now.at:
            later = "" if own is None else f"; the next one opens at {utc(own.opens)}"
            problem = unknown_zones(configuration.windows)
            later += f"; {problem}" if problem and own is not None else ""
            holds.append(
                Hold(
                    kind=HoldKind.WINDOW,
                    message=f"no window of '{configuration.name}' is open{later}",
                    since=event.raised_at,
                    until=opens,
                    unblocked_by=WINDOWS_OVERRIDE if opens is not None else ONLY_OVERRIDE,
                )
            )
    if next_open(configurations, now.at) is None:
        never = f"{holds[-1].message}; {never_open(configurations)}"
        holds[-1] = msgspec.structs.replace(holds[-1], message=never)
    return holds


def _span_holds(event: Event, now: World) -> list[Hold]:
    span = event.span
    if span is None or span_open(event, now):
        return []
    early = now.at < span.opens
    return [
        Hold(
            kind=HoldKind.WINDOW,
            message="its window has not opened" if early else "its window has closed",
            since=event.raised_at if early else span.closes or span.opens,
            until=span.opens if early else None,
            unblocked_by=WINDOWS_OVERRIDE if early else "a new announcement",
        )
    ]


def restore_holds(event: Event, now: World) -> list[Hold]:
    """Return the hold of an event from a backup that was restored a moment ago."""
    if not in_restore_grace(event, now):
        return []
    return [
        Hold(
            kind=HoldKind.RESTORED,
            message="it is from a backup that was restored, and may have been cancelled after the"
            " backup was made; approved or not, it waits until it could have been cancelled again",
            since=now.restored or 0,
            until=now.grace_ends,
            unblocked_by="nobody before then, but an operator may cancel it",
        )
    ]


def time_holds(group: Group, event: Event, now: World, deletes: Sequence[Event]) -> list[Hold]:
    """Return the holds that time or an approval lifts. `deletes` are `waiting_deletes(group)`."""
    if event.joint is not None:
        return [
            Hold(
                kind=HoldKind.JOINT,
                message="it starts together with the events of the other groups on its host",
                since=event.raised_at,
                unblocked_by=f"a machine of each group: {listing(event.joint.groups)}",
            )
        ]
    return [
        *window_holds(event, configurations_of(group, event, now), now),
        *restore_holds(event, now),
        *_notice_holds(event, now, deletes),
    ]


def _notice_holds(event: Event, now: World, deletes: Sequence[Event]) -> list[Hold]:
    if awaits_approval(event, now):
        result = []
        if now.at < event.not_before:
            result.append(
                Hold(
                    kind=HoldKind.NOTICE,
                    message="its notice has not passed and nobody has approved it",
                    since=event.raised_at,
                    until=event.not_before,
                    unblocked_by=f"any machine of group '{event.group}', or an operator,"
                    " by approving it",
                )
            )
        graced = now.grace_ends is not None and now.at < now.grace_ends
        if graced and not in_restore_grace(event, now):  # which is a hold of its own
            result.append(
                Hold(
                    kind=HoldKind.GRACE,
                    message="the endpoint was not serving, or its clock was stepped; nothing starts"
                    " by its NotBefore until guests have had time to poll again",
                    since=now.steady_since or 0,
                    until=now.grace_ends,
                    unblocked_by=f"any machine of group '{event.group}', or an operator,"
                    " by approving it",
                )
            )
        return result
    others = earlier_deletes(event, now, deletes)
    if not others or event.approved is None:
        return []
    return [
        Hold(
            kind=HoldKind.COUPLING,
            message="approved, but other deletions in the group that are due no later must start"
            " first, or together with it",
            since=event.approved.at,
            until=notice_over_at(event, now),
            waits_for=others,
            unblocked_by=f"any machine of group '{event.group}', by approving those as well",
        )
    ]


def occupancy_holds(event: Event, occupancy: Occupancy) -> list[Hold]:
    """Return the holds of a Scheduled event that only the end of another event lifts."""
    result: list[Hold] = []
    if not occupancy.blocks(event):
        return result
    if event.waits:
        busy = occupancy.on_machines(event.resources)
        if busy:
            result.append(
                Hold(
                    kind=HoldKind.MACHINE,
                    message="one of its machines is in another event that has started"
                    + _unannounced(busy.values()),
                    since=max(event.raised_at, _latest_start(busy.values())),
                    waits_for=tuple(busy),
                    unblocked_by="the driver that is carrying that event out",
                )
            )
    if event.waits_for_domain:
        others = occupancy.in_other_domains(event.domain)
        if others:
            domains = ", ".join(map(domain_name, sorted({e.domain for e in others.values()})))
            result.append(
                Hold(
                    kind=HoldKind.DOMAIN,
                    message=f"it is in update domain {domain_name(event.domain)}, and domain"
                    f" {domains} of the group is being disturbed; one domain at a time"
                    + _unannounced(others.values()),
                    since=max(event.raised_at, _latest_start(others.values())),
                    waits_for=tuple(others),
                    unblocked_by="the drivers that are carrying those events out",
                )
            )
    return result


def _unannounced(events: Iterable[Event]) -> str:
    """Return a hint about events that a reader will not find in any document."""
    ids = [event.id for event in events if event.unannounced]
    return f" (guests are not shown {listing(ids)}: unannounced)" if ids else ""


def _latest_start(events: Iterable[Event]) -> Time:
    return max(event.started_at or event.raised_at for event in events)
