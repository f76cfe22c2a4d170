"""The parts of a fleet: hosts, machines, and the kinds and policies of groups.

Values only. A group with its events is `group.py`; reading fleet files is `service/fleet`.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import Duration, Time
from forewarn.core.windows.may_postpone import MayPostpone
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Window

MAX_NAME = 80  # characters of the name of a machine, group or host
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
DOMAINS = 1_000  # update domains that a group can have, and fault domains


class GroupKind(enum.Enum):
    """What a group is in Azure. Every machine is in exactly one group."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    AVAILABILITY_ZONE = "availability-zone"
    SCALE_SET = "scale-set"


class Health(enum.Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"  # its machines should be moved away
    FAILED = "failed"


class Placement(enum.Enum):
    """Which source counts for the host of a machine if a fleet file differs from what is known."""

    FILE = "file"  # files say where machines are
    REPORTED = "reported"  # events and reports do; files only say where machines are at first


class OverWhen(enum.Enum):
    """When to end an event that its driver has carried out."""

    CARRIED_OUT = "carried-out"
    HEARD = "heard"  # once its machines have polled again


class Enrollment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token with which the node of a host, or its driver process, gets its certificate."""

    token: str  # its id
    digest: str  # of its secret
    expires_at: Time
    hosts: int = 0  # how many of those that have this token it is good for; 0: for this host alone
    used_from: str = ""  # the address that has used it for this host; empty: nobody has
    driver: bool = False  # for the driver process of the host, instead of its node


REVOKED = "revoked"  # `node_key` of a host of which no certificate is accepted


class Size(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine takes of its host; 0: not known."""

    memory: int = 0  # MiB
    cpus: int = 0


class Capacity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host can hold; None: no limit is known."""

    machines: int | None = None
    memory: int | None = None  # MiB
    cpus: int | None = None


NO_SIZE, NO_CAPACITY = Size(), Capacity()  # of nearly all


class Host(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    labels: dict[str, str] = {}
    capacity: Capacity = NO_CAPACITY
    health: Health = Health.HEALTHY
    since: Time | None = None  # of the current health; None: always
    note: str = ""  # the reason for the current health
    cordoned: bool | None = None  # no machine is moved to it; None in a fleet file: not specified
    cordon_note: str = ""  # the reason
    node: bool = False  # a node has joined for it: without one, its machines cannot be informed
    enrollment: Enrollment | None = None  # the last token for its node
    # Digest of the only public key that its node may have; empty: any certificate that names the
    # host, unless control has issued it; or REVOKED.
    node_key: str = ""
    driver_key: str = ""  # the same of its driver process

    @property
    def healthy(self) -> bool:
        return self.health is Health.HEALTHY


def reached_by(host: str) -> str:
    """Return who can end that a host cannot be reached, because its node is cut off."""
    return (
        f"the node, by joining again, or an operator, with 'forewarn host fail {host}' if the host"
        f" has failed, or 'forewarn host without-node {host}' if no node serves it"
    )


def domain_name(domain: int) -> str:
    """Return the name of `Machine.domain`: "3" for an update domain, and "3.1" for its part in
    fault domain 1."""
    fault, update = divmod(domain, DOMAINS)
    return f"{update}.{fault - 1}" if fault else str(update)


class NotBack(msgspec.Struct, frozen=True):
    """That a machine has not polled since an event was carried out on it."""

    event: str  # its id
    since: Time
    cause: str = ""  # of the event


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    update_domain: int = 0
    fault_domain: int = 0
    split: bool = False  # its update domain has machines of several fault domains
    addresses: tuple[str, ...] = ()
    host: str = ""
    moved_from: str | None = None  # its host in the inventory, if it is known to have moved since
    # A driver has moved it from there, and no fleet file has said anything else about it since.
    relocated: bool = False
    # Another host that it may be on: a fleet file still named it after the machine had moved, or
    # the machine has polled the node there.
    disputed: str = ""
    disputed_by_poll: bool = False
    # The host that it was on before, if the node of the present one was cut off when it moved, or
    # before it could be shown there: the node there answers it until that of the present one has
    # joined.
    answered_on: str = ""
    spot: bool = False
    computer_name: str = ""
    vm_id: str = ""
    tags: dict[str, str] = {}  # shown in the instance metadata
    labels: dict[str, str] = {}  # used by operators to select it
    size: Size = NO_SIZE
    not_back: NotBack | None = None
    gone: str = ""  # why it no longer exists ("evicted", "deleted"); empty while it does

    @property
    def alive(self) -> bool:
        return not self.gone

    @property
    def domain(self) -> int:
        """What the platform disturbs at a time in its group: its update domain, or, if that is
        split, the part of it in its fault domain. `domain_name` shows it."""
        part = (self.fault_domain + 1) * DOMAINS if self.split else 0
        return self.update_domain + part

    @property
    def inventory_host(self) -> str:
        """Its host in the inventory, which may differ from the one that it is on."""
        return self.host if self.moved_from is None else self.moved_from


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules that the owner of a group has set for its events."""

    user_event_limit: int | None = None  # Scheduled user events at a time; None: no limit
    auto_approve: tuple[EventType, ...] = ()  # user events of these types are approved at once
    all_instances_down: bool = False  # approve users' events while all machines are down
    terminate_notice: Duration | None = None  # notice of deletes; None: they are not announced
    image_notice: Duration | None = None  # notice of reimages; None: there can be none
    windows: tuple[Window, ...] = ()  # in which maintenance may start; empty: at any time
    blackouts: tuple[Blackout, ...] = ()  # in which it may not
    may_postpone: MayPostpone | None = None  # None: its events cannot be postponed
    over_when: OverWhen | None = None  # None: as the service does it
    back_within: Duration | None = None  # how long its machines are waited for; None: 10 min
    event_grid: bool = False  # publish its events to Event Grid and Azure Resource Graph

    @property
    def configuration(self) -> MaintenanceConfiguration | None:
        """When maintenance of the group may start, if the group itself limits that."""
        if not self.windows and not self.blackouts:
            return None
        return MaintenanceConfiguration(name="", windows=self.windows, blackouts=self.blackouts)


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Location and resource names of a group, as shown in the instance metadata."""

    location: str = ""
    zone: str = ""
    scale_set: str = ""  # the group is a placement group of this scale set
    flexible: bool = False  # which has flexible orchestration: its members have names of their own
    resource_group: str = ""
    subscription: str = ""
