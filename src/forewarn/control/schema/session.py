"""Types of sessions in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.core import Leader
from forewarn.control.schema.tokens import ROLES
from forewarn.control.schema.types import Moment, doc


class EventTypeInfo(msgspec.Struct, kw_only=True):
    """A type of event, and what one may choose it for."""

    name: Annotated[str, doc("Name of the type.")]
    by_user: Annotated[bool, doc("Whether users can request it.")]
    host_maintenance: Annotated[bool, doc("Whether it can be the maintenance of a whole host.")]
    relocates: Annotated[bool, doc("Whether its machines are on another host afterwards.")]
    deletes: Annotated[bool, doc("Whether its machines no longer exist afterwards.")]


class Session(msgspec.Struct, kw_only=True):
    """Who the caller is."""

    name: Annotated[str, doc("Name of the caller, as the history shows it.")]
    role: Annotated[str, doc(ROLES)]
    limited: Annotated[bool, doc("Whether the caller is limited to some groups.")] = False
    needs_token: Annotated[
        bool, doc("Whether requests need a token; if not, local programs can do everything.")
    ] = True
    login: Annotated[
        str,
        doc(
            "Path at which a browser can log in at the OpenID Connect issuer; empty: there is none."
        ),
    ] = ""
    expires_at: Annotated[Moment | None, doc("When the browser's session ends; null: none.")] = None
    operations: Annotated[
        list[str],
        doc(
            "The operations that change something and that the caller may use, by their"
            " `operationId` in the OpenAPI document. Whether one is refused still depends on what"
            " it is used for. Empty on a control node that follows, which refuses changes."
        ),
    ] = []
    event_types: Annotated[list[EventTypeInfo], doc("All types of events.")] = []
    decides: Annotated[
        bool, doc("Whether this control node decides; one that follows refuses changes.")
    ] = True
    leader: Annotated[
        Leader | None,
        doc("The control node that decides, if another one does and the caller is known."),
    ] = None
