"""Types of the control API, for the server and its client. Times are RFC 3339, durations
seconds."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc
from forewarn.support import limits

COMMIT_HEADER = "Forewarn-Commit"  # of every response: it contains everything up to this commit
LEADER_HEADER = "Forewarn-Leader"  # on a refusal: URL of the control node that decides
LEADER_ONLY = "only"  # its value on a request that a control node that follows refuses, too
# Header of every response of a service with a virtual clock or a speed: its ClockHeader as JSON.
CLOCK_HEADER = "Forewarn-Clock"
BACKUP_HEADER = "Forewarn-Copy"  # header of a backup: its BackupContents as JSON
SQLITE = "application/vnd.sqlite3"


class Size(msgspec.Struct, kw_only=True):
    """What a machine takes of its host; 0: not known."""

    memory: Annotated[int, doc("Memory in MiB.")] = 0
    cpus: Annotated[int, doc("Number of CPUs.")] = 0


class Capacity(msgspec.Struct, kw_only=True):
    """What a host can hold; null: no limit is known."""

    machines: Annotated[int | None, doc("Number of machines.")] = None
    memory: Annotated[int | None, doc("Memory of its machines in MiB.")] = None
    cpus: Annotated[int | None, doc("CPUs of its machines.")] = None


class NotBack(msgspec.Struct, kw_only=True):
    """That a machine has not polled since an event was carried out on it."""

    event: Annotated[str, doc("Id of the event.")]
    since: Annotated[w.Moment, doc("When the event was carried out.")]


class Machine(msgspec.Struct, kw_only=True):
    """A machine of the fleet."""

    name: Annotated[str, doc("Name of the machine.")]
    group: Annotated[str, doc("Name of its group.")]
    kind: Annotated[w.KindName, doc("Kind of its group.")]
    update_domain: Annotated[
        int, doc("Update domain. Only one update domain of a group is affected at a time.")
    ]
    fault_domain: Annotated[
        int, doc("Fault domain. Machines of one fault domain can fail together.")
    ]
    addresses: Annotated[list[str], doc("Source addresses of its requests.")] = []
    host: Annotated[str, doc("Host that it is known to be on; empty: none.")] = ""
    inventory_host: Annotated[
        str, doc("Host in the fleet file. It differs from `host` if the machine has moved since.")
    ] = ""
    disputed: Annotated[
        bool, doc("Whether a fleet file that was applied after the move contradicts `host`.")
    ] = False
    polls_on: Annotated[
        str, doc("Another host, whose node it polls: it may be there; empty: none.")
    ] = ""
    drift: Annotated[
        w.DriftName | None, doc("How it differs from what its driver sees; null: it does not.")
    ] = None
    seen_on: Annotated[list[str], doc("Hosts on which its driver sees it, if that differs.")] = []
    spot: Annotated[
        bool, doc("Whether it is a spot machine, which can be evicted at any time.")
    ] = False
    computer_name: Annotated[str, doc("Host name inside the guest; empty: the default.")] = ""
    vm_id: Annotated[str, doc("The `vmId` of its instance metadata.")] = ""
    tags: Annotated[dict[str, str], doc("Tags of its instance metadata.")] = {}
    gone: Annotated[str, doc("Why the machine no longer exists; empty if it exists.")] = ""
    labels: Annotated[dict[str, str], doc("Labels of its group, overlaid with its own.")] = {}
    size: Annotated[Size | None, doc("What it takes of its host; null: not known.")] = None
    metadata_url: Annotated[str, doc("URL of the metadata endpoint for this machine.")] = ""
    polls: Annotated[int, doc("Number of polls.")] = 0
    last_poll: Annotated[w.Moment | None, doc("When it last polled.")] = None
    api_version: Annotated[str, doc("The api-version of its last poll.")] = ""
    coverage: Annotated[
        w.CoverageName,
        doc("Whether it has polled in the last hour, only earlier, or never."),
    ] = "never-polled"
    not_back: Annotated[
        NotBack | None,
        doc("The event since which it has not polled, although it polled before; null: none."),
    ] = None
    ignored_events: Annotated[
        int, doc("How many of its events it was shown, and started without any approval.")
    ] = 0
    last_answer: Annotated[
        w.Moment | None, doc("When it last approved an event or reported readiness.")
    ] = None
    events: Annotated[list[str], doc("Ids of its active events.")] = []


class MachineOutcome(Machine, kw_only=True):
    """A machine as it is after a request."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Coverage(msgspec.Struct, kw_only=True):
    """How many machines poll and answer events."""

    listening: Annotated[int, doc("Machines that have polled in the last hour.")] = 0
    silent: Annotated[int, doc("Machines that have polled, but not in the last hour.")] = 0
    never_polled: Annotated[int, doc("Machines that have never polled.")] = 0
    never_approves: Annotated[
        int,
        doc(
            "Of all these, machines that were shown events of their own that started without any"
            " approval, and that have never approved one or reported readiness."
        ),
    ] = 0


