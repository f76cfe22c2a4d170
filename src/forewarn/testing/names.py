"""The names that the kit takes and returns, as types that an editor completes and checks.

Each mirrors a table of the service, which decides; a test compares them. What changes while a test
looks, such as the status of an event, is a plain `str` instead: type checkers take a property that
was once compared with a literal for unchanged, and what follows for unreachable.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

EventType: TypeAlias = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
"""What happens to the machines of an event."""

EventSource: TypeAlias = Literal["Platform", "User"]
"""Who has caused an event."""

EventStatus: TypeAlias = Literal["Scheduled", "Started"]
"""The status of an event as documents show it."""

GroupKind: TypeAlias = Literal[
    "standalone", "cloud-service", "availability-set", "availability-zone", "scale-set"
]
"""What a group is in Azure."""

MaintenanceMode: TypeAlias = Literal["Freeze", "Reboot", "live-migration"]
"""What the maintenance of a host does to the machines on it."""

FaultKind: TypeAlias = Literal[
    "slow",
    "throttled",
    "gone",
    "error",
    "empty",
    "no-events",
    "plain",
    "control-characters",
    "truncated",
    "stalled",
    "reset",
    "incarnation",
    "sudden",
    "vanish",
    "short-notice",
]
"""What a fault does. The page on faults explains each kind."""

FaultMethod: TypeAlias = Literal["GET", "POST"]
"""The method of the requests to which a fault applies."""
