"""What a fleet is made of: hosts, the kinds of groups, machines and their groups' policies.

Values only. Where a machine's events stand is `group.py`; how a fleet file reads is elsewhere.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import Duration, Time

MAX_NAME = 80  # characters of the name of a machine, group or host
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"


class GroupKind(enum.Enum):
    """What a document belongs to; a machine is in exactly one group."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    AVAILABILITY_ZONE = "availability-zone"
    SCALE_SET = "scale-set"


class Health(enum.Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"  # its machines are being moved away in good time
    FAILED = "failed"


class Host(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    labels: dict[str, str] = {}
    health: Health = Health.HEALTHY
    since: Time | None = None  # when it became what it is; None: it always was
    note: str = ""  # what whoever said so had to say

    @property
    def healthy(self) -> bool:
        return self.health is Health.HEALTHY


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    update_domain: int = 0
    fault_domain: int = 0
    addresses: tuple[str, ...] = ()
    host: str = ""
    moved_from: str = ""  # the host the inventory had it on when a redeploy moved it
    spot: bool = False
    computer_name: str = ""
    vm_id: str = ""
    tags: dict[str, str] = {}  # for instance metadata: its own affair
    labels: dict[str, str] = {}  # for selecting it: the operators' affair
    gone: str = ""  # why the machine is no more ("evicted", "deleted"); empty while it lives

    @property
    def alive(self) -> bool:
        return not self.gone


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a group's owner has decided beforehand."""

    user_event_limit: int | None = (
        None  # Scheduled user events at a time; None: as many as one likes
    )
    auto_approve: tuple[EventType, ...] = ()  # user events of these types start without being asked
    all_instances_down: bool = False  # approve users' events while all machines are down
    terminate_notice: Duration | None = None  # how long before a delete; None: not told of deletes


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a group lives, as its machines' instance metadata tells it."""

    location: str = ""
    zone: str = ""
    scale_set: str = ""  # of which the group is a placement group
    resource_group: str = ""
    subscription: str = ""
