"""Parameters of the operations of the control API, after the `?` of the URL: what a list is limited
to, its order and its pages. Options of commands are made from them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc, documented
from forewarn.support import limits

ID, WHEN = documented(pattern="Id"), documented(pattern="When")
LABELS = " with these labels (`k=v`, `k!=v`, `k` or `!k`), e.g. tier=web,!canary."
AFTER = doc("Cursor from the `Link` of the previous page; omit it for the first page.")
PAGING = ("limit", "after", "before")  # commands follow the pages of a list by themselves

Labels: TypeAlias = Annotated[str, documented(pattern="Selector")]
Id: TypeAlias = Annotated[str, ID]
When: TypeAlias = Annotated[str, WHEN]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)]
Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_SEQ)]
OfMachines: TypeAlias = Annotated[Labels | None, doc("Only machines" + LABELS)]
Kinds: TypeAlias = Annotated[
    str | None,
    documented(pattern="Whats"),
    doc("Only these kinds of changes, separated by commas: raised,approved,…"),
]
Force: TypeAlias = Annotated[bool, doc("Also remove machines that have an active event.")]
Remove: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=limits.MAX_REMOVE)] | None,
    doc(
        "Confirm that exactly this many machines are removed; with another number, nothing is"
        " changed. Required above the service's limit (max_removals); a plan has the number."
    ),
]
RowsAre: TypeAlias = Annotated[
    str, documented(enum="OverviewBy"), doc("A row for each host (default) or group.")
]
Sums: TypeAlias = Annotated[
    str | None, doc("Sum hosts, or groups, by this label of theirs, such as rack.")
]


class PageQuery(msgspec.Struct, kw_only=True):
    """The page of a list."""

    limit: Annotated[Limit, doc("Maximum number of items on a page; by default, all.")] = (
        limits.MAX_PAGE
    )
    after: Annotated[str | None, AFTER] = None


class TimedPageQuery(PageQuery, kw_only=True):
    """The page of a list that is ordered by time."""

    after: Annotated[str | None, documented(pattern="Timed"), AFTER] = None


class MachineQuery(PageQuery, kw_only=True):
    """Machines to list."""

    group: Annotated[str | None, doc("Only machines of this group.")] = None
    label: OfMachines = None
    host: Annotated[str | None, doc("Only machines on this host.")] = None
    health: Annotated[w.HealthName | None, doc("Only machines on hosts with this health.")] = None
    coverage: Annotated[
        Annotated[str, documented(enum="CoverageFilter")] | None,
        doc(
            "Only machines with this coverage: those that have polled in the last hour"
            " (`listening`), before that (`silent`) or never (`never-polled`), or those that were"
            " shown events of their own and have never approved one (`never-approves`)."
        ),
    ] = None
    gone: Annotated[bool | None, doc("Only machines that no longer exist; false: that do.")] = None
    not_back: Annotated[
        bool | None,
        doc(
            "Only machines that have not polled since an event was carried out on them; false: only"
            " the others."
        ),
    ] = None
    enabled: Annotated[
        bool | None, doc("Only machines of enabled groups; false: only the others.")
    ] = None
    order: Annotated[
        str,
        documented(enum=["group", "name", "host", "events", "last_poll"]),
        doc(
            "Order: group (default), name, host, events (most first) or last_poll (longest ago"
            " first)."
        ),
    ] = "group"


class GroupQuery(PageQuery, kw_only=True):
    """Groups to list."""

    label: Annotated[Labels | None, doc("Only groups of machines" + LABELS)] = None
    kind: Annotated[w.KindName | None, doc("Only groups of this kind.")] = None
    enabled: Annotated[bool | None, doc("Only enabled groups; false: only the others.")] = None
    order: Annotated[
        str,
        documented(enum=["name", "machines", "events", "silent"]),
        doc("Order: name (default), machines, events, or silent (most first)."),
    ] = "name"


class HostQuery(PageQuery, kw_only=True):
    """Hosts to list."""

    label: Annotated[Labels | None, doc("Only hosts" + LABELS)] = None
    health: Annotated[w.HealthName | None, doc("Only hosts with this health.")] = None
    node: Annotated[
        Annotated[str, documented(enum="NodeFilter")] | None,
        doc("Only hosts whose node is in this state; none: for which no node has ever joined."),
    ] = None
    order: Annotated[
        str,
        documented(enum=["name", "health", "machines", "events"]),
        doc("Order: name (default), health (worst first), machines or events (most first)."),
    ] = "name"


class EventsOf(msgspec.Struct, kw_only=True):
    """Whose events are wanted."""

    group: Annotated[str | None, doc("Only events of this group.")] = None
    machine: Annotated[str | None, doc("Only events of this machine.")] = None
    host: Annotated[str | None, doc("Only events of the maintenance of this host.")] = None
    label: Annotated[Labels | None, doc("Only events of machines" + LABELS)] = None


class EventQuery(EventsOf, kw_only=True, rename={"from_": "from"}):
    """Events to list."""

    type: Annotated[w.TypeName | None, doc("Only events of this type.")] = None
    status: Annotated[w.StatusName | None, doc("Only events with this status.")] = None
    source: Annotated[w.SourceName | None, doc("Only events from this source.")] = None
    rollout: Annotated[Id | None, doc("Only events of this rollout.")] = None
    cause: Annotated[str | None, doc("Only events with this cause.")] = None
    raised_since: Annotated[
        When | None,
        doc("Only events announced since then: 2h (ago), or 2027-01-15T08:00:00Z."),
    ] = None
    from_: Annotated[
        When | None, doc("Only events that may start from then on: 6h, or a time.")
    ] = None
    until: Annotated[
        When | None, doc("Only events that may start before then: 24h, or a time.")
    ] = None
    past: Annotated[bool, doc("Also list events that are over.")] = False
    order: Annotated[
        str,
        documented(enum=["raised_at", "not_before"]),
        doc("Order: raised_at (default), or not_before: what starts next comes first."),
    ] = "raised_at"
    limit: Annotated[
        int, Meta(ge=1, le=limits.MAX_EVENT_PAGE), doc("Maximum number of events on a page.")
    ] = limits.MAX_EVENT_PAGE
    after: Annotated[str | None, documented(pattern="TimedOrStart"), AFTER] = None


class ApproveQuery(msgspec.Struct, kw_only=True):
    """How an event is approved."""

    ignore_windows: w.IgnoreWindows = False


class OverviewQuery(msgspec.Struct, kw_only=True):
    """The rows of an overview."""

    by: RowsAre = "host"
    sums: Sums = None
    label: Annotated[Labels | None, doc("Only hosts or groups" + LABELS)] = None
    name: Annotated[str | None, doc("Only the host or group of this name.")] = None
    state: Annotated[
        Annotated[str, documented(enum="RowState")] | None,
        doc("Only hosts or groups to which this applies, also if something else is more notable."),
    ] = None
    order: Annotated[
        str, documented(enum="RowOrder"), doc("By name, or what is most notable first.")
    ] = "name"
    limit: Annotated[Limit | None, doc("Maximum number of rows.")] = None


class TonightQuery(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    """The time to look at, and what in it."""

    by: RowsAre = "host"
    sums: Sums = None
    from_: Annotated[
        When | None, doc("When the time begins: a time, or an age such as 2h. Default: now.")
    ] = None
    hours: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_HOURS),
        doc("Length of the time in hours; 168 is a week. Default: 24."),
    ] = 24
    group: Annotated[str | None, doc("Only this group.")] = None
    host: Annotated[str | None, doc("Only machines on this host.")] = None
    label: OfMachines = None
    host_label: Annotated[Labels | None, doc("Only machines on hosts" + LABELS)] = None


class RolloutQuery(TimedPageQuery, kw_only=True):
    """Rollouts to list."""

    state: Annotated[w.StateName | None, doc("Only rollouts in this state.")] = None


class RolloutReportQuery(msgspec.Struct, kw_only=True):
    """What a report has."""

    expected_end: Annotated[
        bool, doc("Whether to forecast when it ends, which takes a moment for a large rollout.")
    ] = False


class PlanQuery(msgspec.Struct, kw_only=True):
    """The steps of a plan that are returned."""

    lane: Annotated[str | None, doc("Name of a group or host; only its steps are returned.")] = None
    steps: Annotated[
        int, Meta(ge=0, le=limits.MAX_PAGE), doc("Maximum number of steps to return.")
    ] = limits.MAX_PAGE


class LaneQuery(msgspec.Struct, kw_only=True):
    """A part of a rollout."""

    group: Annotated[str | None, doc("Only this group of the rollout.")] = None
    host: Annotated[str | None, doc("Only this host of the rollout.")] = None


class StepQuery(LaneQuery, kw_only=True):
    """Steps of a rollout to list."""

    state: Annotated[w.StepState | None, doc("Only steps in this state.")] = None
    limit: Annotated[Limit, doc("Maximum number of items on a page; by default, all.")] = (
        limits.MAX_PAGE
    )
    after: Annotated[
        int, Meta(ge=0, le=limits.MAX_PAGE), doc("Only steps with a higher number.")
    ] = 0


class PutFleetQuery(msgspec.Struct, kw_only=True):
    """How a fleet file is applied."""

    plan: Annotated[bool, doc("Show what would change, without changing anything.")] = False
    force: Force = False
    remove: Remove = None
    placement: Annotated[
        Annotated[str, documented(enum="Placement")] | None,
        doc(
            "Which source takes precedence for the hosts of machines that have moved: the `file`,"
            " or what was `reported`. Default: the service's setting."
        ),
    ] = None


class ForceQuery(msgspec.Struct, kw_only=True):
    """How a part of the inventory is changed."""

    force: Force = False


class RemovalQuery(ForceQuery, kw_only=True):
    """How machines are removed."""

    remove: Remove = None


class SearchQuery(msgspec.Struct, kw_only=True):
    """What to find."""

    text: Annotated[
        str, doc("A part of a name in any letter case, or four or more characters of an id.")
    ] = ""


class RecordsOf(msgspec.Struct, kw_only=True):
    """Which records of the history are wanted."""

    machine: Annotated[str | None, doc("Only entries about this machine.")] = None
    group: Annotated[str | None, doc("Only entries about this group.")] = None
    host: Annotated[str | None, doc("Only entries about this host.")] = None
    event: Annotated[
        Id | None, doc("Only entries about this event (its id, or the beginning of it).")
    ] = None
    since: Annotated[
        When | None, doc("Only entries since then: 2h (ago), or 2027-01-15T08:00:00Z.")
    ] = None
    until: Annotated[When | None, doc("Only entries before then: an age, or a time.")] = None
    what: Kinds = None


class HistoryQuery(RecordsOf, kw_only=True):
    """Records of the history to list."""

    limit: Annotated[
        int, Meta(ge=1, le=limits.MAX_HISTORY_PAGE), doc("Maximum number of records on a page.")
    ] = 100
    oldest_first: Annotated[bool, doc("Whether to list the oldest records first.")] = False
    before: Annotated[
        str | None, documented(pattern="Mark"), doc("`next` of the previous page.")
    ] = None
    after: Annotated[
        str | None,
        documented(pattern="Mark"),
        doc("`next` of the previous page, with `oldest_first`."),
    ] = None
    after_seq: Annotated[
        Sequence | None, doc("Only records with a higher number, ordered by number.")
    ] = None


class FeedQuery(msgspec.Struct, kw_only=True):
    """Where a stream begins, and what it has."""

    after: Annotated[
        Sequence | None, doc("Number of a commit to resume after; by default, the newest.")
    ] = None
    group: Annotated[str | None, doc("Only changes of this group.")] = None
    what: Kinds = None


class ChangesQuery(FeedQuery, kw_only=True):
    """The changes to return."""

    wait: Annotated[
        int,
        Meta(ge=0, le=limits.MAX_CHANGES_WAIT),
        doc("Seconds to wait if there are no changes yet."),
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_COMMITS), doc("Maximum number of commits.")] = (
        100
    )


class VerdictQuery(msgspec.Struct, kw_only=True):
    """What the verdict is about."""

    machine: Annotated[str | None, doc("Only this machine.")] = None
    event: Annotated[Id | None, doc("Only this event (its id, or the beginning of it).")] = None
