"""Types of the notifications: how far each table of the settings has come, and a test."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.types import Moment, doc


class NotifyState(msgspec.Struct, kw_only=True):
    """A [[notify]] table of the settings, and how far its notifications have been delivered."""

    name: Annotated[str, doc("Name of the table.")]
    target: Annotated[str, doc("Kind of its target: `webhook`, `cloudevents`, `apprise`.")]
    where: Annotated[str, doc("Where its messages are sent, without secrets.")]
    state: Annotated[
        str,
        doc("`ok`, `failing` while a message is not delivered, `refused` by the target."),
    ]
    position: Annotated[int, doc("Number of the commit up to which everything is delivered.")]
    behind: Annotated[int, doc("How many commits have not been looked at.")]
    waiting_since: Annotated[
        Moment | None, doc("Time of the change that is being delivered; null: there is none.")
    ] = None
    last_delivery: Annotated[
        Moment | None, doc("When a message was last delivered; null: never.")
    ] = None
    last_error: Annotated[str, doc("Why the last attempt failed; empty if it has succeeded.")] = ""
    messages: Annotated[int, doc("Messages that were delivered since the service started.")] = 0
    failures: Annotated[int, doc("Attempts that failed since the service started.")] = 0
    skipped: Annotated[
        int, doc("Notifications that were too old to be sent, since the service started.")
    ] = 0


class NotifyTest(msgspec.Struct, kw_only=True):
    """The outcome of a test."""

    name: Annotated[str, doc("Name of the table.")]
    id: Annotated[str, doc("Id of the message.")]
    where: Annotated[str, doc("Where its messages are sent, without secrets.")]
    delivered: Annotated[bool, doc("Whether the target has accepted the message.")]
    error: Annotated[str, doc("Why it was not delivered; empty if it was.")] = ""
