"""`forewarn group`: list, show, disable, policy, evict, scale-in."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import print_outcomes
from forewarn.cli.output import (
    Json,
    Url,
    parsed,
    print_clock,
    print_fields,
    print_json,
    print_table,
    say,
    service,
)
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import in_words, parse_duration

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the group.", autocompletion=completion.groups)]


@app.command("list")
def list_(
    label: Annotated[
        str | None,
        typer.Option(help="Only groups of machines with these labels, e.g. tier=web,!canary."),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all groups, and whether Scheduled Events are enabled for them."""
    with service(url) as client:
        groups = client.groups(label)
        if json:
            print_json(groups)
            return
        rows = [
            (
                group.name,
                group.kind,
                "yes" if group.enabled else "no",
                str(group.incarnation or ""),
                str(len(group.machines)),
                str(len(group.events)),
            )
            for group in groups
        ]
        print_table(
            ("GROUP", "KIND", "ENABLED", "INCARNATION", "MACHINES", "EVENTS"),
            rows,
            minor=("INCARNATION", "KIND"),
            if_empty="no group matches"
            if label
            else "there are no groups; add some with 'forewarn apply FLEET.yaml'",
        )
        print_clock(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one group."""
    with service(url) as client:
        group = client.group(name)
        if json:
            print_json(group)
            return
        print_fields(
            [
                ("group", group.name),
                ("kind", group.kind),
                ("enabled", "yes" if group.enabled else "no: none of its machines polls"),
                ("incarnation", str(group.incarnation) if group.enabled else "none"),
                ("machines", ", ".join(group.machines)),
                ("labels", ", ".join(f"{k}={v}" for k, v in group.labels.items()) or "none"),
                ("events", ", ".join(group.events) or "none"),
                *_policy(group),
            ]
        )
        print_clock(client)


@app.command()
def evict(name: Name, json: Json = False, url: Url = None) -> None:
    """Evict all spot machines of a group or scale set: a Preempt for each."""
    with service(url) as client:
        print_outcomes(client.evict_group(name), json, client)


@app.command("scale-in")
def scale_in(
    name: Name,
    count: Annotated[int | None, typer.Option(help="Number of machines to delete.")] = None,
    to: Annotated[int | None, typer.Option(help="Number of machines to keep.")] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Delete instances of a scale set, those with the highest numbers first."""
    if (count is None) == (to is None):
        raise typer.BadParameter("pass either --count or --to")
    with service(url) as client:
        print_outcomes(client.scale_in(name, s.ScaleInRequest(count=count, to=to)), json, client)


@app.command()
def policy(
    name: Name,
    user_event_limit: Annotated[
        str | None, typer.Option(help="Maximum number of Scheduled user events, or 'none'.")
    ] = None,
    auto_approve: Annotated[
        str | None,
        typer.Option(help="Event types to approve automatically: Reboot,Redeploy or 'none'."),
    ] = None,
    all_instances_down: Annotated[
        bool | None, typer.Option(help="Approve user events while all machines are down.")
    ] = None,
    terminate_notice: Annotated[
        str | None, typer.Option(help="Notice of a deletion: 5m to 15m, or 'off'.")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Show a group's policy, or change the given parts of it."""
    request = s.PolicyRequest()
    if user_event_limit is not None:
        request.user_event_limit = parsed(_count, user_event_limit, "--user-event-limit")
    if auto_approve is not None:
        types = [] if auto_approve.lower() == "none" else auto_approve.split(",")
        request.auto_approve = [type.strip() for type in types]
    if all_instances_down is not None:
        request.all_instances_down = all_instances_down
    if terminate_notice is not None:
        off = terminate_notice.lower() == "off"
        notice = None if off else parsed(parse_duration, terminate_notice, "--terminate-notice")
        request.terminate_notice = None if notice is None else notice / SECOND
    with service(url) as client:
        group = client.set_policy(name, request)
        if json:
            print_json(group)
            return
        print_fields([("group", group.name), *_policy(group)])
        print_clock(client)


def _count(text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not text.isdecimal():
        raise ValueError(f"'{text}' is not a number; pass one, or 'none' for no limit")
    return int(text)


def _policy(group: s.Group) -> list[tuple[str, str]]:
    limit, notice = group.user_event_limit, group.terminate_notice
    return [
        ("user events", "no limit" if limit is None else f"at most {limit} at a time"),
        ("approved automatically", ", ".join(group.auto_approve) or "nothing"),
        ("while all are down", "approved" if group.all_instances_down else "not approved"),
        (
            "notice of deletions",
            "none" if notice is None else in_words(round(notice * SECOND)),
        ),
    ]


@app.command()
def disable(name: Name, json: Json = False, url: Url = None) -> None:
    """Disable Scheduled Events for a group, as happens after a day without a poll."""
    with service(url) as client:
        group = client.disable(name)
        if json:
            print_json(group)
        else:
            say(f"group '{group.name}' is disabled; the next poll enables it again")
            print_clock(client)
