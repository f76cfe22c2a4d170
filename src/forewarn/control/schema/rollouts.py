"""Types of rollouts in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.core import Hold
from forewarn.control.schema.types import doc


class RolloutRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rollout to start or to plan."""

    type: Annotated[w.TypeName, doc("Type of the event.")]
    groups: w.Selected = []
    labels: Annotated[
        w.Selected, doc("Label selectors of groups; a group is selected if any of them matches.")
    ] = []
    hosts: Annotated[w.Selected, doc("Names of hosts, or patterns with * and ?.")] = []
    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; by default, the minimum notice of the type."),
    ] = None
    short_notice: Annotated[bool, doc("Allow less than the minimum notice of the type.")] = False
    description: Annotated[w.Text, doc("Text shown to guests.")] = ""
    duration: Annotated[
        w.Impact, doc("Seconds that the impact lasts; 0: no impact, -1: unknown.")
    ] = -1
    at_once: Annotated[
        int,
        w.documented(minimum=1, maximum="MAX_AT_ONCE"),
        doc("How many lanes may be in progress at the same time."),
    ] = 1
    windows: Annotated[
        list[str],
        w.documented(maxItems="MAX_WINDOWS"),
        doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`."),
    ] = []
    gate_http: Annotated[str, doc("URL that has to answer with 2xx before the next step.")] = ""
    gate_command: Annotated[
        str, doc("Name of a gate command in the service's settings; it has to exit with 0.")
    ] = ""
    gate_timeout: Annotated[
        Annotated[float, w.documented(minimum=1, maximum="MAX_GATE_TIMEOUT")] | None,
        doc("Seconds to wait for the gate."),
    ] = None
    bake: Annotated[
        float, w.documented(minimum=0, maximum="MAX_BAKE"), doc("Seconds to wait after each step.")
    ] = 0
    lasts: Annotated[
        float | None, doc("Only for a plan: seconds that an event is assumed to last.")
    ] = None


class SwitchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a rollout is paused or aborted."""

    reason: Annotated[w.Text, doc("Reason; it is recorded in the history.")] = ""


class Switch(msgspec.Struct, kw_only=True):
    """Who paused, resumed or aborted a rollout, and when."""

    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")]
    at: w.Moment
    reason: Annotated[str, doc("Reason; it is recorded in the history.")] = ""


class Step(msgspec.Struct, kw_only=True):
    """A step of a rollout, and its progress."""

    lane: Annotated[str, doc("Lane; its steps follow each other.")]
    state: Annotated[w.StepState, doc("State of the step.")]
    machines: list[str]
    update_domain: Annotated[
        int | None, doc("Update domain. Only one update domain of a group is affected at a time.")
    ] = None
    host: Annotated[str, doc("Host of the step; empty: it is about a group.")] = ""
    events: Annotated[list[str], doc("Ids of its events.")] = []
    not_before: Annotated[
        w.Moment | None, doc("Earliest time at which it starts without approval.")
    ] = None
    started_at: Annotated[w.Moment | None, doc("When it started.")] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null until then.")] = None


class Wait(msgspec.Struct, kw_only=True):
    """Something that a rollout waits for."""

    kind: Annotated[w.WaitKind, doc("Kind of the wait.")]
    message: Annotated[str, doc("Explanation for people.")]
    since: Annotated[w.Moment, doc("Start of this state.")]
    lane: Annotated[str, doc("Lane; its steps follow each other.")] = ""
    until: Annotated[w.Moment | None, doc("Time at which it ends at the latest, if known.")] = None
    unblocked_by: Annotated[str, doc("Who or what can resolve it.")] = ""
    events: Annotated[list[str], doc("Ids of the events that it waits for.")] = []


class Rollout(msgspec.Struct, kw_only=True):
    """A rollout, and how many of its steps are done."""

    id: str
    type: Annotated[w.TypeName, doc("Type of the event.")]
    state: Annotated[w.StateName, doc("State of the rollout.")]
    selection: Annotated[str, doc("The selection, as text.")]
    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")]
    created_at: Annotated[w.Moment, doc("When it was created.")]
    steps_done: int
    steps_total: int
    at_once: Annotated[int, doc("How many lanes may be in progress at the same time.")]
    notice: Annotated[
        float,
        doc("Seconds between announcement and start; by default, the minimum notice of the type."),
    ]
    description: Annotated[str, doc("Text shown to guests.")] = ""
    windows: Annotated[
        list[str], doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`.")
    ] = []
    gate: Annotated[str, doc("The gate, as text.")] = ""
    gate_timeout: Annotated[float | None, doc("Seconds to wait for the gate.")] = None
    bake: Annotated[float, doc("Seconds to wait after each step.")] = 0
    paused: Switch | None = None
    resumed: Switch | None = None
    aborted: Switch | None = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null until then.")] = None


class RolloutReport(Rollout, kw_only=True):
    """A rollout with its steps and what it waits for."""

    steps: list[Step] = []
    waits: Annotated[list[Wait], doc("What it waits for.")] = []


class EventHolds(msgspec.Struct, kw_only=True):
    """An event of a rollout, and what it waits for."""

    event: str
    status: Annotated[w.StatusName, doc("Status of the event.")]
    message: Annotated[str, doc("Explanation for people.")]
    holds: Annotated[list[Hold], doc("Reasons why it has not started.")] = []


class WaitExplained(Wait, kw_only=True):
    """Something that a rollout waits for, with the events concerned."""

    details: list[EventHolds] = []


class RolloutExplanation(msgspec.Struct, kw_only=True):
    """What a rollout waits for."""

    rollout: Rollout
    message: Annotated[str, doc("Explanation for people.")]
    waits: Annotated[list[WaitExplained], doc("What it waits for.")] = []


class Planned(msgspec.Struct, kw_only=True):
    """A step of a planned rollout."""

    lane: Annotated[str, doc("Lane; its steps follow each other.")]
    machines: list[str]
    announced_at: Annotated[w.Moment, doc("When the step would be announced.")]
    not_before: Annotated[w.Moment, doc("Earliest time at which it starts without approval.")]
    ends_at: Annotated[w.Moment, doc("When the step would end.")]
    update_domain: Annotated[
        int | None, doc("Update domain. Only one update domain of a group is affected at a time.")
    ] = None
    host: Annotated[str, doc("Host of the step; empty: it is about a group.")] = ""


class RolloutPlan(msgspec.Struct, kw_only=True):
    """The steps that a rollout would take."""

    type: Annotated[w.TypeName, doc("Type of the event.")]
    selection: Annotated[str, doc("The selection, as text.")]
    zone: Annotated[str, doc("Time zone of the windows; UTC if there are none.")]
    steps: list[Planned]
    done_at: w.Moment | None = None
    omitted: Annotated[int, doc("How many more steps there are.")] = 0
    message: Annotated[str, doc("Why the plan ends early; empty if it does not.")] = ""
