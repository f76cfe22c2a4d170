"""The shapes of a fleet file, and its JSON Schema.

Needs nothing but msgspec and the core. Which values fit together is `build.py`; how the text is
parsed is `read.py` and `support/yaml/events.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forewarn.core.events import EventType, types_that
from forewarn.core.fleet import DOMAINS, MAX_NAME, NAME, GroupKind, OverWhen
from forewarn.core.labels import (
    LABEL_NAME,
    LABEL_VALUE,
    MAX_LABEL_NAME,
    MAX_LABEL_VALUE,
    MAX_LABELS,
)
from forewarn.core.windows.model import MAX_CONFIGURATIONS
from forewarn.support.limits import MAX_BLACKOUTS, MAX_WINDOWS

MAX_DOMAIN = DOMAINS - 1
MAX_ADDRESSES = 256  # of one machine: as many as a network interface can have in Azure
MAX_TAGS = 64  # of one machine
MAX_AMOUNT = 2**31 - 1  # of machines, MiB or CPUs
GUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

# These are only for the schema; `build.py` checks them, with better messages.
_NAMED = {"pattern": f"^{NAME}$", "maxLength": MAX_NAME}
_DOMAIN = {"minimum": 0, "maximum": MAX_DOMAIN}
_AMOUNT = {"minimum": 0, "maximum": MAX_AMOUNT}
_LABELS: dict[str, Any] = {
    "maxProperties": MAX_LABELS,
    "propertyNames": {"pattern": f"^{LABEL_NAME.pattern}$", "maxLength": MAX_LABEL_NAME},
}
_BY_USERS = {"enum": [type.value for type in types_that(lambda traits: traits.by_user)]}
_VALUE = {"pattern": f"^{LABEL_VALUE.pattern}$", "maxLength": MAX_LABEL_VALUE}


def _meta(description: str, **more: Any) -> Meta:
    return Meta(description=description, extra_json_schema=more or None)


Labels = Annotated[
    dict[str, Annotated[str, Meta(extra_json_schema=_VALUE)]],
    _meta("Names and values to select it by, for example in a rollout.", **_LABELS),
]


Windows = Annotated[
    list[str],
    _meta(
        "Maintenance starts only while one of these is open, such as"
        " 'sat,sun 22:00-04:00 Europe/Berlin'; by default, at any time.",
        maxItems=MAX_WINDOWS,
    ),
]
Blackouts = Annotated[
    list[str],
    _meta(
        "No maintenance starts in these times, such as '2026-12-20 to 2027-01-06 Europe/Berlin'.",
        maxItems=MAX_BLACKOUTS,
    ),
]


class SizeEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a machine takes of its host."""

    memory: Annotated[int, _meta("Memory in MiB.", **_AMOUNT)] = 0
    cpus: Annotated[int, _meta("Number of CPUs.", **_AMOUNT)] = 0


class CapacityEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a host can hold; what is left out is not limited."""

    machines: Annotated[int | None, _meta("Number of machines.", **_AMOUNT)] = None
    memory: Annotated[int | None, _meta("Memory of its machines in MiB.", **_AMOUNT)] = None
    cpus: Annotated[int | None, _meta("CPUs of its machines.", **_AMOUNT)] = None


class MachineEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A machine; it is in exactly one group."""

    name: Annotated[
        str,
        _meta(
            "Unique in the fleet; shown in events. A member of a scale set is named"
            " {scale set}_{n}, unless that is flexible.",
            **_NAMED,
        ),
    ]
    address: Annotated[str | None, _meta("IP address from which it queries the endpoint.")] = None
    addresses: Annotated[
        list[str],
        _meta("Further IP addresses from which it queries the endpoint.", maxItems=MAX_ADDRESSES),
    ] = []
    update_domain: Annotated[
        int | None,
        _meta(
            "The platform disturbs one update domain of a group at a time. By default"
            " spread over 5 by position.",
            **_DOMAIN,
        ),
    ] = None
    fault_domain: Annotated[
        int | None,
        _meta(
            "Maintenance never disturbs two fault domains of a group at a time. By default the"
            " number of the update domain.",
            **_DOMAIN,
        ),
    ] = None
    host: Annotated[str, _meta("The host it is on: one of hosts.")] = ""
    spot: Annotated[bool, _meta("Whether it is a spot machine, which can be evicted.")] = False
    computer_name: Annotated[str, _meta("The guest's own host name.")] = ""
    vm_id: Annotated[
        str,
        _meta("A GUID; by default derived from the name.", pattern=f"^(?:{GUID})?$"),
    ] = ""
    tags: Annotated[dict[str, str], _meta("For instance metadata.", maxProperties=MAX_TAGS)] = {}
    labels: Labels = {}
    size: Annotated[
        SizeEntry | None, _meta("What it takes of its host; by default, it is only counted.")
    ] = None


class PolicyEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Rules that the owner of the group has set for its events."""

    user_event_limit: Annotated[
        int | None,
        _meta("How many user events may be Scheduled at a time; no limit by default.", minimum=1),
    ] = None
    auto_approve: Annotated[
        list[Annotated[EventType, Meta(extra_json_schema=_BY_USERS)]],
        _meta("User events of these types are approved at once."),
    ] = []
    all_instances_down: Annotated[
        bool, _meta("Approve users' events while all machines of the group are down?")
    ] = False
    event_grid: Annotated[
        bool, _meta("Publish its events to Event Grid and Azure Resource Graph?")
    ] = False
    terminate_notice: Annotated[
        str | None,
        _meta(
            "Notice of deletions, from 5m to 15m (or PT5M); only for groups of kind scale-set. By"
            " default, deletions are not announced."
        ),
    ] = None
    image_notice: Annotated[
        str | None,
        _meta(
            "Notice of reimages, from 5m to 15m (or PT5M); only for groups of kind scale-set. By"
            " default, its machines cannot be reimaged."
        ),
    ] = None
    windows: Windows = []
    blackouts: Blackouts = []
    may_postpone: Annotated[
        str | None,
        _meta(
            "By how much each event may be postponed in total, and how often: '2h, twice'. By"
            " default, events cannot be postponed."
        ),
    ] = None
    over_when: Annotated[
        OverWhen | None,
        _meta(
            "When to end an event that was carried out: heard (once its machines have polled"
            " again) or carried-out (at once). By default heard, and carried-out in forewarn dev."
        ),
    ] = None
    back_within: Annotated[
        str | None,
        _meta(
            "How long an event waits for its machines to poll again, from 10s to 1h; by default"
            " 10m. A Freeze waits for at most 1m."
        ),
    ] = None


class MaintenanceEntry(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """When maintenance of some machines may start: a maintenance configuration."""

    name: Annotated[str, _meta("Unique in the fleet.", **_NAMED)]
    select: Annotated[
        str,
        _meta("Labels of the machines, such as tier=web,!canary; by default, all machines."),
    ] = ""
    windows: Windows = []
    blackouts: Blackouts = []


class GroupEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One group, one document: its machines see and approve each other's events."""

    name: Annotated[str, _meta("Unique in the fleet.", **_NAMED)]
    kind: Annotated[GroupKind, _meta("What kind of group; standalone has exactly one machine.")]
    machines: Annotated[list[MachineEntry], _meta("Its machines.", minItems=1)]
    policy: Annotated[PolicyEntry, _meta("How user events and deletions are treated.")] = (
        msgspec.field(default_factory=PolicyEntry)
    )
    labels: Labels = {}
    scale_set: Annotated[
        str,
        _meta(
            "For kind scale-set: the scale set of which this is a placement group; by default the"
            " group's own name."
        ),
    ] = ""
    flexible: Annotated[
        bool,
        _meta("For kind scale-set: flexible orchestration, whose members have names of their own."),
    ] = False
    location: Annotated[str | None, _meta("For instance metadata; by default the fleet's.")] = None
    zone: Annotated[str, _meta("For instance metadata.")] = ""
    resource_group: Annotated[
        str | None, _meta("For instance metadata; by default the fleet's.")
    ] = None
    subscription: Annotated[str | None, _meta("For instance metadata; by default the fleet's.")] = (
        None
    )


class HostEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What machines run on. A host without labels can also be given by its name alone."""

    name: Annotated[str, _meta("Unique in the fleet.", **_NAMED)]
    labels: Labels = {}
    capacity: Annotated[
        CapacityEntry | None,
        _meta("What it can hold: no machine is moved to it that does not fit; by default, any."),
    ] = None
    cordoned: Annotated[
        bool | None, _meta("Whether no machine is moved to it; by default, this stays as it is.")
    ] = None


class FleetEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A fleet: hosts, groups and their machines."""

    groups: Annotated[list[GroupEntry], _meta("Groups and their machines.")]
    hosts: Annotated[
        list[HostEntry | Annotated[str, _meta("A host's name.", **_NAMED)]],
        _meta("What machines run on."),
    ] = []
    maintenance: Annotated[
        list[MaintenanceEntry] | None,
        _meta(
            "When maintenance may start, for machines of all groups. An empty list removes all"
            " configurations; by default, they stay as they are.",
            maxItems=MAX_CONFIGURATIONS,
        ),
    ] = None
    location: Annotated[str, _meta("Default for all groups.")] = "local"
    resource_group: Annotated[str, _meta("Default for all groups.")] = "forewarn"
    subscription: Annotated[str, _meta("Default for all groups.")] = (
        "00000000-0000-0000-0000-000000000000"
    )


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a fleet file."""
    generated = msgspec.json.schema(FleetEntry)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "forewarn fleet file",
        **generated,
    }


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