class OpenTime(msgspec.Struct, kw_only=True):
    """A time in which maintenance may start."""

    opens: Annotated[w.Moment | None, doc("When it opens; null: it has always been open.")] = None
    closes: Annotated[w.Moment | None, doc("When it closes; null: never.")] = None


class Group(msgspec.Struct, kw_only=True):
    """A group: machines that share a document, and their policy."""

    name: Annotated[str, doc("Name of the group.")]
    kind: Annotated[w.KindName, doc("Kind of the group.")]
    enabled: Annotated[bool, doc("Whether Scheduled Events are enabled: its machines poll.")]
    incarnation: Annotated[int, doc("DocumentIncarnation of its document.")]
    machines: Annotated[list[str], doc("Names of its machines.")]
    spot: Annotated[int, doc("How many of them are spot machines, and exist.")] = 0
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    location: Annotated[str, doc("Location in the instance metadata.")] = ""
    zone: Annotated[str, doc("Zone in the instance metadata.")] = ""
    resource_group: Annotated[str, doc("Resource group in the instance metadata.")] = ""
    subscription: Annotated[str, doc("Subscription in the instance metadata.")] = ""
    scale_set: Annotated[
        str, doc("Scale set of which it is a placement group; empty if it is not a scale set.")
    ] = ""
    flexible: Annotated[
        bool, doc("Whether the scale set is flexible: its members have names of their own.")
    ] = False
    events: Annotated[list[str], doc("Ids of its active events.")] = []
    user_event_limit: Annotated[
        int | None, doc("How many user events may be Scheduled at a time; null: any number.")
    ] = None
    auto_approve: Annotated[
        list[w.TypeName], doc("User events of these types start without approval.")
    ] = []
    all_instances_down: Annotated[
        bool, doc("Approve user events while all machines of the group are down.")
    ] = False
    event_grid: Annotated[
        bool, doc("Publish its events to Event Grid and Azure Resource Graph.")
    ] = False
    terminate_notice: Annotated[
        float | None, doc("Seconds of notice before a deletion; null: deletions are not announced.")
    ] = None
    image_notice: Annotated[
        float | None, doc("Seconds of notice before a reimage; null: there can be none.")
    ] = None
    coverage: Annotated[Coverage, doc("How many of its machines poll and answer events.")] = (
        msgspec.field(default_factory=Coverage)
    )
    windows: w.Windows = []
    blackouts: w.Blackouts = []
    may_postpone: Annotated[
        str | None,
        doc("By how much an event may be postponed, and how often: `2h, twice`; null: never."),
    ] = None
    over_when: Annotated[
        w.OverWhenName | None,
        doc(
            "When to end an event that was carried out: once its machines have polled again"
            " (`heard`), or at once (`carried-out`); null: as the service does it."
        ),
    ] = None
    back_within: Annotated[
        float | None,
        doc("Seconds for which an event waits for its machines to poll again; null: 600."),
    ] = None


