"""What the hook `kubernetes` writes on a Node: annotations, conditions, the cordon and a taint.

Pure: a Node goes in, a patch comes out. Every event has an annotation, a `Mark`, which says what is
done for it. Conditions, cordon and taint follow from all marks together, so that several events may
begin and end in any order. Nothing of a Node that is not named here is ever changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from forewarn.agent.hooks.contract import Call
from forewarn.agent.hooks.kubernetes_api import MANAGER
from forewarn.support import guard

ANNOTATION = "forewarn/event-"
PREFIX = "forewarn/"  # of conditions, before the server knows them
SOMEBODY = "somebody"  # has cordoned the node; the server does not say who
MAX_MESSAGE = 1_024  # characters of a condition's message

_EXPECTED = {
    "Freeze": "the node is expected to be paused",
    "Reboot": "the node is expected to be restarted",
    "Redeploy": "the node is expected to be moved to other hardware and restarted",
    "Preempt": "the node is expected to be deleted",
    "Terminate": "the node is expected to be deleted",
}

Node = dict[str, Any]
Stage = Literal["announced", "draining", "cordoned", "started", "over"]


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is done on a Node for one event: the value of its annotation."""

    type: str
    not_before: str = ""
    duration: float | None = None
    source: str = ""
    description: str = ""
    stage: Stage = "announced"
    held: bool = False  # the node is to stay cordoned for this event
    cordoned_by: str = ""  # the name of our field manager, or of whoever did before
    taint: str = ""  # that this hook has added
    drained: bool = False
    prefix: str | None = None  # of the conditions; None: there are none


def mark_of(call: Call, prefix: str | None) -> Mark:
    event = call.event
    description = event.description[:MAX_MESSAGE]
    known = (event.type, event.not_before or "", event.duration, event.source, description)
    return Mark(*known, prefix=prefix)


def name_of(node: Node) -> str:
    return str(node["metadata"]["name"])


def boot_id(node: Node) -> str:
    """Return the boot ID that the node's kubelet has reported; empty if it has not."""
    return str((node.get("status", {}).get("nodeInfo") or {}).get("bootID", ""))


def now() -> str:
    return f"{datetime.fromtimestamp(guard.wall_us() // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def is_cordoned(node: Node) -> bool:
    return bool(node["spec"].get("unschedulable"))


def condition(node: Node, type: str) -> str | None:
    """Return the status of a condition; None if the Node does not have it."""
    entries = node.get("status", {}).get("conditions") or ()
    return next((str(entry["status"]) for entry in entries if entry["type"] == type), None)


def marks_of(node: Node) -> dict[str, Mark]:
    """Return the marks by the IDs of their events. One that somebody has edited so that it cannot
    be read is an event of which nothing else is known."""
    marks = {}
    for key, value in (node["metadata"].get("annotations") or {}).items():
        if key.startswith(ANNOTATION):
            try:
                mark = msgspec.json.decode(value, type=Mark)
            except msgspec.DecodeError:
                mark = Mark(type="")
            marks[key.removeprefix(ANNOTATION)] = mark
    return marks


def cordoned_by(node: Node) -> str:
    """Return who has cordoned the node, as far as its managedFields say so; empty if it is not."""
    if not is_cordoned(node):
        return ""
    for entry in node["metadata"].get("managedFields") or ():
        if "f:unschedulable" in (entry.get("fieldsV1") or {}).get("f:spec", {}):
            return str(entry.get("manager") or SOMEBODY)
    return SOMEBODY


# Patches. Each is applied only to the very Node that it was made for.


def mark_patch(node: Node, id: str, mark: Mark, reason: str, why: str = "") -> Node:
    """Set the mark of an event, and the conditions that follow from it: a patch of the status.
    `reason` and `why` are those of conditions that become False."""
    marks = marks_of(node) | {id: mark}
    return _patch(node, {id: mark}) | _conditions(node, marks, mark.prefix, reason, why)


def conditions_patch(node: Node, prefix: str | None, reason: str) -> Node:
    """Make the conditions follow the marks; empty if they do."""
    conditions = _conditions(node, marks_of(node), prefix, reason, "")
    return _patch(node, {}) | conditions if conditions else {}


def cordon_patch(node: Node, id: str, mark: Mark, taint: str) -> Node:
    """Cordon the node for an event, and taint it if `taint` says so: a patch of the Node."""
    held = [other for key, other in marks_of(node).items() if key != id and other.held]
    if not is_cordoned(node) or any(other.cordoned_by == MANAGER for other in held):
        by = MANAGER
    elif mark.held:
        by = mark.cordoned_by
    else:
        found = cordoned_by(node)
        by = SOMEBODY if found == MANAGER else found  # ours, but of no event that is known
    taints = node["spec"].get("taints") or []
    ours = mark.taint
    if not ours and (taint in (it.taint for it in held) or _without(taints, taint) == taints):
        ours = taint
    mark = msgspec.structs.replace(mark, held=True, cordoned_by=by, taint=ours)
    patch = _patch(node, {id: mark})
    patch["spec"] = {"unschedulable": True}
    if ours and _without(taints, ours) == taints:
        patch["spec"]["taints"] = [*taints, parse_taint(ours)]
    return patch


