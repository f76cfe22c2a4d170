"""`forewarn notify`: how far notifications have been delivered, and test messages."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import Json, Table, Url, fail, print_json, say, service
from forewarn.cli.plain import add_commands
from forewarn.control.operations import feed as operations

app = typer.Typer(no_args_is_help=True)


NOTIFICATIONS = Table(
    {
        "NAME": "name",
        "TARGET": "target",
        "STATE": "state",
        "POSITION": "position",
        "BEHIND": "behind",
        "LAST DELIVERY": lambda state: state.last_delivery or "never",
        "WHERE": "where",
        "LAST ERROR": "last_error",
    },
    minor=("WHERE", "BEHIND", "POSITION"),
    if_empty="nobody is notified; add a table [[notify]] to the settings",
)


@app.command("test")
@accepts_yes
def send_test(
    name: Annotated[
        str,
        typer.Argument(help="Name of the notification.", autocompletion=completion.notifications),
    ],
    json: Json = False,
    url: Url = None,
) -> None:
    """Make the service send a test message. Exits with 1 if it is not delivered."""
    with service(url) as client:
        outcome = client.call(operations.TEST_NOTIFICATION, name)
    if json:
        print_json(outcome)
        raise typer.Exit(0 if outcome.delivered else 1)
    if not outcome.delivered:
        fail(f"the test message was not delivered: {outcome.error}")
    say(f"a test message was delivered to {outcome.where}")


add_commands(
    app,
    "notify",
    operations,
    prints={operations.GET_NOTIFICATIONS: NOTIFICATIONS},
)