class GroupOutcome(Group, kw_only=True):
    """A group as it is after a request."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class GroupWindows(msgspec.Struct, kw_only=True):
    """When maintenance of a group may start."""

    group: Annotated[str, doc("Name of the group.")]
    open: Annotated[bool, doc("Whether maintenance of all its machines may start now.")]
    configurations: Annotated[
        list[str],
        doc("What limits it: the group's own windows and blackouts, and those of the fleet."),
    ] = []
    times: Annotated[list[OpenTime], doc("The current and the next times, in order.")] = []


class Approval(msgspec.Struct, kw_only=True):
    """An approval of an event."""

    by: Annotated[str, doc("Who approved it.")]
    at: Annotated[w.Moment, doc("When it was approved.")]


class Postponement(msgspec.Struct, kw_only=True):
    """A postponement of an event."""

    by: Annotated[
        str,
        doc("Who postponed it; empty if another group has postponed the maintenance of its host."),
    ]
    group: Annotated[str, doc("Group that requested it; empty if it was another group.")]
    at: Annotated[w.Moment, doc("When.")]
    before: Annotated[w.Moment, doc("`not_before` until then.")]
    after: Annotated[w.Moment, doc("`not_before` since then.")]


SeenBy: TypeAlias = Annotated[
    dict[str, w.Moment], doc("When each machine first received it, as long as the history is kept.")
]


class Event(msgspec.Struct, kw_only=True):
    """An event, active or past."""

    id: Annotated[str, doc("Id of the event.")]
    group: Annotated[str, doc("Name of the group whose machines it affects.")]
    type: Annotated[w.TypeName, doc("Type of the event.")]
    status: Annotated[w.StatusName, doc("Status of the event.")]
    source: Annotated[w.SourceName, doc("Platform, or User if a user of the machine requested it.")]
    machines: Annotated[list[str], doc("Names of the machines that it affects.")]
    update_domain: Annotated[int, doc("Update domain of the machines that it affects.")]
    not_before: Annotated[w.Moment, doc("Earliest time at which it starts without approval.")]
    description: Annotated[str, doc("Text shown to guests.")]
    duration: Annotated[int, doc("Seconds that the impact lasts; 0: no impact, -1: unknown.")]
    raised_at: Annotated[w.Moment, doc("When it was announced.")]
    raised_by: Annotated[str, doc("Who announced it.")]
    listed: Annotated[bool, doc("Whether it is listed in the document of its group.")]
    unannounced: Annotated[bool, doc("Whether it is never shown to guests.")] = False
    approved: Annotated[
        Approval | None, doc("Who approved it, and when; null if it is not approved.")
    ] = None
    started_at: Annotated[w.Moment | None, doc("When it started.")] = None
    expected_end: Annotated[
        w.Moment | None,
        doc(
            "When it should be over at the latest; null until it starts. Half an hour is assumed if"
            " its duration is unknown."
        ),
    ] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null until then.")] = None
    ending: Annotated[str, doc("How it ended; empty until then.")] = ""
    host: Annotated[str, doc("Host whose maintenance caused it; empty: none.")] = ""
    ticket: w.Ticket = ""
    cause: Annotated[str, doc("Cause: the step of a rollout, or the maintenance of a host.")] = ""
    joint: Annotated[
        str,
        doc("The same for all events that start and end together; empty: it starts by itself."),
    ] = ""
    ready: Annotated[list[str], doc("Machines that have reported readiness.")] = []
    ignore_windows: Annotated[
        bool, doc("Whether an operator lets it start outside of windows and in blackouts.")
    ] = False
    postponed: Annotated[list[Postponement], doc("How often it was postponed, and by whom.")] = []
    held: Annotated[
        str, doc("Why an operator has to retry or finish it; empty if that is not so.")
    ] = ""
    targets: Annotated[
        dict[str, str],
        doc("By machine that is being moved: the host that is reserved for it."),
    ] = {}
    waits_for: Annotated[
        list[str],
        doc("Machines that have to poll again before it is over, since it was carried out."),
    ] = []
    not_back: Annotated[list[str], doc("Machines that had not polled again when it was over.")] = []
    away: Annotated[
        dict[str, float],
        doc("By machine: for how many seconds it stood still, if the driver has measured it."),
    ] = {}


class EventDetails(Event, kw_only=True):
    """An event, which machines were shown it, and how far the driver is."""

    seen_by: SeenBy = {}
    not_warned: Annotated[
        list[str] | None,
        doc(
            "Its machines that had not been shown it when it started; complete after some seconds."
            " Null: it has not started, or this is not known."
        ),
    ] = None
    back: Annotated[
        list[str],
        doc("Its machines that have polled since it was carried out, or has ended."),
    ] = []
    progress: Annotated[
        str, doc("How far the driver is, if it has said so; known where it is called.")
    ] = ""


class Outcome(Event, kw_only=True):
    """The event that an operation created or changed, in its new state."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Outcomes(msgspec.Struct, kw_only=True):
    """The events that an operation created or changed, in their new state."""

    events: Annotated[list[Event], doc("The events in their new state.")] = []
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class CancelRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why an event is cancelled."""

    reason: Annotated[w.Text, doc("Reason; recorded in the history.")] = ""


class CancelEventsRequest(CancelRequest, kw_only=True, forbid_unknown_fields=True):
    """Events to cancel together: by their ids, or all Scheduled ones that match all conditions."""

    ids: Annotated[
        list[str],
        msgspec.Meta(max_length=limits.MAX_CANCELLED),
        doc("Ids of the events, or the beginning of each."),
    ] = []
    group: Annotated[str | None, doc("Only events of this group.")] = None
    machine: Annotated[str | None, doc("Only events of this machine.")] = None
    host: Annotated[str | None, doc("Only events of the maintenance of this host.")] = None
    label: Annotated[str | None, doc("Label selector: only events of machines that match.")] = None
    type: Annotated[w.TypeName | None, doc("Only events of this type.")] = None
    source: Annotated[w.SourceName | None, doc("Only events from this source.")] = None
    rollout: Annotated[str | None, doc("Only events of this rollout.")] = None
    plan: Annotated[
        bool, doc("Whether to return what would be cancelled, without changing anything.")
    ] = False


class CancelledEvents(msgspec.Struct, kw_only=True):
    """The events that were cancelled, or would be, and why others are not."""

    events: Annotated[list[Event], doc("The cancelled events, with those that go with them.")]
    refused: Annotated[list[str], doc("For each event that is not cancelled: why.")] = []
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Hold(msgspec.Struct, kw_only=True):
    """A reason why an event has not started yet."""

    kind: Annotated[w.HoldKind, doc("Kind of the hold.")]
    message: Annotated[str, doc("Explanation for people.")]
    since: Annotated[w.Moment, doc("Start of this state.")]
    until: Annotated[w.Moment | None, doc("Time at which it ends at the latest, if known.")] = None
    waits_for: Annotated[list[str], doc("Ids of the events that have to end first.")] = []
    unblocked_by: Annotated[str, doc("Who or what can resolve it.")] = ""


class Advice(msgspec.Struct, kw_only=True):
    """What an operator can do about an event."""

    kind: Annotated[
        w.AdviceName, doc("The verb. Retry it if it did not happen, finish it if it did.")
    ]
    event: Annotated[str, doc("Id of the event that the verb is for; empty: it is for none.")] = ""
    moved: Annotated[
        list[str],
        doc("Machines that the event moves: name their new hosts when you finish it."),
    ] = []


class Explanation(msgspec.Struct, kw_only=True):
    """What an event waits for."""

    event: Annotated[Event, doc("The event.")]
    message: Annotated[str, doc("Explanation for people.")]
    holds: Annotated[list[Hold], doc("Reasons why it has not started.")] = []
    seen_by: SeenBy = {}
    advice: Annotated[
        list[Advice], doc("What would make it start or end now; empty if nothing can.")
    ] = []
    not_listening: Annotated[
        dict[str, w.Moment | None],
        doc("Its machines that have not polled in the last hour, and when they did; null: never."),
    ] = {}
    unheard: Annotated[
        bool,
        doc("Whether no machine of its group has polled in the last hour: nobody will approve it."),
    ] = False
    operations: Annotated[
        list[str],
        doc(
            "The operations on this event that the caller may use and that its state allows, by"
            " their `operationId` in the OpenAPI document. One can still be refused for what it is"
            " given, such as a time that is too late."
        ),
    ] = []


class PostponeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The time to which an event is postponed."""

    extra_schema: ClassVar = w.exactly_one_of("by", "until")

    by: Annotated[w.Notice | None, doc("Seconds to postpone it by.")] = None
    until: Annotated[w.Moment | None, doc("New start time, instead of `by`.")] = None


