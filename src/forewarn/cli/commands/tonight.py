"""`forewarn tonight`: what is going to be disturbed, and who has not approved it."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.cli.options import Fields
from forewarn.cli.output import Json, Url, print_json, print_table, say, service, time_text
from forewarn.cli.plain import takes
from forewarn.control.operations import events as operations
from forewarn.control.schema import tonight as s
from forewarn.support.text import counted

SHOWN = 3  # names in one cell


@takes(operations.GET_TONIGHT)
def tonight(fields: Fields, json: Json = False, url: Url = None) -> None:
    """Show what is going to be disturbed in the next 24 hours, or in another time: announced
    events, what running rollouts are still to announce, windows and blackouts; and who has not
    approved an event, or was never shown it."""
    with service(url) as client:
        found = client.call(operations.GET_TONIGHT, **fields)
    if json:
        print_json(found)
    else:
        _print(found, fields.get("sums") or fields.get("by") or "host")


def _print(found: s.Tonight, rows_are: str) -> None:
    say(f"{time_text(found.begins)} to {time_text(found.ends)}")
    if found.disturbances:
        say(
            f"{counted(found.machines, 'machine')} on {counted(found.hosts, 'host')}"
            f" {'is' if found.machines == 1 else 'are'} disturbed"
        )
    if found.not_approved:
        say(
            f"{found.not_approved:,} of {counted(found.announced, 'announced disturbance')}"
            f" {'is' if found.not_approved == 1 else 'are'} not approved by all groups"
        )
    if found.not_shown:
        verb = "was" if found.not_shown == 1 else "were"
        say(f"{counted(found.not_shown, 'machine')} {verb} never shown what is announced")
    rows = [
        (row.name or "none", *_cells(found.disturbances[number]))
        for row in found.rows
        for number in row.disturbances
    ]
    columns = ("BEGINS", "ENDS", "WHAT", "STATUS", "MACHINES", "NOT APPROVED BY", "NEVER SHOWN TO")
    print_table(
        (rows_are.upper(), *columns),
        rows,
        minor=("ENDS", "STATUS"),
        if_empty="nothing is going to be disturbed",
    )
    if found.left_out:
        say(f"and {counted(found.left_out, 'later one')}; choose a shorter time, or a group")
    if found.open_or_closed:
        say("")
        print_table(
            ("", "BEGINS", "ENDS", "FOR", "AS WRITTEN"),
            [_open(item) for item in found.open_or_closed],
        )


def _cells(item: s.Disturbance) -> tuple[str, ...]:
    machines = _first(item.names, item.machines)
    what = f"{item.type} of {f'host {item.host}' if item.host else machines}"
    if item.steps:
        what = f"{item.type}, wave {item.wave} of rollout {item.rollout[:8]}"
    return (
        time_text(item.begins),
        time_text(item.ends),
        what,
        item.status,
        f"{item.machines:,}",
        _first(item.not_approved, len(item.not_approved)),
        _first(item.not_shown_names, item.not_shown or 0),
    )


def _first(names: Sequence[str], number: int) -> str:
    """Return the first of a number of names, and how many more there are."""
    more = f" and {number - SHOWN:,} more" if number > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _open(item: s.OpenOrClosed) -> tuple[str, ...]:
    whom = item.name and f"{item.name} ({item.select or 'all machines'})"
    if item.groups:
        whom = f"group {_first(item.groups, len(item.groups) + item.more_groups)}"
    kind = "blackout" if item.blackout else "window"
    return kind, time_text(item.begins), time_text(item.ends), whom, item.text
