"""What is going to be disturbed in a time, as rows of a calendar: events, and what rollouts are
still to announce, and the windows and blackouts that there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from forewarn.control.schema import tonight as s
from forewarn.core import Event, Group, Status, Time, World
from forewarn.core.deciding.configurations import configurations_of
from forewarn.core.deciding.joint import approved
from forewarn.core.rollouts.model import caused
from forewarn.core.rollouts.outlook import PlannedSteps
from forewarn.core.time import SECOND
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Window
from forewarn.core.windows.openings import next_open, spans
from forewarn.support.instants import to_datetime
from forewarn.support.text import natural_key

MAX_DISTURBANCES = 5_000  # in one answer: as many as a calendar has entries
MAX_NAMES = 10  # machines or groups that are named; the others are counted
PLANNED = "Planned"  # status of what is not announced yet


class Period(msgspec.Struct, frozen=True):
    begins: Time
    ends: Time

    def has(self, begins: Time, ends: Time) -> bool:
        return begins < self.ends and max(begins, ends) >= self.begins


class Fleet(msgspec.Struct, frozen=True):
    """The groups that are shown, and the machines that were asked for."""

    groups: Mapping[str, Group]
    group_of: Mapping[str, str]  # by machine
    host_of: Mapping[str, str]
    row_of: Mapping[str, str]  # in which it is shown
    # Which machines were shown an event; None: that is not known here.
    shown: Callable[[Event], Collection[str]] | None


class _Item(msgspec.Struct, frozen=True):
    view: s.Disturbance
    begins: Time
    ends: Time
    machines: tuple[str, ...]
    not_shown: tuple[str, ...] = ()


def tonight(
    events: Iterable[Event],
    planned: Iterable[PlannedSteps],
    configurations: Sequence[MaintenanceConfiguration],
    fleet: Fleet,
    period: Period,
    now: World,
    labels: Collection[str],
) -> s.Tonight:
    """Return what happens in a period. `configurations` and `labels` are those that are shown."""
    together: dict[str, list[Event]] = {}
    for event in events:
        together.setdefault(event.joint.id if event.joint else event.id, []).append(event)
    items = [
        *(item for alike in together.values() for item in _announced(alike, fleet, now)),
        *(_planned(steps, fleet) for steps in planned),
    ]
    items = [item for item in items if period.has(item.begins, item.ends)]
    items.sort(key=lambda item: (item.begins, natural_key(item.view.rows[0])))
    machines = {name for item in items for name in item.machines}
    shown = items[:MAX_DISTURBANCES]
    return s.Tonight(
        at=to_datetime(now.at),
        begins=to_datetime(period.begins),
        ends=to_datetime(period.ends),
        machines=len(machines),
        hosts=len({host for name in machines if (host := fleet.host_of[name])}),
        announced=sum(item.view.status == Status.SCHEDULED.value for item in items),
        not_approved=sum(bool(item.view.not_approved) for item in items),
        not_shown=len({name for item in items for name in item.not_shown}) if fleet.shown else None,
        rows=_rows(shown, fleet),
        disturbances=[item.view for item in shown],
        left_out=len(items) - len(shown),
        open_or_closed=_open_or_closed(configurations, fleet, period),
        labels=sorted(labels),
    )


def _announced(events: Sequence[Event], fleet: Fleet, now: World) -> Iterator[_Item]:
    """Yield the events that start together, if a machine of theirs was asked for."""
    machines = tuple(n for event in events for n in event.resources if n in fleet.row_of)
    if not machines:
        return
    first = events[0]
    ends: Time | None
    if (started := first.started_at) is not None:
        begins, ends = started, first.expected_end
        lasts_until = max(now.at, ends or 0)
    else:
        begins = _may_start(events, fleet.groups, now)
        ends = begins + first.duration * SECOND if first.duration >= 0 else None
        lasts_until = ends or begins
    not_shown: tuple[str, ...] = ()
    if fleet.shown is not None:
        seen = {name for event in events for name in fleet.shown(event)}
        not_shown = tuple(name for name in machines if name not in seen)
    view = s.Disturbance(
        type=first.type.value,
        status=first.status.value,
        begins=to_datetime(begins),
        ends=None if ends is None else to_datetime(ends),
        rows=_row_names(machines, fleet),
        machines=len(machines),
        names=[*machines[:MAX_NAMES]],
        groups=list(dict.fromkeys(event.group for event in events)),
        host=first.host,
        events=[event.id for event in events],
        rollout=caused(first.cause) or "",
        description=first.description,
        ticket=first.ticket,
        not_approved=[e.group for e in events if fleet.groups[e.group].lacks_approval(e)],
        approved=started is None and approved(fleet.groups, {e.group: e for e in events}),
        not_shown=None if fleet.shown is None else len(not_shown),
        not_shown_names=[*not_shown[:MAX_NAMES]],
    )
    yield _Item(view, begins, lasts_until, machines, not_shown)


def _may_start(events: Iterable[Event], groups: Mapping[str, Group], now: World) -> Time:
    """Return when events can start: at the NotBefore of those that are not approved, in a window of
    all of them."""
    at = max([now.at, *(event.not_before for event in events if event.approved is None)])
    configurations: dict[MaintenanceConfiguration, None] = {}
    for event in events:
        if (group := groups.get(event.group)) is not None:
            configurations.update(dict.fromkeys(configurations_of(group, event, now)))
    span = next_open(tuple(configurations), at) if configurations else None
    return at if span is None else max(at, span.opens)


def _planned(steps: PlannedSteps, fleet: Fleet) -> _Item:
    rollout = steps.rollout
    groups = set(map(fleet.group_of.__getitem__, steps.machines))
    view = s.Disturbance(
        type=str(rollout.kind),
        status=PLANNED,
        begins=to_datetime(steps.begins),
        ends=to_datetime(steps.ends),
        rows=[steps.part],
        machines=len(steps.machines),
        names=[*steps.machines[:MAX_NAMES]],
        groups=sorted(groups, key=natural_key),
        rollout=rollout.id,
        wave=steps.wave + 1,
        steps=steps.steps,
        description=rollout.description,
        ticket=rollout.ticket,
    )
    return _Item(view, steps.begins, steps.ends, steps.machines)


def _row_names(machines: Iterable[str], fleet: Fleet) -> list[str]:
    return list(dict.fromkeys(map(fleet.row_of.__getitem__, machines)))


def _rows(items: Sequence[_Item], fleet: Fleet) -> list[s.TonightRow]:
    disturbances: dict[str, list[int]] = {}
    machines: dict[str, set[str]] = {}
    not_shown: dict[str, set[str]] = {}
    not_approved: dict[str, set[str]] = {}
    for number, item in enumerate(items):
        for name in item.view.rows:
            disturbances.setdefault(name, []).append(number)
        missing = set(item.view.not_approved)
        for machine in item.machines:
            row, group = fleet.row_of[machine], fleet.group_of[machine]
            machines.setdefault(row, set()).add(machine)
            if group in missing:
                not_approved.setdefault(row, set()).add(group)
        for machine in item.not_shown:
            not_shown.setdefault(fleet.row_of[machine], set()).add(machine)

    def last_without_name(name: str) -> tuple[Any, ...]:
        return not name, natural_key(name)

    return [
        s.TonightRow(
            name=name,
            machines=len(machines[name]),
            not_shown=len(not_shown.get(name, ())),
            not_approved=sorted(not_approved.get(name, ()), key=natural_key)[:MAX_NAMES],
            more_not_approved=max(0, len(not_approved.get(name, ())) - MAX_NAMES),
            disturbances=disturbances[name],
        )
        for name in sorted(disturbances, key=last_without_name)
    ]


def _open_or_closed(
    configurations: Iterable[MaintenanceConfiguration], fleet: Fleet, period: Period
) -> list[s.OpenOrClosed]:
    """Return the windows and blackouts of configurations and of groups; those that several groups
    have, once."""
    times: list[tuple[Window | Blackout, str, str, list[str]]] = []
    for configuration in configurations:
        name, select = configuration.name, configuration.select
        times += [(item, name, select, []) for item in configuration.windows]
        times += [(item, name, select, []) for item in configuration.blackouts]
    of_groups: dict[Window | Blackout, list[str]] = {}
    for group in fleet.groups.values():
        policy: tuple[Window | Blackout, ...] = (*group.policy.windows, *group.policy.blackouts)
        for own in policy:
            of_groups.setdefault(own, []).append(group.name)
    times += [(item, "", "", names) for item, names in of_groups.items()]
    found = [
        (
            begins,
            s.OpenOrClosed(
                name=name,
                select=select,
                groups=groups[:MAX_NAMES],
                more_groups=max(0, len(groups) - MAX_NAMES),
                blackout=isinstance(item, Blackout),
                text=item.text,
                begins=to_datetime(begins),
                ends=to_datetime(ends),
            ),
        )
        for item, name, select, groups in times
        for begins, ends in _times_of(item, period)
    ]
    return [view for _, view in sorted(found, key=lambda pair: pair[0])]


def _times_of(item: Window | Blackout, period: Period) -> Iterator[tuple[Time, Time]]:
    """Yield when a window opens and closes, or a blackout begins and ends, in a period."""
    if isinstance(item, Blackout):
        if period.has(item.begins, item.ends):
            yield item.begins, item.ends
        return
    for span in spans((item,), period.begins):
        if span.opens >= period.ends:
            return
        if span.closes is not None and span.closes > period.begins:
            yield span.opens, span.closes