class Announcement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How events are announced."""

    extra_schema: ClassVar = w.at_most_one_of("notice", "not_before")

    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; by default, the minimum notice of the type."),
    ] = None
    not_before: Annotated[w.Moment | None, doc("Earliest start, instead of `notice`.")] = None
    short_notice: Annotated[bool, doc("Allow less than the minimum notice of the type.")] = False
    ignore_windows: w.IgnoreWindows = False
    ticket: w.NewTicket = ""


class ScheduleRequest(Announcement, kw_only=True, forbid_unknown_fields=True):
    """An event to announce."""

    type: Annotated[w.TypeName, doc("Type of the event.")]
    machines: Annotated[w.Names, doc("Names of the machines, all of one group.")]
    description: Annotated[w.Text, doc("Text shown to guests.")] = ""
    duration: Annotated[
        w.Impact, doc("Seconds that the impact lasts; 0: no impact, -1: unknown.")
    ] = -1
    source: Annotated[
        w.SourceName, doc("Platform, or User if a user of the machine requested it.")
    ] = "Platform"


class HostNode(msgspec.Struct, kw_only=True):
    """The node of a host, which answers the machines on it."""

    state: Annotated[
        w.NodeStateName,
        doc(
            "Whether it has joined, or is disconnected, so that its machines cannot be informed; a"
            " control node that does not decide does not know."
        ),
    ]
    since: Annotated[w.Moment | None, doc("Since when it is in this state, if known.")] = None
    version: Annotated[str | None, doc("Version of the node, if known.")] = None
    lag: Annotated[
        float | None,
        doc("Seconds since it was sent the oldest change that it has not confirmed, if known."),
    ] = None
    heard: Annotated[w.Moment | None, doc("When it last sent something, if known.")] = None
    ended: Annotated[
        str | None,
        doc("Why its last connection, before the present one, was ended; null: there was none."),
    ] = None


class HostDriver(msgspec.Struct, kw_only=True):
    """The driver process of a host, which carries events out on the machines there."""

    state: Annotated[
        w.NodeStateName,
        doc("Whether it is connected (`joined`); if not, no event is carried out there."),
    ]
    since: Annotated[w.Moment, doc("Since when it is in this state.")]
    name: Annotated[str | None, doc("Name of its driver; null: it was not connected yet.")] = None
    version: Annotated[str | None, doc("Version of the process, if known.")] = None


class Host(msgspec.Struct, kw_only=True):
    """A host, and the machines on it."""

    name: Annotated[str, doc("Name of the host.")]
    health: Annotated[w.HealthName, doc("Health of the host.")]
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    capacity: Annotated[Capacity | None, doc("What it can hold; null: no limit is known.")] = None
    since: Annotated[w.Moment | None, doc("When its health last changed.")] = None
    note: Annotated[str, doc("Note by the operator.")] = ""
    cordoned: Annotated[bool, doc("Whether it is cordoned, so that no machine is moved to it.")] = (
        False
    )
    cordon_note: Annotated[str, doc("Why it is cordoned.")] = ""
    node: Annotated[
        HostNode | None, doc("Its node; null if no node has ever joined for the host.")
    ] = None
    driver: Annotated[
        HostDriver | None,
        doc(
            "Its driver process; null if the service has another driver than `hosts`, or this"
            " control node does not decide."
        ),
    ] = None
    enrollment: Annotated[
        str,
        doc(
            "`open` while there is a token for its node, `enrolled` if its node has a certificate"
            " from control, `revoked` if no certificate is accepted; otherwise empty."
        ),
    ] = ""
    machines: Annotated[list[str], doc("Names of the machines on it.")] = []
    events: Annotated[
        list[str], doc("Ids of the events planned or under way for the host itself.")
    ] = []


class EnrollmentRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token with which nodes get their certificates: for a host, or for hosts with labels."""

    host: Annotated[str, doc("Name of the host; empty: hosts with `label`.")] = ""
    label: Annotated[str | None, doc("Label selector of the hosts, instead of `host`.")] = None
    hosts: Annotated[int, doc("With `label`: how many of these hosts can join with it.")] = 0
    expires_in: Annotated[float | None, doc("Seconds until it expires; null: an hour.")] = None
    again: Annotated[
        bool, doc("Also for hosts that have a node, whose place the new one takes.")
    ] = False
    driver: Annotated[bool, doc("For the driver process of a host, instead of its node.")] = False