def opens(node: Node, id: str) -> bool:
    """Whether the node is uncordoned when this event releases it."""
    marks = marks_of(node)
    mine = marks.pop(id, None)
    return (
        mine is not None
        and mine.cordoned_by == MANAGER
        and is_cordoned(node)
        and cordoned_by(node) in (MANAGER, SOMEBODY)
        and not any(other.held for other in marks.values())
    )


def release_patch(node: Node, id: str) -> Node:
    """Remove the mark of an event, and what no other event needs: a patch of the Node."""
    marks = marks_of(node)
    mine = marks.pop(id)
    held = {key: other for key, other in marks.items() if other.held}
    changed: dict[str, Mark | None] = {id: None}
    if mine.cordoned_by == MANAGER:  # the next one answers for it
        for key, other in held.items():
            changed[key] = msgspec.structs.replace(other, cordoned_by=MANAGER)
    patch = _patch(node, changed)
    spec: Node = {"unschedulable": None} if opens(node, id) else {}
    if mine.taint and not any(other.taint == mine.taint for other in held.values()):
        taints = node["spec"].get("taints") or []
        spec["taints"] = _without(taints, mine.taint) or None
    if spec:
        patch["spec"] = spec
    return patch


def _patch(node: Node, marks: Mapping[str, Mark | None]) -> Node:
    annotations = {
        f"{ANNOTATION}{id}": None if mark is None else msgspec.json.encode(mark).decode()
        for id, mark in marks.items()
    }
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": annotations}}


def parse_taint(text: str) -> Node:
    """Parse `key=value:Effect` or `key:Effect`, as kubectl writes taints."""
    name, _, effect = text.rpartition(":")
    key, equals, value = name.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if equals else {})


def _without(taints: list[Node], text: str) -> list[Node]:
    """Return the taints but for the one with this key and effect, whatever its value is."""
    gone = parse_taint(text)
    return [it for it in taints if (it["key"], it["effect"]) != (gone["key"], gone["effect"])]


# Conditions


def _conditions(
    node: Node, marks: Mapping[str, Mark], prefix: str | None, reason: str, why: str
) -> Node:
    """Return a patch that makes the conditions with this prefix follow the marks; empty if they do.
    One that is False and was never set is not added."""
    if prefix is None:
        return {}
    current = [mark for mark in marks.values() if mark.prefix == prefix and mark.stage != "over"]
    current.sort(key=lambda mark: mark.not_before)
    holding = {
        "MaintenancePlanned": current,
        "DrainInProgress": [mark for mark in current if mark.stage == "draining"],
        "Drained": [mark for mark in current if mark.drained],
        "MaintenanceInProgress": [mark for mark in current if mark.stage == "started"],
    }
    before: list[Node] = node.get("status", {}).get("conditions") or []
    after = {entry["type"]: entry for entry in before}
    for name, of in holding.items():
        old: Node = after.get(prefix + name, {})
        if not old and not of:
            continue
        new: Node = {
            "type": prefix + name,
            "status": "True" if of else "False",
            "reason": (of[0].type or "Unknown") if of else reason,
            "message": "; ".join(map(describe, of) if of else [why])[:MAX_MESSAGE],
        }
        same = old.get("status") == new["status"]
        if not same or (of and not new.items() <= old.items()):
            since = old["lastTransitionTime"] if same else now()
            after[prefix + name] = new | {"lastTransitionTime": since, "lastHeartbeatTime": now()}
    conditions = list(after.values())
    return {} if conditions == before else {"status": {"conditions": conditions}}


def describe(mark: Mark) -> str:
    """Describe an event: its type, its NotBefore, and what is expected."""
    when = f" not before {mark.not_before}" if mark.not_before else " has started"
    expected = _EXPECTED.get(mark.type, "the node is expected to be disturbed")
    if mark.duration is not None and mark.duration >= 0:
        expected += f" for {mark.duration:g} s"
    source = f" ({mark.source})" if mark.source else ""
    description = f": {mark.description}" if mark.description else ""
    return f"{mark.type or 'An event'}{when}{source}; {expected}{description}"


# Which node


def machine_of(node: Node) -> str:
    """Return what events call the machine of a node: the member `set_18` of a scale set, whose
    providerID ends in `virtualMachineScaleSets/set/virtualMachines/18`."""
    parts = str(node["spec"].get("providerID", "")).lower().split("/")
    if parts[-4:-3] == ["virtualmachinescalesets"]:
        return f"{parts[-3]}_{parts[-1]}"
    return parts[-1]


def is_another(node: Node, machine: str) -> bool:
    """Whether the providerID names another machine. Only Azure's contain the name of one."""
    azure = str(node["spec"].get("providerID", "")).startswith("azure:")
    return azure and machine_of(node) != machine.lower()
