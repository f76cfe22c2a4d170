"""The shapes of rollouts in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.core import Hold


class RolloutRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: w.TypeName
    groups: w.Few = []
    labels: w.Few = []  # selectors; one of them must match
    hosts: w.Few = []  # names, or patterns with * and ?
    notice: w.Notice | None = None
    short_notice: bool = False
    description: w.Words = ""
    duration: w.Impact = -1
    at_once: int = 1
    windows: list[str] = []
    gate_http: str = ""
    gate_command: str = ""
    gate_timeout: float | None = None
    bake: float = 0
    lasts: float | None = None  # for a plan: how long an event stays Started


class SwitchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: w.Words = ""


class Switch(msgspec.Struct, kw_only=True):
    by: str
    at: w.Moment
    reason: str = ""


class Step(msgspec.Struct, kw_only=True):
    lane: str
    state: w.StepState
    machines: list[str]
    update_domain: int | None = None
    host: str = ""
    events: list[str] = []
    not_before: w.Moment | None = None
    started_at: w.Moment | None = None
    ended_at: w.Moment | None = None


class Wait(msgspec.Struct, kw_only=True):
    kind: w.WaitKind
    message: str
    since: w.Moment
    lane: str = ""
    until: w.Moment | None = None
    unblocked_by: str = ""
    events: list[str] = []


class Rollout(msgspec.Struct, kw_only=True):
    id: str
    type: w.TypeName
    state: w.StateName
    selection: str
    by: str
    created_at: w.Moment
    steps_done: int
    steps_total: int
    at_once: int
    notice: float
    description: str = ""
    windows: list[str] = []
    gate: str = ""
    gate_timeout: float | None = None
    bake: float = 0
    paused: Switch | None = None
    resumed: Switch | None = None
    aborted: Switch | None = None
    ended_at: w.Moment | None = None


class RolloutReport(Rollout, kw_only=True):
    steps: list[Step] = []
    waits: list[Wait] = []


class EventHolds(msgspec.Struct, kw_only=True):
    """What one event of a rollout waits for."""

    event: str
    status: w.StatusName
    message: str
    holds: list[Hold] = []


class WaitExplained(Wait, kw_only=True):
    details: list[EventHolds] = []


class RolloutExplanation(msgspec.Struct, kw_only=True):
    rollout: Rollout
    message: str
    waits: list[WaitExplained] = []


class Planned(msgspec.Struct, kw_only=True):
    lane: str
    machines: list[str]
    announced_at: w.Moment
    not_before: w.Moment
    ends_at: w.Moment
    update_domain: int | None = None
    host: str = ""


class RolloutPlan(msgspec.Struct, kw_only=True):
    type: w.TypeName
    selection: str
    zone: str  # of the windows; UTC without one
    steps: list[Planned]
    done_at: w.Moment | None = None
    omitted: int = 0  # steps that were not looked at
    message: str = ""