class Enrollment(msgspec.Struct, kw_only=True):
    """A new token for nodes."""

    id: Annotated[str, doc("Id of the token, as the history shows it.")]
    token: Annotated[
        str,
        doc(
            "The token, which is shown only in this response, with the fingerprint of the"
            " authority that has issued control's certificate."
        ),
    ]
    addresses: Annotated[list[str], doc("Addresses at which nodes reach control.")]
    hosts: Annotated[list[str], doc("Names of the hosts that it is for.")]
    expires_at: Annotated[w.Moment, doc("When it expires.")]

    def __repr__(self) -> str:
        return f"Enrollment(id={self.id!r})"


class HostPlan(msgspec.Struct, kw_only=True):
    """Events that start together, or a single event, and what they wait for."""

    events: Annotated[list[Event], doc("Events that start together, or a single event.")]
    message: Annotated[str, doc("Explanation for people.")]
    holds: Annotated[list[Hold], doc("Reasons why it has not started.")] = []


class HostExplanation(msgspec.Struct, kw_only=True):
    """What is planned for a host, and what that waits for."""

    name: Annotated[str, doc("Name of the host.")]
    health: Annotated[w.HealthName, doc("Health of the host.")]
    message: Annotated[str, doc("Explanation for people.")]
    machines: Annotated[list[str], doc("Names of the machines on it.")] = []
    plans: Annotated[list[HostPlan], doc("What is planned or under way for it.")] = []
    others: Annotated[
        list[Event], doc("Other active events of machines on it, such as restarts by their users.")
    ] = []
    if_drained: Annotated[
        str,
        doc(
            "Where its machines would go if it were drained now, and which of them could not move;"
            " for people. Empty if something is planned for the host."
        ),
    ] = ""


class MaintainRequest(Announcement, kw_only=True, forbid_unknown_fields=True):
    """Maintenance of a host to announce."""

    mode: Annotated[
        w.MaintenanceMode, doc("Effect of the maintenance on the machines of the host.")
    ]
    evacuate: Annotated[bool, doc("Move the machines to other hosts one by one instead.")] = False
    description: Annotated[w.Text | None, doc("Text shown to guests.")] = None
    duration: Annotated[
        w.Impact | None, doc("Seconds that the impact lasts; 0: no impact, -1: unknown.")
    ] = None


class DegradeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Report that a host is expected to fail."""

    notice: Annotated[
        w.Notice | None, doc("Seconds until it is expected to fail; default: 7d.")
    ] = None
    ignore_windows: w.IgnoreWindows = False
    note: Annotated[str, doc("Note by the operator.")] = ""


class CordonRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a host is cordoned."""

    note: Annotated[str, doc("Reason, for the history.")] = ""


class DrainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a host is drained."""

    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; by default, the minimum notice of a Freeze."),
    ] = None


class FailRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Report that a host has failed."""

    type: Annotated[
        w.FailureType | None,
        doc("Type of the events that the failure is shown as; by default, Redeploy."),
    ] = None
    note: Annotated[str, doc("Note by the operator.")] = ""


class MachinesRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Machines for an operation that is carried out for all of them, or for none."""

    machines: Annotated[w.Names, doc("Names of the machines, of any groups.")]


class FailMachineRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A failure of a machine."""

    type: Annotated[
        w.FailureType | None,
        doc("Type of the event that the failure is shown as; by default, Redeploy."),
    ] = None


class ScaleInRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How many machines of a scale set to delete."""

    extra_schema: ClassVar = w.exactly_one_of("count", "to")

    count: Annotated[int | None, doc("How many machines to delete.")] = None
    to: Annotated[int | None, doc("How many machines to keep, instead of `count`.")] = None


class PolicyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes of a policy. Fields that are omitted keep their values."""

    user_event_limit: Annotated[
        int | msgspec.UnsetType | None,
        doc("How many user events may be Scheduled at a time; null: any number."),
    ] = msgspec.UNSET
    auto_approve: Annotated[
        list[w.TypeName] | msgspec.UnsetType,
        doc("User events of these types start without approval."),
    ] = msgspec.UNSET
    all_instances_down: Annotated[
        bool | msgspec.UnsetType,
        doc("Approve user events while all machines of the group are down."),
    ] = msgspec.UNSET
    event_grid: Annotated[
        bool | msgspec.UnsetType,
        doc("Publish its events to Event Grid and Azure Resource Graph."),
    ] = msgspec.UNSET
    terminate_notice: Annotated[
        float | msgspec.UnsetType | None,
        doc("Seconds of notice before a deletion; null: deletions are not announced."),
    ] = msgspec.UNSET
    image_notice: Annotated[
        float | msgspec.UnsetType | None,
        doc("Seconds of notice before a reimage; null: there can be none."),
    ] = msgspec.UNSET
    windows: w.NewWindows | msgspec.UnsetType = msgspec.UNSET
    blackouts: w.NewBlackouts | msgspec.UnsetType = msgspec.UNSET
    may_postpone: Annotated[
        str | msgspec.UnsetType | None,
        doc("By how much an event may be postponed, and how often: `2h, twice`; null: never."),
    ] = msgspec.UNSET
    over_when: Annotated[
        w.OverWhenName | msgspec.UnsetType | None,
        doc(
            "When to end an event that was carried out: once its machines have polled again"
            " (`heard`), or at once (`carried-out`); null: as the service does it."
        ),
    ] = msgspec.UNSET
    back_within: Annotated[
        float | msgspec.UnsetType | None,
        doc("Seconds for which an event waits for its machines to poll again; null: 600."),
    ] = msgspec.UNSET


class FinishRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Declaration that an event has finished."""

    reason: Annotated[str, doc("Reason; it is recorded in the history.")]
    moved: Annotated[
        dict[str, str], doc("Machines of the event that are on other hosts now, and these hosts.")
    ] = {}


class AbandonRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Declaration that an event did not happen, and is given up."""

    reason: Annotated[str, doc("Reason; it is recorded in the history.")]


class ReadyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Report about a machine that an event is for."""

    machine: Annotated[str, doc("Name of a machine of the event's group.")]
    ready: Annotated[
        bool, doc("Report that it is ready; false: that it is not ready after all.")
    ] = True
    note: Annotated[w.ReadyNote, doc("Shown in the history.")] = ""


class MovedRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The host that a machine is on."""

    host: Annotated[str, doc("Host that the machine is on now.")]


class AdvanceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far to move a virtual clock."""

    extra_schema: ClassVar = w.exactly_one_of("by", "to")

    by: Annotated[float | None, doc("Seconds to advance by.")] = None
    to: Annotated[w.Moment | None, doc("Time to advance to, instead of `by`.")] = None


class PlayRequest(AdvanceRequest, kw_only=True, forbid_unknown_fields=True):
    """How far to play a virtual clock, and how long to wait for clients."""

    timeout: Annotated[
        float,
        doc("Seconds for which a machine that polls is waited for at every change, in real time."),
        msgspec.Meta(ge=0),
    ] = 5.0
    reaction_time: Annotated[
        float,
        doc(
            "Seconds that a machine gets for each of its own events, in real time, to approve it or"
            " to report that it is ready."
        ),
        msgspec.Meta(ge=0),
    ] = 1.0
    stop_before: Annotated[
        list[Annotated[float, msgspec.Meta(ge=0)]],
        doc(
            "How long before the NotBefore of an event, in seconds, the clock also stops and gives"
            " machines time to react."
        ),
        msgspec.Meta(max_length=limits.MAX_STOP_BEFORE),
    ] = msgspec.field(default_factory=list)


class ResumeClockRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The speed of a virtual clock."""

    speed: Annotated[
        float, doc("How many seconds of the virtual clock pass in one second of real time.")
    ] = 1.0


