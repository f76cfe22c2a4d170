"""A service that is only told of: two clocks, events, machines that ask, and the lines of a trace
that come of it. What it does is simple enough to be believed; what a verdict makes of it is not."""

from __future__ import annotations

import json
from typing import Any

from forewarn.verdict.observer import Observer
from forewarn.verdict.verdict import Verdict
from forewarn.wire.times import rfc1123
from forewarn.wire.versions import BY_NAME

GROUP = "web"
MACHINES = ("web_0", "web_1", "web_2")
NEWEST = "2020-07-01"
LASTS = 30.0  # seconds that an event stays Started
NOTICES = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}


class World:
    """`events` tells by lines of its own what happens to events; without it documents alone do.
    `real`: exchanges say what a real clock said, too."""

    def __init__(
        self,
        *,
        events: bool = True,
        real: bool = True,
        spot: tuple[str, ...] = (),
        speed: float = 1.0,
    ) -> None:
        self.observer = Observer()
        self.lines: list[dict[str, Any]] = []
        self.t, self.real = 1_800_000_000.0, 5_000.0
        self.events: dict[str, dict[str, Any]] = {}
        self.listed: set[str] = set()
        self.incarnation = 1
        self._tells, self._says_real = events, real
        machines = {
            name: {"group": GROUP, "addresses": [f"10.0.0.{n}"], "spot": name in spot}
            for n, name in enumerate(MACHINES)
        }
        machines["db"] = {"group": "db", "addresses": ["10.0.1.1"]}
        groups = {GROUP: {"kind": "scale-set"}}
        self.tell("fleet", groups=groups, machines=machines, speed=speed)
        self.tell("up")

    def verdict(self) -> Verdict:
        return self.observer.verdict()

    def tell(self, kind: str, **fields: Any) -> None:
        line = {"kind": kind, "t": self.t, **fields}
        self.lines.append(line)
        self.observer.add(line)

    # Time.

    def wait(self, seconds: float) -> None:
        """On both clocks."""
        self.real += seconds
        self.wind(seconds)

    def wind(self, seconds: float) -> None:
        """On the service's clock alone."""
        self.t += seconds
        for id, event in list(self.events.items()):
            if event["status"] == "Scheduled" and self.t >= event["not_before"]:
                self.start(id)
            elif event["status"] == "Started" and self.t >= event["ends"]:
                self.end(id, "finish")

    # Events.

    def raise_(
        self,
        type: str,
        *machines: str,
        notice: float | None = None,
        listed: bool = True,
        seconds: int = 5,
    ) -> str:
        id = f"{len(self.listed):08X}-0000-4000-8000-000000000000"
        self.listed.add(id)
        at = self.t + (NOTICES[type] if notice is None else notice)
        self.events[id] = {
            "status": "Scheduled",
            "type": type,
            "machines": list(machines),
            "not_before": at,
            "seconds": seconds,
            "listed": listed,
        }
        self._move(id, "raise")
        return id

    def strike(self, type: str, *machines: str) -> str:
        id = self.raise_(type, *machines, listed=False)
        self.events[id].update(status="Started", ends=self.t + LASTS, listed=True)
        self._move(id, "strike")
        return id

    def start(self, id: str) -> None:
        self.events[id].update(status="Started", ends=self.t + LASTS)
        self._move(id, "start")

    def end(self, id: str, move: str) -> None:
        self._move(id, move)
        del self.events[id]

    def _move(self, id: str, move: str) -> None:
        self.incarnation += 1
        if not self._tells:
            return
        event = self.events[id]
        self.tell(
            "event",
            real=self.real,
            event=id,
            move=move,
            group=GROUP,
            source="Platform",
            **{key: event[key] for key in ("status", "type", "machines", "not_before")},
            seconds=event["seconds"],
            listed=event["listed"],
        )

    # Requests.

    def document(self, version: str = NEWEST) -> str:
        known = BY_NAME[version]
        shown = [
            {
                "EventId": id,
                "EventStatus": event["status"],
                "EventType": event["type"],
                "ResourceType": "VirtualMachine",
                "Resources": event["machines"],
                "NotBefore": rfc1123(int(event["not_before"]))
                if event["status"] == "Scheduled"
                else "",
                "DurationInSeconds": event["seconds"],
            }
            for id, event in self.events.items()
            if event["listed"] and event["type"] in known.types
        ]
        return json.dumps({"DocumentIncarnation": self.incarnation, "Events": shown})

    def poll(
        self,
        machine: str = "web_0",
        *,
        version: str = NEWEST,
        status: int | None = 200,
        took: float = 0.0,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """The events it was shown."""
        answer = self.document(version) if status == 200 else ""
        answer = more.pop("answer", answer)
        self.ask(machine, "GET", version=version, status=status, answer=answer, took=took, **more)
        try:
            found: list[dict[str, Any]] = json.loads(answer)["Events"]
        except (ValueError, KeyError):
            return []
        return found

    def approve(self, machine: str, *ids: str, **more: Any) -> None:
        body = json.dumps({"StartRequests": [{"EventId": id} for id in ids]})
        known = all(id in self.listed for id in ids)
        for id in ids:
            if id in self.events and self.events[id]["status"] == "Scheduled" and known:
                self.start(id)
        self.ask(machine, "POST", body=body, status=200 if known else 400, **more)

    def ask(
        self,
        machine: str,
        method: str,
        *,
        version: str = NEWEST,
        status: int | None = 200,
        body: str = "",
        answer: str = "",
        took: float = 0.0,
        target: str | None = None,
        headers: tuple[tuple[str, str], ...] = (("Metadata", "true"),),
        **more: Any,
    ) -> None:
        asked, real_asked = self.t, self.real
        if took:
            self.wait(took)
        real = {"real": self.real, "real_asked": real_asked} if self._says_real else {}
        self.tell(
            "exchange",
            asked=asked,
            machine=machine,
            method=method,
            target=target or f"/metadata/scheduledevents?api-version={version}",
            headers=[list(pair) for pair in headers],
            body=body,
            status=status,
            answer=answer,
            **real,
            **more,
        )

    def poll_for(self, seconds: float, machine: str = "web_0", every: float = 1.0) -> None:
        for _ in range(int(seconds / every)):
            self.poll(machine)
            self.wait(every)


def rules(verdict: Verdict) -> set[str]:
    return {one.rule for one in verdict.complaints}
