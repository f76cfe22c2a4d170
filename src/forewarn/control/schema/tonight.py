"""Types of what is going to be disturbed, in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc


class Disturbance(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An announced event, or several that start together, or steps that a rollout is still to
    announce: those of one wave and one window, in one row."""

    type: Annotated[str, doc("Type of the event, or of the rollout.")]
    status: Annotated[str, doc("`Scheduled`, `Started`, or `Planned` if not announced yet.")]
    begins: Annotated[w.Moment, doc("When it starts, as far as that is known.")]
    ends: Annotated[w.Moment | None, doc("When it is expected to end; null: not known.")] = None
    rows: Annotated[list[str], doc("Names of the rows that it is in.")]
    machines: Annotated[int, doc("Number of machines.")]
    names: Annotated[list[str], doc("The first of the machines.")] = []
    groups: Annotated[list[str], doc("Groups of the machines.")] = []
    host: Annotated[str, doc("The host whose maintenance it is; empty: of none.")] = ""
    events: Annotated[list[str], doc("Ids of the events.")] = []
    rollout: Annotated[str, doc("Id of the rollout; empty: of none.")] = ""
    wave: Annotated[int, doc("Number of the wave of planned steps, from 1.")] = 0
    steps: Annotated[int, doc("Number of planned steps.")] = 0
    description: Annotated[str, doc("Description of the event or rollout.")] = ""
    ticket: w.Ticket = ""
    not_approved: Annotated[
        list[str],
        doc("Groups that could approve it and have not; those not enabled are not asked."),
    ] = []
    approved: Annotated[
        bool, doc("Whether it waits for no notice, because all these groups have approved it.")
    ] = False
    not_shown: Annotated[
        int | None,
        doc("Number of its machines that were never shown it; null: not known here, or planned."),
    ] = None
    not_shown_names: Annotated[list[str], doc("The first of these machines.")] = []


class OpenOrClosed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A time in which a window is open, or in which there is a blackout."""

    name: Annotated[str, doc("Maintenance configuration; empty: of the groups' own policies.")] = ""
    select: Annotated[str, doc("Labels of the machines it is for; empty: all machines.")] = ""
    groups: Annotated[list[str], doc("The first groups whose policy has it.")] = []
    more_groups: Annotated[int, doc("How many other groups have it, too.")] = 0
    blackout: Annotated[bool, doc("Whether it is a blackout rather than a window.")] = False
    text: Annotated[str, doc("The window or blackout, as it was written.")]
    begins: Annotated[w.Moment, doc("When it opens or begins.")]
    ends: Annotated[w.Moment, doc("When it closes or ends.")]


class TonightRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host or group that is going to be disturbed, or all of them with one value of a label."""

    name: Annotated[str, doc("Name, or value of the label; empty: machines that have none.")]
    machines: Annotated[int, doc("Number of machines that are disturbed.")]
    not_shown: Annotated[int, doc("How many of them were never shown their event.")] = 0
    not_approved: Annotated[
        list[str], doc("The first groups of these machines that have not approved their event.")
    ] = []
    more_not_approved: Annotated[int, doc("How many other groups have not, either.")] = 0
    disturbances: Annotated[list[int], doc("Their places in `disturbances`.")]


class Tonight(msgspec.Struct, kw_only=True):
    """What is going to be disturbed in a time, and who has not approved it or never seen it."""

    at: Annotated[w.Moment, doc("The service's time.")]
    begins: Annotated[w.Moment, doc("When the time begins.")]
    ends: Annotated[w.Moment, doc("When the time ends.")]
    machines: Annotated[int, doc("Number of machines that are disturbed.")]
    hosts: Annotated[int, doc("Number of hosts that these are on.")]
    announced: Annotated[int, doc("Number of announced disturbances that have not started.")]
    not_approved: Annotated[int, doc("Number of these that a group has not approved.")]
    not_shown: Annotated[
        int | None, doc("Number of machines that were never shown their event; null: not known.")
    ]
    rows: Annotated[list[TonightRow], doc("What is disturbed, ordered by name.")]
    disturbances: Annotated[list[Disturbance], doc("What disturbs it, the earliest first.")]
    left_out: Annotated[int, doc("How many later disturbances are left out.")]
    open_or_closed: Annotated[list[OpenOrClosed], doc("Windows and blackouts in this time.")]
    labels: Annotated[list[str], doc("Labels by which the rows can be summed.")]
