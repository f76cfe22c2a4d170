"""The shapes of rollouts in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.core import Hold
from forewarn.control.schema.types import doc


class RolloutRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: Annotated[w.TypeName, doc("Type of the event.")]
    groups: w.Selected = []
    labels: Annotated[w.Selected, doc("Selectors of groups, of which one has to match.")] = []
    hosts: Annotated[w.Selected, doc("Names of hosts, or patterns with * and ?.")] = []
    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; if left out, the type's promised notice."),
    ] = None
    short_notice: Annotated[bool, doc("Allow less notice than is promised.")] = False
    description: Annotated[w.Text, doc("Text shown to guests.")] = ""
    duration: Annotated[w.Impact, doc("Seconds that the impact takes; 0: none, -1: unknown.")] = -1
    at_once: Annotated[
        int,
        w.documented(minimum=1, maximum="MAX_AT_ONCE"),
        doc("How many lanes may be under way at the same time."),
    ] = 1
    windows: Annotated[
        list[str],
        w.documented(maxItems="MAX_WINDOWS"),
        doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`."),
    ] = []
    gate_http: Annotated[str, doc("URL that has to answer 2xx before the next step.")] = ""
    gate_command: Annotated[
        str, doc("Name of a gate program in the service's settings; it has to exit with 0.")
    ] = ""
    gate_timeout: Annotated[
        Annotated[float, w.documented(minimum=1, maximum="MAX_GATE_TIMEOUT")] | None,
        doc("Seconds to wait for the gate."),
    ] = None
    bake: Annotated[
        float, w.documented(minimum=0, maximum="MAX_BAKE"), doc("Seconds to wait after each step.")
    ] = 0
    lasts: Annotated[
        float | None, doc("Of a plan: seconds that an event is assumed to stay Started.")
    ] = None


class SwitchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[w.Text, doc("Reason; it is recorded in the history.")] = ""


class Switch(msgspec.Struct, kw_only=True):
    by: Annotated[str, doc("Who did it.")]
    at: w.Moment
    reason: Annotated[str, doc("Reason; it is recorded in the history.")] = ""


class Step(msgspec.Struct, kw_only=True):
    lane: Annotated[str, doc("Lane: steps that are carried out one after the other.")]
    state: Annotated[w.StepState, doc("State of the step.")]
    machines: list[str]
    update_domain: Annotated[
        int | None, doc("Of a group, one update domain is disturbed at a time.")
    ] = None
    host: Annotated[str, doc("Host it is on, or about.")] = ""
    events: Annotated[list[str], doc("Ids of its events.")] = []
    not_before: Annotated[w.Moment | None, doc("Earliest start.")] = None
    started_at: Annotated[w.Moment | None, doc("When it started.")] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null while it has not.")] = None


class Wait(msgspec.Struct, kw_only=True):
    kind: Annotated[w.WaitKind, doc("What kind of wait it is.")]
    message: Annotated[str, doc("The same as one sentence.")]
    since: Annotated[w.Moment, doc("Since when.")]
    lane: Annotated[str, doc("Lane: steps that are carried out one after the other.")] = ""
    until: Annotated[w.Moment | None, doc("Latest time at which that ends, if there is one.")] = (
        None
    )
    unblocked_by: Annotated[str, doc("Who or what can unblock it.")] = ""
    events: Annotated[list[str], doc("Ids of the events it is about.")] = []


class Rollout(msgspec.Struct, kw_only=True):
    id: str
    type: Annotated[w.TypeName, doc("Type of the event.")]
    state: Annotated[w.StateName, doc("State of the rollout.")]
    selection: Annotated[str, doc("What was selected, as text.")]
    by: Annotated[str, doc("Who did it.")]
    created_at: Annotated[w.Moment, doc("When it was created.")]
    steps_done: int
    steps_total: int
    at_once: Annotated[int, doc("How many lanes may be under way at the same time.")]
    notice: Annotated[
        float,
        doc("Seconds between announcement and start; if left out, the type's promised notice."),
    ]
    description: Annotated[str, doc("Text shown to guests.")] = ""
    windows: Annotated[
        list[str], doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`.")
    ] = []
    gate: Annotated[str, doc("Its gate, as text.")] = ""
    gate_timeout: Annotated[float | None, doc("Seconds to wait for the gate.")] = None
    bake: Annotated[float, doc("Seconds to wait after each step.")] = 0
    paused: Switch | None = None
    resumed: Switch | None = None
    aborted: Switch | None = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null while it has not.")] = None


class RolloutReport(Rollout, kw_only=True):
    steps: list[Step] = []
    waits: Annotated[list[Wait], doc("What it waits for.")] = []


class EventHolds(msgspec.Struct, kw_only=True):
    """What one event of a rollout waits for."""

    event: str
    status: Annotated[w.StatusName, doc("Status of the event.")]
    message: Annotated[str, doc("The same as one sentence.")]
    holds: Annotated[list[Hold], doc("What holds it back.")] = []


class WaitExplained(Wait, kw_only=True):
    details: list[EventHolds] = []


class RolloutExplanation(msgspec.Struct, kw_only=True):
    rollout: Rollout
    message: Annotated[str, doc("The same as one sentence.")]
    waits: Annotated[list[WaitExplained], doc("What it waits for.")] = []


class Planned(msgspec.Struct, kw_only=True):
    lane: Annotated[str, doc("Lane: steps that are carried out one after the other.")]
    machines: list[str]
    announced_at: Annotated[w.Moment, doc("When the step would be announced.")]
    not_before: Annotated[w.Moment, doc("Earliest start.")]
    ends_at: Annotated[w.Moment, doc("When the step would end.")]
    update_domain: Annotated[
        int | None, doc("Of a group, one update domain is disturbed at a time.")
    ] = None
    host: Annotated[str, doc("Host it is on, or about.")] = ""


class RolloutPlan(msgspec.Struct, kw_only=True):
    type: Annotated[w.TypeName, doc("Type of the event.")]
    selection: Annotated[str, doc("What was selected, as text.")]
    zone: Annotated[str, doc("Time zone of the windows; UTC without one.")]
    steps: list[Planned]
    done_at: w.Moment | None = None
    omitted: Annotated[int, doc("How many more steps there are.")] = 0
    message: Annotated[str, doc("Why the plan ends early; empty if it does not.")] = ""