class Clock(msgspec.Struct, kw_only=True):
    """The service's clock."""

    now: Annotated[w.Moment, doc("The service's time.")]
    virtual: Annotated[bool, doc("Whether it is a virtual clock.")]
    speed: Annotated[float, doc("Factor that durations are divided by (`--speed`).")] = 1.0
    running_speed: Annotated[
        float,
        doc("Seconds of this clock in one second of real time; 0: it is paused."),
    ] = 1.0
    steady_since: Annotated[
        w.Moment | None, doc("Since when the service has run without an interruption.")
    ] = None
    next_due: Annotated[w.Moment | None, doc("When the next deadline is due.")] = None
    untrusted: Annotated[str | None, doc("Why the wall clock is not trusted; null if it is.")] = (
        None
    )


class ClockHeader(msgspec.Struct, kw_only=True, frozen=True):
    """What a reader of a response should know about the service's time."""

    now: w.Moment
    virtual: bool
    speed: float = 1.0  # durations are divided by it


class AcceptedClock(Clock, kw_only=True):
    """The service's clock after the wall clock was accepted."""

    before: Annotated[w.Moment, doc("The service's time before the change.")]
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Leader(msgspec.Struct, kw_only=True):
    """The control node that decides."""

    name: Annotated[str, doc("Its name.")]
    address: Annotated[str, doc("URL of its control API.")]


class ThisNode(msgspec.Struct, kw_only=True):
    """The control node that answers."""

    name: Annotated[str, doc("Its name.")]
    role: Annotated[
        Literal["leads", "follows"], doc("Whether it decides, or follows the one that does.")
    ]
    term: Annotated[
        int, doc("Term in which it decides; 0 if it follows, or is the only control node.")
    ] = 0
    commit: Annotated[int, doc("Number of the last commit that it knows.")]
    leader: Annotated[
        Leader | None, doc("The control node that decides, as far as is known; null: none does.")
    ] = None


class ControlNode(msgspec.Struct, kw_only=True):
    """A control node of the service, as it has last reported."""

    name: Annotated[str, doc("Its name.")]
    address: Annotated[str, doc("URL of its control API.")]
    version: Annotated[str, doc("Version of forewarn that it runs.")]
    role: Annotated[
        Literal["leads", "follows", "away"],
        doc("Whether it decides or follows, or has not reported for 20 seconds."),
    ]
    lease: Annotated[
        float, doc("Its setting `lease`, in seconds; 0 if it is the only control node.")
    ] = 0.0
    commit: Annotated[int, doc("Number of the last commit that it knew.")]
    lag: Annotated[int, doc("Number of commits that it did not know yet.")] = 0
    started: Annotated[w.Moment, doc("When it was started.")]
    seen: Annotated[w.Moment, doc("When it has last reported.")]


class StatusProblem(msgspec.Struct, kw_only=True):
    """Something that somebody should look at."""

    kind: Annotated[w.ProblemKind, doc("What it is about.")]
    subject: Annotated[
        str,
        doc(
            "Id or name of what has it: a part of the service, an event, a rollout, a halt, a"
            " notification, a host; empty: several machines, or what has no name."
        ),
    ] = ""
    message: Annotated[str, doc("What is wrong, for people; without times.")]
    since: Annotated[w.Moment | None, doc("Since when; null: not known.")] = None
    expires: Annotated[
        w.Moment | None, doc("When something expires that still works; null: nothing does.")
    ] = None
    advice: Annotated[str, doc("What to do; empty if the message says it.")] = ""


class Status(msgspec.Struct, kw_only=True):
    """The version, size, clock and problems of the service."""

    version: Annotated[str, doc("Version of the service.")]
    control_node: Annotated[ThisNode | None, doc("The control node that answers.")] = None
    clock: Annotated[Clock, doc("The service's clock.")]
    metadata: Annotated[str, doc("The first of metadata_urls; empty: there are none.")]
    metadata_urls: Annotated[list[str], doc("URLs of the metadata endpoint.")] = []
    arm: Annotated[str, doc("URL of the API for az and Azure's SDKs; empty: there is none.")] = ""
    nodes: Annotated[
        int, doc("Number of hosts whose node answers their guests; 0 if the token is limited.")
    ] = 0
    groups: Annotated[int, doc("Number of groups.")]
    machines: Annotated[int, doc("Number of machines.")]
    hosts: Annotated[int, doc("Number of hosts.")] = 0
    events: Annotated[int, doc("Number of active events.")]
    started: Annotated[int, doc("How many of them have started.")] = 0
    coverage: Annotated[Coverage, doc("How many machines poll and answer events.")] = msgspec.field(
        default_factory=Coverage
    )
    not_back: Annotated[
        int, doc("Number of machines that have not polled since an event was carried out on them.")
    ] = 0
    unknown_callers: Annotated[
        int,
        doc(
            "How many addresses that belong to no machine have sent requests in the last hour; 0 if"
            " the token is limited."
        ),
    ] = 0
    certificate_expires: Annotated[
        w.Moment | None,
        doc("When the certificate of the control API, or that for nodes, expires; null: none."),
    ] = None
    token_expires: Annotated[
        w.Moment | None,
        doc("When the next token that was valid for 30 days or more expires; null: none does."),
    ] = None
    problems: Annotated[
        list[StatusProblem], doc("What somebody should look at, up to 100; empty: nothing.")
    ] = []
    problems_total: Annotated[int, doc("How many problems there are.")] = 0


