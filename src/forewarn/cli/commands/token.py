"""`forewarn token`: create, list and revoke tokens, through a service or in its state file while it
is stopped.

A new token is all that is printed to standard output, so that it can be redirected to a file;
everything else goes to standard error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli import completion
from forewarn.cli.commands.service_options import STOPPED_STATE, need_extra
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    fail,
    parsed,
    print_items,
    print_json,
    print_notes,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import takes
from forewarn.cli.values import StateOption
from forewarn.control.operations import tokens as operations
from forewarn.control.schema import tokens as t
from forewarn.core.time import SECOND
from forewarn.support.instants import NoZone, parse_datetime
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)

State = Annotated[StateOption | None, typer.Option(help=STOPPED_STATE)]


@app.command()
@accepts_yes
@takes(operations.CREATE_TOKEN, without=("name", "expires_in", "expires_at"))
def create(
    name: Annotated[str, typer.Argument(help="Name of the token's user, as shown in the history.")],
    fields: Fields,
    expires: Annotated[
        str | None,
        typer.Option(help="Expiry: 90d (from now), or 2027-01-15T08:00:00Z. Default: never."),
    ] = None,
    state: State = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    request = t.TokenRequest(name=name, **fields, **_expiry(expires))
    token: t.CreatedToken
    if state is not None:
        new = isinstance(state, Path) and not state.exists()
        token = _offline(state, url, lambda tokens: tokens.create(request))
        if new and isinstance(state, Path):
            say(f"note: {state} was created, with {state.name}.lock{_owner(state)}", err=True)
    else:
        with service(url) as client:
            token = client.create_token(request)
    print_notes(token.notes)
    if json:
        print_json(token)
        return
    ends = f"until {time_text(token.expires_at)}" if token.expires_at else "until it is revoked"
    say(f"token {token.id} for '{token.name}', {token.role}{_limit(token)}, valid {ends}", err=True)
    say("the token cannot be shown again; store it where only its user can read it", err=True)
    typer.echo(token.token)


TOKENS = Table(
    {
        "ID": "id",
        "NAME": "name",
        "ROLE": lambda token: token.role + _limit(token),
        "STATE": "state",
        "CREATED": "created_at",
        "EXPIRES": lambda token: token.expires_at or "never",
        "LAST USED": lambda token: token.last_used or "never",
    },
    minor=("CREATED", "LAST USED", "EXPIRES"),
    if_empty="there are no tokens; local clients need none",
)


@app.command("list")
def list_(state: State = None, json: Json = False, url: Url = None) -> None:
    """List all tokens, including those that are no longer valid."""
    tokens: list[t.Token]
    if state is not None:
        _check_exists(state)
        tokens = _tokens_in(state, url)
    else:
        with service(url) as client:
            tokens = client.tokens()
    if json:
        print_json(tokens)
        return
    print_items(TOKENS, tokens)


@app.command()
@accepts_yes
def revoke(
    token: Annotated[
        str,
        typer.Argument(
            help="ID or name of the token.", metavar="ID-OR-NAME", autocompletion=completion.tokens
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Revoke even the last admin token.")
    ] = False,
    state: State = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Revoke a token."""
    request = t.RevokeRequest(force=force)
    revoked: t.Token
    if state is not None:
        _check_exists(state)
        revoked = _offline(state, url, lambda tokens: tokens.revoke(token, request))
    else:
        with service(url) as client:
            revoked = client.call(operations.REVOKE_TOKEN, token, request)
    if json:
        print_json(revoked)
    else:
        say(f"token {revoked.id} ({revoked.name}) is revoked")


def _owner(state: Path) -> str:
    try:
        return f"; they belong to {state.owner()}, so the service has to run as that user"
    except (KeyError, OSError):
        return "; the service's user must be able to write both"


def _limit(token: t.Token) -> str:
    limits = [*token.groups, *([token.label] if token.label else [])]
    return f" of {', '.join(limits)}" if limits else ""


def _expiry(text: str | None) -> dict[str, Any]:
    """Return the field of the request for a duration, or for a time."""
    if text is None:
        return {}
    try:
        return {"expires_at": parse_datetime(text)}
    except NoZone as error:
        raise typer.BadParameter(str(error), param_hint="'--expires'") from error
    except ValueError:
        return {"expires_in": parsed(parse_duration, text, "--expires") / SECOND}


def _check_exists(state: StateOption) -> None:
    if isinstance(state, Path) and not state.is_file():
        fail(f"{state}: there is no such state file")


def _tokens_in(state: StateOption, url: str | None) -> list[t.Token]:
    """Return the tokens in a state file, without changing it: it may be a backup, or in use."""
    _check_offline(url)
    from forewarn.cli.commands.token_offline import tokens_in
    from forewarn.store import StoreUnusable

    try:
        return tokens_in(state)
    except StoreUnusable as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")


def _check_offline(url: str | None) -> None:
    if url is not None:
        raise typer.BadParameter("pass either --state or --url (or FOREWARN_URL), not both")
    need_extra("server")


def _offline(state: StateOption, url: str | None, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something with the tokens of a state file that no service uses."""
    _check_offline(url)
    from forewarn.cli.commands.token_offline import OfflineTokens, Refusal
    from forewarn.service.telemetry import log
    from forewarn.store import OutcomeUnknown, StoreFailed, StoreUnusable

    log.configure("console")  # on standard error: standard output is for the token

    async def run() -> Any:
        async with OfflineTokens.at(state) as tokens:
            return await work(tokens)

    try:
        return asyncio.run(run())
    except (Refusal, StoreUnusable, StoreFailed, OutcomeUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")
