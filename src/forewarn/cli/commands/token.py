"""`forewarn token`: who may ask. Through the service, or on a state file while none runs.

A new token goes to standard output alone, so that it can be piped into a file; all else that is
said about it goes to standard error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.output import (
    Json,
    Url,
    as_json,
    fail,
    moment,
    notes,
    parsed,
    say,
    service,
    table,
)
from forewarn.control.schema import tokens as t
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)

State = Annotated[
    Path | None,
    typer.Option(help="Use this state file of a stopped service instead of a running service."),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of its user, as shown in the history.")],
    role: Annotated[str, typer.Option(help="Role: viewer, operator or admin.")],
    group: Annotated[
        list[str] | None, typer.Option(help="Only for this group. Repeatable.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Restrict the token to groups with these labels: tier=web,!canary."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="Expiry: 90d (from now), or 2027-01-15T08:00:00Z. Default: never."),
    ] = None,
    state: State = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    request = t.TokenRequest(
        name=name, role=role, groups=group or None, label=label, **_expiry(expires)
    )
    made: t.CreatedToken
    if state is not None:
        new = not state.exists()
        made = _offline(state, url, lambda there: there.create(request))
        if new:
            say(f"note: {state} was made, with {state.name}.lock{_whose(state)}", err=True)
    else:
        with service(url) as client:
            made = client.create_token(request)
    notes(made.notes)
    if json:
        as_json(made)
        return
    ends = f"until {moment(made.expires_at)}" if made.expires_at else "until it is revoked"
    say(f"token {made.id} for '{made.name}', {made.role}{_limit(made)}, valid {ends}", err=True)
    say("the token cannot be shown again; store it where only its user can read it", err=True)
    typer.echo(made.token)


@app.command("list")
def list_(state: State = None, json: Json = False, url: Url = None) -> None:
    """List all tokens, including those that are no longer valid."""
    found: list[t.Token]
    if state is not None:
        _there(state)
        found = _listed(state, url)
    else:
        with service(url) as client:
            found = client.tokens()
    if json:
        as_json(found)
        return
    if not found:
        say("there are no tokens: local clients need none")
        return
    rows = [
        (
            token.id,
            token.name,
            token.role + _limit(token),
            token.state,
            moment(token.created_at),
            moment(token.expires_at) or "never",
            moment(token.last_used) or "never",
        )
        for token in found
    ]
    table(("ID", "NAME", "ROLE", "STATE", "CREATED", "EXPIRES", "LAST USED"), rows)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="ID or name of the token.", metavar="ID-OR-NAME")],
    force: Annotated[
        bool, typer.Option("--force", help="Revoke even the last token of an admin.")
    ] = False,
    state: State = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Revoke a token."""
    request = t.RevokeRequest(force=force)
    done: t.Token
    if state is not None:
        _there(state)
        done = _offline(state, url, lambda there: there.revoke(token, request))
    else:
        with service(url) as client:
            done = client.revoke_token(token, request)
    if json:
        as_json(done)
    else:
        say(f"token {done.id} ({done.name}) is revoked")


def _whose(state: Path) -> str:
    try:
        return f"; they belong to {state.owner()}, as whom the service has to run"
    except (KeyError, OSError):
        return "; the service's user must be able to write both"


def _limit(token: t.Token) -> str:
    said = [*token.groups, *([token.label] if token.label else [])]
    return f" of {', '.join(said)}" if said else ""


def _expiry(text: str | None) -> dict[str, Any]:
    """How long it lasts, or until when."""
    if text is None:
        return {}
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return {"expires_in": parsed(parse_duration, text) / SECOND}
    return {"expires_at": at if at.tzinfo else at.replace(tzinfo=UTC)}


def _there(state: Path) -> None:
    if not state.is_file():
        fail(f"{state}: there is no such state file")


def _listed(state: Path, url: str | None) -> list[t.Token]:
    """Without taking the file up, be it a copy or a service's."""
    _no_service(url)
    from forewarn.cli.commands.token_offline import listed
    from forewarn.store import StoreUnusable

    try:
        return listed(state)
    except StoreUnusable as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")


def _no_service(url: str | None) -> None:
    if url is not None:
        raise typer.BadParameter("pass either --state or --url (or FOREWARN_URL), not both")
    from forewarn.cli.commands.service_options import need_server

    need_server()


def _offline(state: Path, url: str | None, work: Callable[[Any], Awaitable[Any]]) -> Any:
    _no_service(url)
    from forewarn.cli.commands.token_offline import OfflineTokens, Refusal
    from forewarn.service.telemetry import log
    from forewarn.store import OutcomeUnknown, StoreFailed, StoreUnusable

    log.configure("console")  # on standard error: a token is piped from the other

    async def done() -> Any:
        async with OfflineTokens.at(state) as there:
            return await work(there)

    try:
        return asyncio.run(done())
    except (Refusal, StoreUnusable, StoreFailed, OutcomeUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")
