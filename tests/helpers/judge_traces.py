"""Writes traces by hand: an honest service's answers, unless a test asks for another.

It renders documents in its own few lines, so that the judge is tested against text and not
against itself.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

NEWEST: Final = "2020-07-01"
ALL_VERSIONS: Final = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
# 2023-11-14 22:13:20 UTC, and the NotBefore of an event raised then with 15 minutes' notice.
T0: Final = 1_700_000_000.0
DUE: Final = T0 + 900

A: Final = "AAAAAAAA-0000-4000-8000-000000000001"
B: Final = "BBBBBBBB-0000-4000-8000-000000000002"
C: Final = "CCCCCCCC-0000-4000-8000-000000000003"

Event = dict[str, Any]
Record = dict[str, Any]
Headers = Sequence[tuple[str, str]]

FLEET: Final[dict[str, Any]] = {
    "groups": {
        "web": {"kind": "scale-set"},
        "jump": {"kind": "standalone"},
        "roles": {"kind": "cloud-service"},
    },
    "machines": {
        "web_0": {"group": "web", "update_domain": 0, "addresses": ["10.0.0.10"]},
        "web_1": {"group": "web", "update_domain": 1, "addresses": ["10.0.0.11"]},
        "web_2": {"group": "web", "update_domain": 0, "addresses": ["10.0.0.12"]},
        "jump": {"group": "jump", "update_domain": 0, "addresses": ["10.0.0.2"]},
        "Front_IN_0": {"group": "roles", "update_domain": 0, "addresses": ["10.0.0.30"]},
    },
}


def event(
    id: str = A,
    status: str = "Scheduled",
    type: str = "Freeze",
    resources: Sequence[str] = ("web_0",),
    not_before: float = DUE,
    **changed: Any,
) -> Event:
    """An event as the newest version shows it; `changed` replaces or adds keys as they stand."""
    return {
        "EventId": id,
        "EventStatus": status,
        "EventType": type,
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "NotBefore": "" if status == "Started" else not_before,
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
        **changed,
    }


def started(shown: Event) -> Event:
    return {**shown, "EventStatus": "Started", "NotBefore": ""}


def document(
    incarnation: int, events: Sequence[Event] = (), version: str = NEWEST, cloud: bool = False
) -> str:
    """The bytes for one version: types it does not know and keys it does not have left out."""
    hidden = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}
    newer = {
        "Description": "2019-04-01",
        "EventSource": "2019-08-01",
        "DurationInSeconds": "2020-07-01",
    }
    listed = []
    for given in events:
        if version < hidden.get(given["EventType"], ""):
            continue
        shown = {key: value for key, value in given.items() if version >= newer.get(key, "")}
        if isinstance(shown["NotBefore"], float):
            shown["NotBefore"] = _date(shown["NotBefore"], version == "2017-03-01")
        if version == "2017-03-01" and not cloud:
            shown["Resources"] = [f"_{name}" for name in shown["Resources"]]
        listed.append(shown)
    value = {"DocumentIncarnation": incarnation, "Events": listed}
    return json.dumps(value, separators=(",", ":"))


@functools.cache
def _date(at: float, iso: bool) -> str:
    form = "%Y-%m-%dT%H:%M:%SZ" if iso else "%a, %d %b %Y %H:%M:%S GMT"
    return datetime.fromtimestamp(at, UTC).strftime(form)


class Recording:
    """Collects records. Exchanges take 2 ms and end at the given `t` unless `asked` is given.

    A complete recording begins with the first document of every group, unless `begun` is false.
    """

    def __init__(
        self,
        *,
        fleet: bool = True,
        complete: bool = False,
        begun: bool = True,
        grace: float | None = None,
    ) -> None:
        self.records: list[Record] = []
        self._answers = 0
        self._complete = complete
        self._grace = grace
        if fleet:
            self.fleet(T0 - 10)
        if complete and begun:
            for machine in ("web_0", "jump", "Front_IN_0"):
                self.see(T0 - 8, 1, machine=machine, asked=T0 - 8)

    def fleet(self, t: float, **changed: Any) -> "Recording":
        line = {"kind": "fleet", "t": t, **FLEET, "grace": self._grace, **changed}
        if self._complete:
            line["complete"] = True
        return self.note(line)

    def note(self, record: Mapping[str, Any]) -> "Recording":
        self.records.append(dict(record))
        return self

    def up(self, t: float) -> "Recording":
        return self.note({"kind": "up", "t": t})

    def down(self, t: float) -> "Recording":
        return self.note({"kind": "down", "t": t})

    def step(self, t: float, seconds: float) -> "Recording":
        return self.note({"kind": "step", "t": t, "seconds": seconds})

    def get(
        self,
        t: float,
        answer: str,
        machine: str | None = "web_0",
        version: str = NEWEST,
        **changed: Any,
    ) -> "Recording":
        tag = '"' + hashlib.sha256(answer.encode()).hexdigest()[:32] + '"'
        target = f"/metadata/scheduledevents?api-version={version}"
        honest = {"target": target, "tag": tag}
        return self.exchange(t, machine=machine, answer=answer, **{**honest, **changed})

    def see(self, t: float, incarnation: int, *events: Event, **changed: Any) -> "Recording":
        """A GET answered with the document of these events, in the version asked for."""
        version = changed.get("version", NEWEST)
        cloud = changed.get("machine") == "Front_IN_0"
        return self.get(t, document(incarnation, events, version, cloud), **changed)

    def approve(self, t: float, *ids: str, **changed: Any) -> "Recording":
        body = json.dumps({"StartRequests": [{"EventId": id} for id in ids]})
        return self.exchange(t, **{"method": "POST", "body": body, "answer": "", **changed})

    def refuse(self, t: float, answer: str, status: int = 400, **changed: Any) -> "Recording":
        return self.exchange(t, status=status, answer=answer, **changed)

    def exchange(
        self,
        t: float,
        *,
        asked: float | None = None,
        machine: str | None = "web_0",
        method: str = "GET",
        target: str = f"/metadata/scheduledevents?api-version={NEWEST}",
        headers: Headers = (("Metadata", "true"),),
        body: str = "",
        status: int | None = 200,
        answer: str = "",
        tag: str | None = None,
        answer_headers: Mapping[str, str | None] | None = None,
        **more: Any,
    ) -> "Recording":
        """`answer_headers` replace what an honest answer has; None takes one away."""
        self._answers += 1
        honest: dict[str, str | None] = {
            "Content-Type": "application/json; charset=utf-8",
            "Content-Length": str(len(answer.encode())),
            "Date": datetime.fromtimestamp(t, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "Server": "IMDS/150.870.65.1",
            "x-ms-request-id": f"00000000-0000-0000-0000-{self._answers:012}",
            "ETag": tag,
            **(answer_headers or {}),
        }
        record = {
            "kind": "exchange",
            "t": t,
            "asked": t - 0.002 if asked is None else asked,
            "machine": machine,
            "method": method,
            "target": target,
            "headers": [list(pair) for pair in headers],
            "body": body,
            "status": status,
            "answer_headers": [[k, v] for k, v in honest.items() if v is not None],
            "answer": answer,
            **more,
        }
        if machine is None:
            del record["machine"]
        return self.note(record)

    def wait(self, t: float, answer: str, query: str = "", **changed: Any) -> "Recording":
        """A long-poll beside the wire, answered like a GET; asked long before, if not told."""
        target = f"/forewarn/v1/wait{query}"
        return self.get(t, answer, **{"target": target, "asked": t - 20, **changed})

    def joint(self, t: float, **groups: str) -> "Recording":
        """One host's events: the group of each, and its id."""
        events = {id: group for group, id in groups.items()}
        return self.note({"kind": "joint", "t": t, "id": "j", "host": "h", "events": events})

    def window(self, opens: float, closes: float | None = None, id: str = A) -> "Recording":
        line = {"kind": "window", "t": T0 - 1, "event": id, "opens": opens, "closes": closes}
        return self.note(line)

    def halts(self, t: float, *halts: Mapping[str, Any]) -> "Recording":
        """The halts that stand from then on."""
        halts_now = [{"id": str(number), **halt} for number, halt in enumerate(halts)]
        return self.note({"kind": "halts", "t": t, "halts": halts_now})

    def maintenance(self, t: float, *open: tuple[float, float], **scope: Any) -> "Recording":
        """One configuration, which allows maintenance at these times."""
        configuration = {"name": "nights", "open": [list(times) for times in open], **scope}
        line = {"kind": "maintenance", "t": t, "until": t + 86_400}
        return self.note({**line, "configurations": [configuration]})

    def ignores_windows(self, t: float, id: str = A, since: float | None = None) -> "Recording":
        return self.note({"kind": "ignores-windows", "t": t, "event": id, "from": since})

    def hosts(self, t: float, **hosts: str) -> "Recording":
        """The fleet, with machines on these hosts."""
        machines = {
            name: {**machine, **({"hosts": [hosts[name]]} if name in hosts else {})}
            for name, machine in FLEET["machines"].items()
        }
        return self.fleet(t, machines=machines)

    def placement(self, t: float, **hosts: str) -> "Recording":
        machines = {name: [host] if host else [] for name, host in hosts.items()}
        return self.note({"kind": "placement", "t": t, "machines": machines})

    def disconnected(self, t: float, *machines: str, host: str | None = None) -> "Recording":
        """Machines, web_0 if none are named, are answered by a node that control cannot reach."""
        line = {"kind": "disconnected", "t": t, "machines": list(machines or ("web_0",))}
        return self.note(line if host is None else {**line, "host": host})

    def joined(self, t: float, *machines: str, host: str | None = None) -> "Recording":
        line = {"kind": "joined", "t": t, "machines": list(machines or ("web_0",))}
        return self.note(line if host is None else {**line, "host": host})

    def moved(self, t: float, move: str, id: str = A, **changed: Any) -> "Recording":
        """A step in the life of an event, as the service has recorded it."""
        line = {"kind": "event", "t": t, "event": id, "move": move, "group": "web"}
        facts = {"type": "Freeze", "source": "Platform", "machines": ["web_0"]}
        return self.note({**line, **facts, **changed})

    def unannounced(
        self, t: float, id: str, machines: Sequence[str] = ("web_1",), **changed: Any
    ) -> "Recording":
        line = {"kind": "unannounced", "t": t, "event": id, "group": "web"}
        return self.note({**line, "machines": list(machines), **changed})

    def over(self, t: float, id: str) -> "Recording":
        return self.note({"kind": "over", "t": t, "event": id})

    def impact(
        self, t: float, id: str = A, machines: Sequence[str] = ("web_0",), type: str = "Freeze"
    ) -> "Recording":
        return self.note(
            {"kind": "impact", "t": t, "event": id, "type": type, "machines": list(machines)}
        )