class UnknownCaller(msgspec.Struct, kw_only=True):
    """An address that has sent requests to the metadata endpoint and belongs to no machine."""

    address: Annotated[str, doc("The address.")]
    first: Annotated[w.Moment, doc("When it first sent a request.")]
    last: Annotated[w.Moment, doc("When it last sent a request.")]
    requests: Annotated[int, doc("How many requests it has sent.")]
    machine: Annotated[
        str,
        doc(
            "Machine that had the address and no longer exists, or that has it and is known to be"
            " on another host; empty: none, or several."
        ),
    ] = ""
    host: Annotated[str, doc("Host whose node was asked; empty: it was no node.")] = ""
    known_host: Annotated[
        str, doc("Other host that the machine is known to be on; empty: it no longer exists.")
    ] = ""


class MachineDrift(msgspec.Struct, kw_only=True):
    """A machine that is not as the inventory has it, as its driver sees it."""

    machine: Annotated[str, doc("Its name.")]
    drift: Annotated[w.DriftName, doc("How it differs.")]
    since: Annotated[w.Moment, doc("When that was noticed.")]
    group: Annotated[
        str, doc("Its group, or the one that it is described to belong to; empty: none.")
    ] = ""
    host: Annotated[str, doc("Host that it is known to be on; empty: none.")] = ""
    seen_on: Annotated[list[str], doc("Hosts on which it was seen.")] = []
    state: Annotated[str, doc("Its state there; empty: it was not seen.")] = ""
    reason: Annotated[str, doc("Why it is in that state.")] = ""
    problem: Annotated[
        str, doc("Why the inventory does not follow; empty: it does not have to.")
    ] = ""


class HealthReport(msgspec.Struct, kw_only=True):
    """Health of the service as a whole, and of its parts."""

    status: Annotated[str, doc("`ok` or `failing`.")]
    parts: Annotated[dict[str, str], doc("State of each part: `ok`, or what is wrong with it.")]
    warnings: Annotated[
        dict[str, str],
        doc("What somebody should look at although the service is ready, by subject."),
    ] = {}


class BackupContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup contains."""

    schema: Annotated[str, doc("Version of the schema of the state.")]
    commit: Annotated[int, doc("Number of its last commit.")]
    until: Annotated[w.Moment | None, doc("Time of its last commit.")] = None
    copied_at: Annotated[w.Moment | None, doc("When the backup was made.")] = None
    groups: Annotated[int, doc("Number of groups.")]
    machines: Annotated[int, doc("Number of machines.")]
    active_events: Annotated[int, doc("Number of active events.")]
    tokens: Annotated[
        int, doc("Number of tokens; a backup contains their digests, not their secrets.")
    ]


class Mistake(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An invalid field of the body, or an invalid parameter."""

    pointer: Annotated[str, doc("JSON Pointer into the body, or the name of a parameter.")]
    detail: Annotated[str, doc("What is wrong, and what would be right.")]
    line: Annotated[int | None, doc("Line in the fleet file.")] = None


UNDER_WAY = "#problem-under-way"  # fragment of that problem's type
NOT_LEADING = "#problem-not-leading"  # likewise, of a change at a control node that follows


class ProblemHint(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the caller could do about a problem."""

    kind: Annotated[str, doc("Kind of the hint, for example `force`.")]
    about: Annotated[str, doc("The machine, host or token that it refers to.")] = ""
    detail: Annotated[str, doc("The hint in the terms of this API.")] = ""


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem as defined by RFC 9457. Fields that do not apply are left out."""

    title: Annotated[str, doc("The kind of the problem, in a few words.")]
    status: Annotated[int, doc("Status of the response.")]
    detail: Annotated[str, doc("What is wrong, and what would be right.")]
    type: Annotated[str, doc("Kind of the problem, an anchor on the page /docs.")] = "about:blank"
    instance: Annotated[str, doc("Id of the request, which is also in the service's log.")] = ""
    did_you_mean: Annotated[str, doc("A similar name that exists.")] = ""
    line: Annotated[int | None, doc("Line in the fleet file.")] = None
    errors: Annotated[list[Mistake], doc("All mistakes, if there are several.")] = []
    hint: Annotated[ProblemHint | None, doc("What the caller could do about it.")] = None
