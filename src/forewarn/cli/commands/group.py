"""`forewarn group`: list, show, disable, policy, evict, scale-in."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.commands.event import told_all
from forewarn.cli.output import Json, Url, as_json, fields, pace, parsed, say, service, table
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import in_words, parse_duration

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the group.")]


@app.command("list")
def list_(
    label: Annotated[
        str | None, typer.Option(help="Only machines with these labels: k=v, k!=v, k or !k, …")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all groups, and whether they are listening."""
    with service(url) as client:
        found = client.groups(label)
        if json:
            as_json(found)
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
            for group in found
        ]
        table(("GROUP", "KIND", "LISTENING", "INCARNATION", "MACHINES", "EVENTS"), rows)
        pace(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one group."""
    with service(url) as client:
        found = client.group(name)
        if json:
            as_json(found)
            return
        fields(
            [
                ("group", found.name),
                ("kind", found.kind),
                ("listening", "yes" if found.enabled else "no: no machine has asked for events"),
                ("incarnation", str(found.incarnation) if found.enabled else "none"),
                ("machines", ", ".join(found.machines)),
                ("labels", ", ".join(f"{k}={v}" for k, v in found.labels.items()) or "none"),
                ("events", ", ".join(found.events) or "none"),
                *_policy(found),
            ]
        )
        pace(client)


@app.command()
def evict(name: Name, json: Json = False, url: Url = None) -> None:
    """Evict all spot machines of a group or scale set: a Preempt for each."""
    with service(url) as client:
        told_all(client.evict_group(name), json, client)


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
        told_all(client.scale_in(name, s.ScaleInRequest(count=count, to=to)), json, client)


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
        request.user_event_limit = parsed(_count, user_event_limit)
    if auto_approve is not None:
        said = [] if auto_approve.lower() == "none" else auto_approve.split(",")
        request.auto_approve = [type.strip() for type in said]
    if all_instances_down is not None:
        request.all_instances_down = all_instances_down
    if terminate_notice is not None:
        off = terminate_notice.lower() == "off"
        length = None if off else parsed(parse_duration, terminate_notice)
        request.terminate_notice = None if length is None else length / SECOND
    with service(url) as client:
        found = client.set_policy(name, request)
        if json:
            as_json(found)
            return
        fields([("group", found.name), *_policy(found)])
        pace(client)


def _count(text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not text.isdecimal():
        raise ValueError(f"'{text}' is no number; give one, or 'none' for no limit")
    return int(text)


def _policy(group: s.Group) -> list[tuple[str, str]]:
    limit, notice = group.user_event_limit, group.terminate_notice
    return [
        ("user events", "no limit" if limit is None else f"at most {limit} at a time"),
        ("approved at once", ", ".join(group.auto_approve) or "nothing"),
        ("while all are down", "approved" if group.all_instances_down else "not approved"),
        (
            "told of deletes",
            "no" if notice is None else f"{in_words(round(notice * SECOND))} before",
        ),
    ]


@app.command()
def disable(name: Name, json: Json = False, url: Url = None) -> None:
    """Disable Scheduled Events for a group, as after a day without a poll."""
    with service(url) as client:
        found = client.disable(name)
        if json:
            as_json(found)
        else:
            say(f"group '{found.name}' is disabled; the next poll enables it again")
            pace(client)
