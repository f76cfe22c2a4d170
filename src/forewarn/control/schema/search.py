"""What a search finds, in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.types import doc


class Hit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that a search has found."""

    kind: Annotated[str, doc("`machine`, `group`, `host`, `event` or `rollout`.")]
    name: Annotated[str, doc("Its name, or the id of an event or a rollout.")]
    group: Annotated[str, doc("Group of the machine or event.")] = ""
    type: Annotated[str, doc("Type of the event or rollout.")] = ""
    machines: Annotated[list[str], doc("Machines that the event affects.")] = []


class Hits(msgspec.Struct, kw_only=True):
    """What a search has found."""

    hits: Annotated[list[Hit], doc("The best of each kind.")]
