"""Types of halts in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc
from forewarn.support import limits

HaltNote = Annotated[str, Meta(max_length=limits.MAX_HALT_NOTE)]


class HaltRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to halt: without groups and label, the whole fleet."""

    groups: Annotated[
        list[str],
        Meta(max_length=limits.MAX_HALT_GROUPS),
        doc("Only machines of these groups."),
    ] = []
    label: Annotated[
        str, doc("Label selector: only machines that match, within the groups if any are given.")
    ] = ""
    host_label: Annotated[
        str,
        doc("Label selector of hosts: only machines that are, or may be, on a host that matches."),
    ] = ""
    note: Annotated[HaltNote, doc("Reason; shown wherever an event waits for the halt.")] = ""
    plan: Annotated[bool, doc("Return what the halt would cover, without placing it.")] = False


class ReleaseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a halt is released."""

    note: Annotated[HaltNote, doc("Reason; recorded in the history.")] = ""


class Halt(msgspec.Struct, kw_only=True):
    """A halt: no event that it covers starts until it is released."""

    id: Annotated[str, doc("Id of the halt; empty: of a plan.")]
    at: Annotated[w.Moment, doc("When it was placed.")]
    by: Annotated[str, doc("Who has placed it.")]
    note: Annotated[str, doc("Reason; shown wherever an event waits for the halt.")]
    groups: Annotated[list[str], doc("The groups that it covers; empty: all.")]
    label: Annotated[str, doc("Selector of the machines that it covers; empty: all.")]
    host_label: Annotated[str, doc("Selector of hosts whose machines it covers; empty: all.")]
    scope: Annotated[str, doc("What it covers, in words.")]
    machines: Annotated[int, doc("How many machines it covers now.")]
    events: Annotated[int, doc("How many Scheduled events it keeps from starting now.")]
    notes: Annotated[list[str], doc("Notes for the caller.")] = []
