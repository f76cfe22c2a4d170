"""What a fleet is made of: the kinds of groups, machines and their groups' policies.

Values only. Where a machine's events stand is `group.py`; how a fleet file reads is elsewhere.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn.core.events import EventType


class GroupKind(enum.Enum):
    """What a document belongs to; a machine is in exactly one group."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    AVAILABILITY_ZONE = "availability-zone"
    SCALE_SET = "scale-set"


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
    tags: dict[str, str] = {}
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


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a group lives, as its machines' instance metadata tells it."""

    location: str = ""
    zone: str = ""
    scale_set: str = ""  # of which the group is a placement group
    resource_group: str = ""
    subscription: str = ""
