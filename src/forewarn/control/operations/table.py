"""All operations of the control API by name, in the order of the document's subjects."""

from __future__ import annotations

from typing import Any

from forewarn.control.operations import (
    events,
    faults,
    feed,
    fleet,
    groups,
    halts,
    history,
    hosts,
    machines,
    maintenance,
    rollouts,
    service,
    tokens,
    verdict,
)
from forewarn.control.operations.operation import Operation

SUBJECTS = {
    machines: "Machines, and operations on a single machine.",
    groups: "Groups of machines that share a document of events.",
    hosts: "Hosts that machines run on.",
    events: "Scheduled events, active and past.",
    maintenance: "When maintenance may start: windows and blackouts for machines of all groups.",
    rollouts: "Maintenance of many machines, one update domain of each group at a time.",
    halts: "Halts: nothing that one covers starts until it is released.",
    fleet: "The inventory: groups, machines and hosts.",
    history: "Who did what, and when.",
    feed: "Every change, as a stream or by long-polling.",
    tokens: "Tokens that authenticate the callers of this API.",
    faults: "Faults that are injected on purpose.",
    verdict: "What clients did about their events.",
    service: "The service itself: status, health, clock and backups.",
}
TAGS = {module.__name__.rpartition(".")[2]: text for module, text in SUBJECTS.items()}


def _id(name: str) -> str:
    first, *others = name.lower().split("_")
    return first + "".join(map(str.capitalize, others))


OPERATIONS: dict[str, Operation[Any]] = {}
ID_OF: dict[Operation[Any], str] = {}
TAG_OF: dict[Operation[Any], str] = {}
for _module, _tag in zip(SUBJECTS, TAGS, strict=True):
    for _name, _operation in vars(_module).items():
        if isinstance(_operation, Operation):
            OPERATIONS[_id(_name)] = _operation
            ID_OF[_operation], TAG_OF[_operation] = _id(_name), _tag
