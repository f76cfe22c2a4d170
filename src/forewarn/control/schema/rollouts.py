"""Types of rollouts in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from forewarn.control.schema import types as w
from forewarn.control.schema.core import Hold
from forewarn.control.schema.types import doc
from forewarn.support import limits


class RolloutRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rollout to start or to plan."""

    type: Annotated[
        w.RolloutKind, doc("Type of its events, `live-migration` or `evacuate-work-return`.")
    ]
    groups: Annotated[w.Selected, doc("Names of groups.")] = []
    labels: Annotated[
        w.Selected,
        doc("Label selectors of machines; a machine is selected if any of them matches."),
    ] = []
    machines: Annotated[w.Selected, doc("Names of machines, or patterns with * and ?.")] = []
    hosts: Annotated[w.Selected, doc("Names of hosts, or patterns with * and ?.")] = []
    host_labels: Annotated[
        w.Selected, doc("Label selectors of hosts; a host is selected if any of them matches.")
    ] = []
    exclude_groups: Annotated[w.Selected, doc("Groups that are left out.")] = []
    exclude_labels: Annotated[w.Selected, doc("Machines with these labels are left out.")] = []
    exclude_machines: Annotated[
        w.Selected,
        doc("Machines that are left out. A host that has one of them is left out as a whole."),
    ] = []
    exclude_hosts: Annotated[w.Selected, doc("Hosts that are left out.")] = []
    exclude_host_labels: Annotated[w.Selected, doc("Hosts with these labels are left out.")] = []
    conflicts: Annotated[
        str,
        w.documented(enum="Conflicts"),
        doc(
            "What to do with hosts that have machines of several update domains of one group:"
            " refuse the rollout, split the maintenance of the host by update domain, skip the"
            " host, or first evacuate machines until one update domain is left."
        ),
    ] = "refuse"
    work_by: Annotated[
        str,
        w.documented(enum="WorkBy"),
        doc(
            "Who does the work of an `evacuate-work-return`: the driver, or an operator or program,"
            " who then puts the host back into service."
        ),
    ] = "operator"
    order_by: Annotated[
        list[str],
        Meta(max_length=limits.MAX_ORDER_LABELS),
        doc(
            "Names of labels of the hosts or groups; the rollout follows the order of their values."
        ),
    ] = []
    canary: Annotated[w.Selected, doc("Hosts or groups that go first, or how many of them.")] = []
    waves: Annotated[
        list[str],
        Meta(max_length=limits.MAX_WAVES),
        doc(
            "How many hosts or groups are complete after each wave, as numbers or shares such as"
            " `5%`. The rest is the last wave."
        ),
    ] = []
    pause_after: Annotated[
        str,
        w.documented(enum="PauseAfter"),
        doc("Whether the rollout pauses itself after its first wave (`canary`), or after each."),
    ] = "nothing"
    max_failures: Annotated[
        Annotated[int, Meta(ge=0, le=limits.MAX_FAILURES)] | None,
        doc("The rollout pauses itself if more steps than this have failed."),
    ] = None
    ignore_windows: Annotated[
        bool,
        doc(
            "Ignore the windows and blackouts of groups and maintenance configurations. The"
            " rollout's own windows apply."
        ),
    ] = False
    allow_overlap: Annotated[
        bool,
        doc(
            "Start it although another rollout is still to do the same for some of its hosts or"
            " machines."
        ),
    ] = False
    must_end_in_window: Annotated[
        bool, doc("Start no step that would not end in its window; needs `lasts`.")
    ] = False
    deadline: Annotated[
        w.Moment | None,
        doc("Steps that have not started by then are not started; the rollout ends."),
    ] = None
    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; by default, the minimum notice of the type."),
    ] = None
    short_notice: Annotated[bool, doc("Allow less than the minimum notice of the type.")] = False
    description: Annotated[w.Text, doc("Text shown to guests.")] = ""
    ticket: w.NewTicket = ""
    duration: Annotated[
        w.Impact, doc("Seconds that the impact lasts; 0: no impact, -1: unknown.")
    ] = -1
    at_once: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_AT_ONCE),
        doc("How many lanes may be in progress at the same time."),
    ] = 1
    windows: Annotated[
        list[str],
        Meta(max_length=limits.MAX_WINDOWS),
        doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`."),
    ] = []
    gate_http: Annotated[str, doc("URL that has to answer with 2xx before the next step.")] = ""
    gate_command: Annotated[
        str, doc("Name of a gate command in the service's settings; it has to exit with 0.")
    ] = ""
    gate_timeout: Annotated[
        Annotated[float, Meta(ge=1, le=limits.MAX_GATE_TIMEOUT_SECONDS)] | None,
        doc("Seconds to wait for the gate."),
    ] = None
    bake: Annotated[
        float, Meta(ge=0, le=limits.MAX_BAKE_SECONDS), doc("Seconds to wait after each step.")
    ] = 0
    lasts: Annotated[
        Annotated[float, Meta(ge=0, le=limits.MAX_LASTS_SECONDS)] | None,
        doc("Seconds that an event is expected to last; used for plans, and for the window."),
    ] = None


class SwitchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a rollout is paused or aborted."""

    reason: Annotated[w.Text, doc("Reason; it is recorded in the history.")] = ""


class PauseRequest(SwitchRequest, kw_only=True, forbid_unknown_fields=True):
    """Why a rollout is paused, and what becomes of its events."""

    withdraw: Annotated[bool, doc("Whether to withdraw events that have not started.")] = False


class SkipRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which steps of a rollout to leave out."""

    lanes: Annotated[w.Selected, doc("Groups or hosts whose remaining steps are skipped.")] = []
    steps: Annotated[
        Annotated[list[int], Meta(max_length=limits.MAX_SELECTED)], doc("Numbers of steps.")
    ] = []
    reason: Annotated[w.Text, doc("Reason; it is recorded in the history.")] = ""


class Switch(msgspec.Struct, kw_only=True):
    """Who paused, resumed or aborted a rollout, and when."""

    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")]
    at: Annotated[w.Moment, doc("When it was done.")]
    reason: Annotated[str, doc("Reason; it is recorded in the history.")] = ""


class Step(msgspec.Struct, kw_only=True):
    """A step of a rollout, and its progress."""

    number: Annotated[int, doc("Number of the step in the rollout.")]
    lane: Annotated[str, doc("Lane; its steps follow each other.")]
    wave: Annotated[int, doc("Wave of the lane, from 1.")]
    state: Annotated[w.StepState, doc("State of the step.")]
    machines: Annotated[list[str], doc("Names of its machines.")]
    update_domain: Annotated[
        int | None, doc("Update domain; null if the step is about all machines of a host.")
    ] = None
    host: Annotated[str, doc("Host of the step; empty: it is about a group.")] = ""
    action: Annotated[w.StepAction, doc("What the step does.")] = "maintenance"
    failed: Annotated[bool, doc("Whether its driver has failed to carry it out so far.")] = False
    events: Annotated[list[str], doc("Ids of its events.")] = []
    not_before: Annotated[
        w.Moment | None, doc("Earliest time at which it starts without approval.")
    ] = None
    started_at: Annotated[w.Moment | None, doc("When it started.")] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null until then.")] = None


class Wait(msgspec.Struct, kw_only=True):
    """What lanes of a rollout wait for, for the same reason."""

    kind: Annotated[w.WaitKind, doc("Kind of the wait.")]
    reason: Annotated[str, doc("What these lanes have in common.")] = ""
    count: Annotated[int, doc("How many lanes wait for it.")] = 1
    lanes: Annotated[list[str], doc("Some of them, those that have waited longest.")] = []
    message: Annotated[str, doc("Explanation for people, about the first of them.")]
    since: Annotated[w.Moment, doc("When the first of them began to wait.")]
    until: Annotated[
        w.Moment | None, doc("Time at which it ends at the latest for the first of them, if known.")
    ] = None
    unblocked_by: Annotated[str, doc("Who or what can resolve it.")] = ""
    events: Annotated[list[str], doc("Ids of the events that the first of them waits for.")] = []


class Rollout(msgspec.Struct, kw_only=True):
    """A rollout, and how many of its steps are done."""

    id: Annotated[str, doc("Id of the rollout.")]
    type: Annotated[
        w.RolloutKind, doc("Type of its events, `live-migration` or `evacuate-work-return`.")
    ]
    state: Annotated[w.StateName, doc("State of the rollout.")]
    work_by: Annotated[
        str,
        w.documented(enum="WorkBy"),
        doc("Who does the work of an `evacuate-work-return`."),
    ] = "operator"
    selection: Annotated[str, doc("The selection, as text.")]
    by: Annotated[str, doc("Who started it: the name of a token.")]
    created_at: Annotated[w.Moment, doc("When it was created.")]
    steps_done: Annotated[int, doc("How many of its steps are done.")]
    steps_total: Annotated[int, doc("How many steps it has.")]
    machines: Annotated[int, doc("How many machines it was about when it started.")]
    groups: Annotated[int, doc("How many groups these machines are in.")]
    hosts: Annotated[int, doc("How many hosts these machines were on.")]
    waves: Annotated[int, doc("How many waves it has.")]
    at_once: Annotated[int, doc("How many lanes may be in progress at the same time.")]
    notice: Annotated[
        float,
        doc("Seconds between announcement and start of a step."),
    ]
    description: Annotated[str, doc("Text shown to guests.")] = ""
    ticket: w.Ticket = ""
    windows: Annotated[
        list[str], doc("When steps may start, for example `sat,sun 22:00-04:00 Europe/Berlin`.")
    ] = []
    gate: Annotated[str, doc("The gate, as text.")] = ""
    gate_timeout: Annotated[float | None, doc("Seconds to wait for the gate.")] = None
    bake: Annotated[float, doc("Seconds to wait after each step.")] = 0
    lasts: Annotated[float | None, doc("Seconds that an event is expected to last.")] = None
    ignore_windows: Annotated[
        bool,
        doc("Whether it ignores the windows and blackouts of groups and configurations."),
    ] = False
    must_end_in_window: Annotated[
        bool, doc("Whether no step starts that would not end in its window.")
    ] = False
    deadline: Annotated[
        w.Moment | None, doc("Steps that have not started by then are not started.")
    ] = None
    max_failures: Annotated[
        int | None, doc("The rollout pauses itself if more steps than this have failed.")
    ] = None
    paused: Annotated[Switch | None, doc("Who paused it, and when; null: it is not paused.")] = None
    resumed: Annotated[Switch | None, doc("Who last resumed it, and when; null: nobody.")] = None
    aborted: Annotated[Switch | None, doc("Who aborted it, and when; null: nobody.")] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null until then.")] = None


class RolloutReport(Rollout, kw_only=True):
    """A rollout, the states of its steps as sums, and what it waits for."""

    wave: Annotated[int, doc("The first wave that is not complete, from 1.")]
    steps_by_state: Annotated[dict[str, int], doc("How many steps are in each state.")]
    steps_failed: Annotated[int, doc("How many steps their drivers have failed to carry out.")] = 0
    active: Annotated[
        list[str], doc("Ids of events that are announced or have started; at most 100.")
    ] = []
    waits: Annotated[list[Wait], doc("What it waits for, by reason.")] = []
    expected_end: Annotated[
        w.Moment | None,
        doc(
            "When it is expected to be over; null if that is not known, because it waits for an"
            " operator or would not complete, or if it was not asked for."
        ),
    ] = None


class EventHolds(msgspec.Struct, kw_only=True):
    """An event of a rollout, and what it waits for."""

    event: Annotated[str, doc("Id of the event.")]
    status: Annotated[w.StatusName, doc("Status of the event.")]
    message: Annotated[str, doc("Explanation for people.")]
    holds: Annotated[list[Hold], doc("Reasons why it has not started.")] = []


class WaitExplained(Wait, kw_only=True):
    """What lanes of a rollout wait for, with some of the events concerned."""

    details: Annotated[list[EventHolds], doc("The events concerned, and what each waits for.")] = []


class RolloutExplanation(msgspec.Struct, kw_only=True):
    """What a rollout waits for."""

    rollout: Annotated[Rollout, doc("The rollout.")]
    message: Annotated[str, doc("Explanation for people.")]
    waits: Annotated[list[WaitExplained], doc("What it waits for, by reason.")] = []


class Conflict(msgspec.Struct, kw_only=True):
    """A host with machines of several update domains of one group."""

    host: Annotated[str, doc("Name of the host.")]
    group: Annotated[str, doc("Name of the group.")]
    machines: Annotated[dict[str, list[str]], doc("Machines by update domain.")]


class Planned(msgspec.Struct, kw_only=True):
    """A step of a planned rollout."""

    number: Annotated[int, doc("Number of the step in the rollout.")]
    lane: Annotated[str, doc("Lane; its steps follow each other.")]
    wave: Annotated[int, doc("Wave of the lane, from 1.")]
    machines: Annotated[list[str], doc("Names of its machines.")]
    announced_at: Annotated[w.Moment, doc("When the step would be announced.")]
    not_before: Annotated[w.Moment, doc("Earliest time at which it starts without approval.")]
    ends_at: Annotated[w.Moment, doc("When the step would end.")]
    update_domain: Annotated[
        int | None, doc("Update domain; null if the step is about all machines of a host.")
    ] = None
    host: Annotated[str, doc("Host of the step; empty: it is about a group.")] = ""
    action: Annotated[w.StepAction, doc("What the step does.")] = "maintenance"
    targets: Annotated[
        dict[str, str],
        doc("By machine that the step moves: where it would go now, or empty if no host has room."),
    ] = {}


class RolloutPlan(msgspec.Struct, kw_only=True):
    """What a rollout would do: sums, and a page of its steps in the order of their times."""

    type: Annotated[
        w.RolloutKind, doc("Type of its events, `live-migration` or `evacuate-work-return`.")
    ]
    selection: Annotated[str, doc("The selection, as text.")]
    zone: Annotated[str, doc("Time zone of the windows; UTC if there are none.")]
    machines: Annotated[int, doc("How many machines it is about.")]
    groups: Annotated[int, doc("How many groups these machines are in.")]
    hosts: Annotated[int, doc("How many hosts these machines are on.")]
    waves: Annotated[list[int], doc("How many lanes each wave has.")]
    pauses: Annotated[int, doc("How often it pauses itself between waves.")] = 0
    steps_total: Annotated[int, doc("How many steps are planned.")]
    steps_skipped: Annotated[int, doc("How many steps are skipped because of conflicts.")] = 0
    first: Annotated[Planned | None, doc("The step that is announced first.")] = None
    last: Annotated[Planned | None, doc("The step that ends last.")] = None
    done_at: Annotated[
        w.Moment | None, doc("When the rollout would be over; null: this is not known.")
    ] = None
    message: Annotated[str, doc("Why the plan ends early; empty if it does not.")] = ""
    unreachable: Annotated[
        list[str],
        doc(
            "Hosts that cannot be reached now, because their nodes are cut off; steps with machines"
            " on them are announced when they can be reached, whatever the plan says."
        ),
    ] = []
    conflicts: Annotated[
        list[Conflict], doc("Hosts with machines of several update domains of one group.")
    ] = []
    nowhere: Annotated[
        list[str], doc("Machines that it would move, and that no host could take now.")
    ] = []
    problem: Annotated[str, doc("Why it would be refused; empty if it would not.")] = ""
    steps: Annotated[list[Planned], doc("The steps, as far as they were asked for.")] = []
