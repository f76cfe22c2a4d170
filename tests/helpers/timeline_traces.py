"""Lines of a trace for tests of the timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from forewarn.wire.times import rfc1123

T = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
REBOOT = "28512AF7-C957-4500-9BC4-842D6FB531E4"
FREEZE = "FE88BA46-96D4-432E-8AED-89A0F0E52D99"


def fleet(**groups: Sequence[str]) -> dict[str, Any]:
    machines = {
        name: {"group": group, "update_domain": at, "addresses": [f"10.0.{at // 250}.{at % 250}"]}
        for group, names in groups.items()
        for at, name in enumerate(names)
    }
    kinds = {group: {"kind": "scale-set"} for group in groups}
    return {"kind": "fleet", "t": T, "groups": kinds, "machines": machines}


def shown(
    id: str = REBOOT,
    status: str = "Scheduled",
    type: str = "Reboot",
    machines: Sequence[str] = ("web_0",),
    not_before: float = T + 900,
) -> dict[str, Any]:
    return {
        "EventId": id,
        "EventStatus": status,
        "EventType": type,
        "ResourceType": "VirtualMachine",
        "Resources": list(machines),
        "NotBefore": rfc1123(int(not_before)) if status == "Scheduled" else "",
    }


def poll(
    machine: str, at: float, *events: Any, status: int | None = 200, version: str = "2020-07-01"
) -> dict[str, Any]:
    return {
        "kind": "exchange",
        "t": T + at,
        "asked": T + at,
        "machine": machine,
        "method": "GET",
        "target": f"/metadata/scheduledevents?api-version={version}",
        "status": status,
        "answer": json.dumps({"DocumentIncarnation": 1, "Events": events}),
    }


def approval(machine: str, at: float, *ids: str, status: int = 200) -> dict[str, Any]:
    body = json.dumps({"StartRequests": [{"EventId": id} for id in ids]})
    return {**poll(machine, at, status=status), "method": "POST", "body": body, "answer": ""}


def step(move: str, at: float, id: str = REBOOT, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "event",
        "t": T + at,
        "event": id,
        "move": move,
        "group": "web",
        "type": "Reboot",
        "source": "Platform",
        "machines": ["web_0"],
        "not_before": T + 900,
        "listed": True,
        **fields,
    }


COURSE = [
    fleet(web=["web_0", "web_1"]),
    step("raise", 0),
    poll("web_0", 60, shown()),
    approval("web_1", 300, REBOOT),
    step("start", 300),
    {
        "kind": "impact",
        "t": T + 310,
        "event": REBOOT,
        "type": "Reboot",
        "machines": ["web_0"],
        "seconds": 9,
    },
    step("finish", 600),
    {"kind": "end", "t": T + 1_200},
]


def result_line(*expectations: tuple[str, bool, str], **more: Any) -> dict[str, Any]:
    keys = ("expected", "ok", "message")
    entries = [dict(zip(keys, item, strict=True)) for item in expectations]
    ok = all(item[1] for item in expectations)
    line = {"kind": "scenario", "t": T + 1_100, "scenario": "trial", "expectations": entries}
    return line | {"ok": ok, "problems": []} | more


FAILED = [
    ("reboot is seen in time", True, ""),
    ("reboot is approved by <web_0>", False, "web_0 never approved it"),
]
