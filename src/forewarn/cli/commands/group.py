"""`forewarn group`: list, show, windows, disable, policy, evict, scale-in."""

from __future__ import annotations

import typer

from forewarn.cli.output import (
    Table,
    coverage_text,
    print_clock,
    print_fields,
    print_notes,
    print_table,
    say,
    time_text,
)
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import groups as operations
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words, listing
from forewarn.wire.versions import DELETING

app = typer.Typer(no_args_is_help=True)


GROUPS = Table(
    {
        "GROUP": "name",
        "KIND": "kind",
        "ENABLED": lambda group: "yes" if group.enabled else "no",
        "INCARNATION": lambda group: group.incarnation or None,
        "MACHINES": lambda group: len(group.machines),
        "LISTENING": lambda group: group.coverage.listening,
        "EVENTS": lambda group: len(group.events),
    },
    minor=("INCARNATION", "KIND"),
    if_empty="there are no groups; add some with 'forewarn apply FLEET.yaml'",
    if_filtered="no group matches",
)


def _print_group(group: s.Group, client: ControlClient) -> None:
    print_fields(
        [
            ("group", group.name),
            ("kind", group.kind),
            ("enabled", "yes" if group.enabled else "no, because none of its machines polls"),
            ("incarnation", str(group.incarnation) if group.enabled else "none"),
            ("machines", ", ".join(group.machines)),
            ("coverage", coverage_text(group.coverage)),
            ("labels", ", ".join(f"{k}={v}" for k, v in group.labels.items()) or "none"),
            ("location", group.location or "none"),
            ("zone", group.zone or "none"),
            ("resource group", group.resource_group or "none"),
            ("subscription", group.subscription or "none"),
            ("events", ", ".join(group.events) or "none"),
            *_policy(group),
            ("maintenance", _next_times(client.call(operations.GET_GROUP_WINDOWS, group.name))),
        ]
    )
    print_clock(client)


def _print_windows(allowed: s.GroupWindows, client: ControlClient) -> None:
    if not allowed.configurations:
        say(f"maintenance of group '{allowed.group}' may start at any time")
    else:
        state = "may start now" if allowed.open else "may not start now"
        limits = ", ".join(allowed.configurations)
        say(f"maintenance of group '{allowed.group}' {state}; limited by: {limits}")
        print_table(
            ("OPENS", "CLOSES"),
            [
                (time_text(time.opens) or "always", time_text(time.closes) or "never")
                for time in allowed.times
            ],
            if_empty="it can never start: no time is both inside the windows and outside the"
            " blackouts",
        )
    print_clock(client)


def _next_times(allowed: s.GroupWindows) -> str:
    if not allowed.configurations:
        return "at any time"
    if not allowed.times:
        return "never: no time is both inside the windows and outside the blackouts"
    first = allowed.times[0]
    if allowed.open:
        return f"now, until {time_text(first.closes)}" if first.closes else "now"
    return f"from {time_text(first.opens)} until {time_text(first.closes)}"


def _members(client: ControlClient, name: str) -> list[s.Machine]:
    """Return the machines of a group, or of all groups of a scale set, that exist."""
    named = [group.name for group in client.groups() if name in (group.name, group.scale_set)]
    return [machine for group in named for machine in client.machines(group=group, gone=False)]


def _deletable(client: ControlClient, name: str) -> list[str]:
    """Return the names of those that are not being deleted already, in the order of their
    numbers."""
    members = _members(client, name)
    leaving = {
        machine
        for group in {member.group for member in members}
        for event in client.events(group=group)
        if event.type in DELETING
        for machine in event.machines
    }
    names = [member.name for member in members if member.name not in leaving]
    return sorted(names, key=lambda member: (len(member), member))


def _print_policy(group: s.GroupOutcome, client: ControlClient) -> None:
    print_fields([("group", group.name), *_policy(group)])
    print_notes(group.notes)
    print_clock(client)


def _policy(group: s.Group) -> list[tuple[str, str]]:
    limit, notice = group.user_event_limit, group.terminate_notice
    return [
        ("user events", "no limit" if limit is None else f"at most {limit} at a time"),
        ("approved automatically", ", ".join(group.auto_approve) or "none"),
        ("if all machines are down", "approved" if group.all_instances_down else "not approved"),
        (
            "notice of deletions",
            "none" if notice is None else in_words(round(notice * SECOND)),
        ),
        (
            "notice of reimages",
            "none" if group.image_notice is None else in_words(round(group.image_notice * SECOND)),
        ),
        ("Event Grid, Resource Graph", "published" if group.event_grid else "not published"),
        ("windows", "; ".join(group.windows) or "at any time"),
        ("blackouts", "; ".join(group.blackouts) or "none"),
        ("may postpone", group.may_postpone or "nothing"),
        ("events are over", _over_when(group)),
    ]


def _over_when(group: s.Group) -> str:
    within = "" if group.back_within is None else in_words(round(group.back_within * SECOND))
    back = "when their machines have polled again" + (f", or after {within}" if within else "")
    match group.over_when:
        case "heard":
            return back
        case "carried-out":
            return "when they were carried out"
    return "by default" + (f", machines are back within {within}" if within else "")


def _eviction(client: ControlClient, name: str) -> str:
    spot = [machine.name for machine in _members(client, name) if machine.spot]
    what = f"{counted(len(spot), 'spot machine')} of {name}"
    return f"{what} would be evicted: {listing(spot)}" if spot else ""


def _scaling_in(client: ControlClient, name: str, request: s.ScaleInRequest) -> str:
    members = _deletable(client, name)
    leaving = len(members) - (request.to or 0) if request.count is None else request.count
    if not 0 < leaving <= len(members):  # which is refused, or there is nothing to do
        return ""
    return (
        f"{leaving} of the {counted(len(members), 'machine')} of {name} would be deleted:"
        f" {listing(members[: -leaving - 1 : -1])}"
    )


add_commands(
    app,
    "group",
    operations,
    prints={
        operations.LIST_GROUPS: GROUPS,
        operations.GET_GROUP: _print_group,
        operations.GET_GROUP_WINDOWS: _print_windows,
        operations.SET_POLICY: _print_policy,
    },
    concerns={operations.EVICT_GROUP: _eviction, operations.SCALE_IN: _scaling_in},
)
