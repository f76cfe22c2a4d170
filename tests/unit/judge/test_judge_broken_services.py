"""Every rule catches a service that breaks it, and accuses it of nothing else."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forewarn.judge import RULES, judge
from helpers.broken_planned_work import PLANNED
from helpers.broken_unreachable_hosts import DISCONNECTED
from helpers.judge_returns import CARRIED_OUT, carried_out
from helpers.judge_traces import (
    DUE,
    T0,
    A,
    B,
    C,
    Event,
    Recording,
    document,
    event,
    started,
)

Build = Callable[[], Recording]
EMPTY = '{"DocumentIncarnation":1,"Events":[]}'
BAD = '{"error":"Bad request. No."}'
VERSION_REFUSED = (
    '{"error":"Bad request. api-version is invalid or was not specified in the request. '
    'For more information refer to aka.ms/azureimds",'
    '"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
)
UNMARKED = '{ "error": "Bad request: . Required metadata header not specified" }'
ONE = event(type="Terminate")
OTHER = event(B, type="Terminate", resources=["web_1"])
OTHER_TAG = '"0123456789abcdef"'


def asked(**changed: Any) -> Build:
    """One exchange, with something about it changed."""
    return lambda: Recording().get(T0, EMPTY, **changed)


def refused(answer: str, status: int = 400, /, **changed: Any) -> Build:
    return lambda: Recording().refuse(T0, answer, status, **changed)


def header(name: str, value: str | None) -> Build:
    return asked(answer_headers={name: value})


def answer(text: str, version: str = "2020-07-01") -> Build:
    return lambda: Recording().get(T0, text, version=version)


def shown(version: str = "2020-07-01", **changed: Any) -> Build:
    """A document with one event in which something is changed."""
    return lambda: Recording().get(T0, document(5, [event(**changed)], version), version=version)


def reordered() -> Recording:
    turned = dict(reversed(event().items()))
    return Recording().get(T0, document(5, [turned]))


def without(key: str) -> Build:
    less = {name: value for name, value in event().items() if name != key}
    return lambda: Recording().get(T0, document(5, [less]))


def with_tag(*matching: str, status: int, tag: str | None, answer: str = EMPTY) -> Build:
    headers = [("Metadata", "true"), *(("If-None-Match", value) for value in matching)]
    return lambda: Recording().exchange(
        T0, status=status, answer=answer, answer_headers={"ETag": tag}, headers=headers
    )


def tags(one: tuple[str, str], other: tuple[str, str]) -> Build:
    return lambda: (
        Recording()
        .get(T0, one[0], answer_headers={"ETag": one[1]})
        .get(T0 + 1, other[0], answer_headers={"ETag": other[1]})
    )


def seen_as(*events: Event, incarnation: int = 5, **changed: Any) -> Build:
    """An event, and later another that shares its id."""
    return lambda: (
        Recording()
        .see(T0, 5, event(A, resources=["web_0", "web_2"]))
        .see(T0 + 1, incarnation, *events, **changed)
    )


def impact(t: float, **changed: Any) -> Build:
    """An event that was approved, started and finished by the book, but for the impact."""
    return lambda: (
        Recording()
        .see(T0, 2, event())
        .approve(T0 + 10, A)
        .see(T0 + 11, 3, started(event()))
        .see(T0 + 300, 4)
        .impact(t, **changed)
    )


def machine_overlap() -> Recording:
    other = event(B, type="Reboot", EventSource="User", DurationInSeconds=-1)
    return (
        Recording()
        .see(T0, 5, started(event()), other)
        .approve(T0 + 1, B)
        .see(T0 + 2, 6, started(event()), started(other))
    )


def domain_overlap() -> Recording:
    other = event(B, resources=["web_1"])
    return (
        Recording()
        .see(T0, 5, started(event()), other)
        .approve(T0 + 1, B)
        .see(T0 + 2, 6, started(event()), started(other))
    )


def in_two_fault_domains() -> Recording:
    """web_0 and web_1 are in one update domain."""
    machines = {
        name: {"group": "web", "update_domain": 0, "fault_domain": n, "addresses": [f"10.0.0.1{n}"]}
        for n, name in enumerate(("web_0", "web_1"))
    }
    return Recording(fleet=False).fleet(T0 - 10, machines=machines)


def fault_domain_overlap() -> Recording:
    other = event(B, resources=["web_1"])
    recording = in_two_fault_domains().see(T0, 5, started(event()), other).approve(T0 + 1, B)
    return recording.see(T0 + 2, 6, started(event()), started(other))


def lost_to_the_approver() -> Recording:
    return Recording().see(T0, 5, event()).approve(T0 + 1, A).see(T0 + 2, 5, event())


def lost_to_everyone() -> Recording:
    return (
        Recording()
        .approve(T0 + 1, A)
        .see(T0 + 2, 5, event(), machine="web_1")
        .see(T0 + 9, 5, event(), machine="web_2")
    )


def lost_in_a_kill() -> Recording:
    return (
        Recording()
        .see(T0, 5, event())
        .approve(T0 + 1, A)
        .note({"kind": "up", "t": T0 + 4})
        .see(T0 + 5, 5, event())
    )


def lost_terminate() -> Recording:
    one, other = event(type="Terminate"), event(B, type="Terminate", resources=["web_1"])
    return (
        Recording()
        .see(T0, 5, one, other)
        .approve(T0 + 1, B, machine="web_1")
        .approve(T0 + 2, A)
        .see(T0 + 3, 5, one, other)
    )


def lost_users_reboot() -> Recording:
    mine = event(B, type="Reboot", resources=["web_1"], EventSource="User", DurationInSeconds=-1)
    return (
        Recording()
        .see(T0, 5, started(event()), mine)
        .approve(T0 + 1, B)
        .see(T0 + 2, 5, started(event()), mine)
    )


def stale_304() -> Recording:
    recording = Recording().see(T0, 5)
    tag = dict(recording.records[-1]["answer_headers"])["ETag"]
    return recording.see(T0 + 1, 6, event()).exchange(
        T0 + 2,
        status=304,
        tag=tag,
        headers=[("Metadata", "true"), ("If-None-Match", tag)],
    )


def paused(**changed: Any) -> Recording:
    """A service with a pause of a minute after interruptions; it began long ago."""
    return Recording(grace=60, **changed).up(T0 - 5).see(T0, 5, event())


def coupled(**changed: Any) -> Recording:
    """Two deletes due together, of which only the first is approved."""
    return Recording(**changed).see(T0, 5, ONE, OTHER).approve(T0 + 1, A)


NEXT_GET: list[Build] = [
    lost_to_the_approver,
    lost_to_everyone,
    lost_in_a_kill,
    lost_terminate,
    lost_users_reboot,
]

BROKEN: dict[str, list[Build]] = {
    "wrong-status": [
        asked(headers=[]),
        asked(headers=[("Metadata", "false")]),
        asked(headers=[("Metadata", "true"), ("X-Forwarded-For", "10.0.0.1")]),
        asked(target="/metadata/scheduledevents"),
        asked(target="/metadata/scheduledevents?api-version=latest"),
        asked(target="/metadata/scheduledevents?api-version=2020-07-01&api-version=2020-07-01"),
        asked(method="HEAD"),
        refused(BAD),
        refused('{ "error": "Not found" }', 404),
        refused("", 410),
        refused("", 301),
        lambda: Recording().exchange(T0, method="POST", body="{}", answer=""),
        lambda: Recording().exchange(T0, method="POST", body="", answer=""),
        lambda: Recording().approve(T0, A, status=413, answer=BAD),
        refused(BAD, machine=None, **{"from": "10.9.9.9"}),
        lambda: Recording().approve(
            T0,
            A,
            headers=[("Origin", "http://evil")],
            target="/metadata/scheduledevents?api-version=2017-03-01",
        ),
    ],
    "error-body": [
        refused(
            '{"error":"Bad request"}', headers=[("X-Forwarded-For", "1"), ("Metadata", "true")]
        ),
        refused(BAD, headers=[]),
        refused(UNMARKED.replace(": .", "."), headers=[]),
        refused(UNMARKED, target="/metadata/scheduledevents"),
        refused(
            VERSION_REFUSED.replace('"2020-07-01",', ""),
            target="/metadata/scheduledevents?api-version=1",
        ),
        refused('{"error":"Bad request. x"', method="POST", body="{"),
        refused('{"error":"Not found"}', 404, machine=None, **{"from": "10.9.9.9"}),
        refused("slow down", 429),
    ],
    "server-error": [
        lambda: Recording().see(T0 - 1, 1).refuse(T0, "", 500),
        refused("", 502),
        refused("", 503),
        refused("", 503, method="POST"),
    ],
    "unknown-caller": [
        asked(machine=None, **{"from": "10.9.9.9"}),
    ],
    "content-type": [
        header("Content-Type", "application/json"),
        header("Content-Type", None),
        refused(UNMARKED, headers=[], answer_headers={"Content-Type": "text/plain"}),
    ],
    "content-length": [header("Content-Length", "5"), header("Content-Length", None)],
    "date-header": [
        header("Date", None),
        header("Date", "2023-11-14T22:13:20Z"),
        header("Date", "Mon, 14 Nov 2023 22:13:20 GMT"),
        lambda: Recording().exchange(
            T0, target="/metadata/versions", answer="{}", answer_headers={"Date": None}
        ),
    ],
    "server-header": [header("Server", None), header("Server", "uvicorn")],
    "request-id": [
        header("x-ms-request-id", None),
        lambda: (
            Recording()
            .get(T0, EMPTY, answer_headers={"x-ms-request-id": "1"})
            .get(T0 + 1, EMPTY, answer_headers={"x-ms-request-id": "1"})
        ),
        lambda: (
            Recording(complete=True)
            .get(T0, EMPTY, asked=T0, answer_headers={"x-ms-request-id": "1"})
            .get(T0, EMPTY, asked=T0, answer_headers={"x-ms-request-id": "1"})
        ),
    ],
    "allow-header": [
        refused("", 405, method="PUT"),
        refused("", 405, method="PUT", answer_headers={"Allow": "GET"}),
    ],
    "approval-body": [
        lambda: Recording().see(T0, 2, event()).approve(T0 + 1, A, answer="{}"),
    ],
    "post-precondition": [
        lambda: Recording().approve(T0, A, status=304),
        lambda: Recording().approve(T0, A, status=412),
    ],
    "etag-form": [
        header("ETag", None),
        header("ETag", "abcdef"),
        header("ETag", '""'),
        header("ETag", 'W/"abcdef"'),
    ],
    "etag-mismatch": [
        tags((EMPTY, '"one"'), (EMPTY, '"two"')),
        tags((document(5, [event()]), '"one"'), (document(6), '"one"')),
    ],
    "wrong-304": [
        with_tag(status=304, tag=OTHER_TAG, answer=""),
        with_tag("0", status=304, tag=None, answer=""),
        with_tag('"abcdefabcdef"', status=304, tag=OTHER_TAG, answer=""),
        with_tag(OTHER_TAG, status=304, tag=OTHER_TAG, answer="{}"),
    ],
    "missed-304": [
        with_tag(OTHER_TAG, status=200, tag=OTHER_TAG),
        with_tag('"x", W/' + OTHER_TAG, status=200, tag=OTHER_TAG),
        with_tag(OTHER_TAG.strip('"'), status=200, tag=OTHER_TAG),
    ],
    "not-a-document": [
        answer(""),
        answer("<html>"),
        answer('{"DocumentIncarnation":1}'),
        answer('{"DocumentIncarnation":1,"Events":[],"Next":1}'),
        answer('{"DocumentIncarnation":1,"Events":{}}'),
        answer('{"DocumentIncarnation":NaN,"Events":[]}'),
        answer('{"DocumentIncarnation":1,"Events":[{"EventId":"\u0001"}]}'),
        answer("[]"),
    ],
    "not-compact": [answer(EMPTY + "\n"), answer('{"DocumentIncarnation": 1,"Events":[]}')],
    "keys": [
        without("DurationInSeconds"),
        shown(State="x"),
        answer(document(5, [event()]), "2019-08-01"),
        answer(json.dumps({"DocumentIncarnation": 1, "Events": [None]}, separators=(",", ":"))),
        answer(document(5, [event()]).replace('"EventId"', '"EventStatus":"x","EventId"')),
    ],
    "key-order": [reordered, answer('{"Events":[],"DocumentIncarnation":1}')],
    "incarnation-form": [
        answer('{"DocumentIncarnation":"1","Events":[]}'),
        answer('{"DocumentIncarnation":1.0,"Events":[]}'),
        answer('{"DocumentIncarnation":true,"Events":[]}'),
        answer('{"DocumentIncarnation":0,"Events":[]}'),
        answer('{"DocumentIncarnation":null,"Events":[]}'),
    ],
    "event-id-form": [shown(id=A.lower()), shown(id="{" + A + "}"), shown(EventId=5)],
    "duplicate-event": [answer(document(5, [event(), event()]))],
    "event-status": [shown(EventStatus="Completed")],
    "event-type": [shown(type="Reimage"), shown(EventType=None)],
    "hidden-type": [
        answer(document(5, [event(EventType="Freeze")], v).replace("Freeze", t), v)
        for v, t in (("2017-08-01", "Preempt"), ("2017-11-01", "Terminate"))
    ],
    "resource-type": [shown(ResourceType="Machine")],
    "resources-form": [shown(Resources="web_0"), shown(Resources=[1]), shown(Resources=None)],
    "resource-name": [
        lambda: Recording().get(
            T0,
            document(5, [event(resources=["web_0"])], "2017-03-01", cloud=True),
            version="2017-03-01",
        ),
        shown(resources=["_web_0"]),
        lambda: Recording().see(
            T0, 5, event(resources=["_Front_IN_0"]), machine="Front_IN_0", version="2017-03-01"
        ),
    ],
    "not-before-form": [
        shown(NotBefore="2023-11-14T22:28:20Z"),
        shown(NotBefore="Wed, 14 Nov 2023 22:28:20 GMT"),
        shown(NotBefore="Tue, 14 Nov 2023 22:28:20.5 GMT"),
        shown(NotBefore="Tue, 31 Feb 2023 22:28:20 GMT"),
        shown(NotBefore="Tue, 14 Nov 2023 24:00:00 GMT"),
        shown(NotBefore=None),
        shown(version="2017-03-01", NotBefore="Tue, 14 Nov 2023 22:28:20 GMT"),
    ],
    "not-before-status": [
        shown(status="Started", NotBefore="Tue, 14 Nov 2023 22:28:20 GMT"),
        shown(NotBefore=""),
    ],
    "description-form": [shown(Description=None)],
    "event-source": [shown(EventSource="Fabric"), shown(EventSource="User", DurationInSeconds=-1)],
    "duration-form": [
        shown(DurationInSeconds=-2),
        shown(DurationInSeconds=9.5),
        shown(DurationInSeconds="9"),
        shown(type="Reboot", EventSource="User"),
    ],
    "changed-facts": [
        seen_as(event(resources=["web_0", "web_2"], type="Reboot"), incarnation=6),
        seen_as(event(resources=["web_2", "web_0"])),
        seen_as(event(resources=["web_0", "web_2"], not_before=DUE + 1)),
        seen_as(event(resources=["web_0", "web_2"], Description="other")),
        seen_as(event(resources=["web_0", "web_2"], DurationInSeconds=0)),
        seen_as(
            event(
                resources=["web_0", "web_2"],
                type="Freeze",
                not_before=DUE + 60,
            ),
            version="2017-03-01",
        ),
        seen_as(event(resources=["web_2", "web_0"]), version="2017-03-01"),
        lambda: (
            Recording()
            .see(T0, 5, event(type="Reboot"))
            .see(T0 + 1, 5, event(type="Reboot", EventSource="User"), version="2019-08-01")
        ),
        lambda: (
            Recording(fleet=False)
            .see(T0, 5, event(), version="2017-03-01")
            .see(T0 + 1, 5, event(resources=["web_1"]))
        ),
    ],
    "backwards": [
        lambda: (
            Recording()
            .see(T0, 5, started(event()))
            .see(T0 + 1, 6, event(), machine="web_1", version="2017-08-01")
        ),
    ],
    "outlived": [
        lambda: (
            Recording()
            .see(T0, 5, event(), event(B, type="Preempt"))
            .see(T0 + 1000, 6, event(), started(event(B, type="Preempt")))
            .see(T0 + 1001, 7, event())
        ),
    ],
    "came-back": [
        lambda: Recording().see(T0, 5, event()).see(T0 + 1, 6).see(T0 + 2, 7, event()),
        lambda: (
            Recording()
            .see(T0, 5, event())
            .see(T0 + 1, 6, machine="web_1")
            .note({"kind": "disabled", "t": T0 + 100, "group": "web"})
            .see(T0 + 200, 1, event(), machine="web_2")
        ),
        lambda: (
            Recording()
            .see(T0, 5, started(event()))
            .see(T0 + 1, 6, version="2017-03-01")
            .see(T0 + 2, 7, started(event()))
        ),
    ],
    "events-order": [
        lambda: (
            Recording()
            .see(T0, 5, event(), event(B, resources=["web_1"]))
            .see(T0 + 1, 6, event(B, resources=["web_1"]), started(event()))
            .approve(T0 - 1, A)
        ),
        lambda: (
            Recording().see(T0, 5, event()).see(T0 + 1, 6, event(B, resources=["web_1"]), event())
        ),
    ],
    "incarnation-same": [
        lambda: (
            Recording().see(T0, 5, event()).see(T0 + 1, 5, event(), event(B, resources=["web_1"]))
        ),
        lambda: Recording().see(T0, 5, event()).approve(T0 + 1, A).see(T0 + 2, 5, started(event())),
        lambda: (
            Recording()
            .see(T0, 5, event(), event(B, type="Preempt"), version="2017-08-01")
            .see(T0 + 1, 5, event(B, type="Preempt"), event(C, resources=["web_1"]))
        ),
        lambda: Recording().see(T0, 5, event()).see(T0 + 1, 5),
    ],
    "incarnation-down": [
        lambda: Recording().see(T0, 5).see(T0 + 1, 4, event(), machine="web_1"),
        lambda: (
            Recording()
            .see(T0, 5)
            .note({"kind": "up", "t": T0 + 1})
            .see(T0 + 2, 1, event(), version="2017-03-01")
        ),
        lambda: (
            Recording()
            .see(T0, 5)
            .note({"kind": "disabled", "t": T0 + 1, "group": "jump"})
            .see(T0 + 100, 1)
        ),
        stale_304,
    ],
    "incarnation-idle": [
        lambda: Recording(complete=True).see(T0, 5, event()).see(T0 + 1, 6, event()),
        lambda: (
            Recording(complete=True)
            .see(T0, 5, event(), asked=T0)
            .see(T0, 6, event(), asked=T0, machine="web_1")
        ),
    ],
    "incarnation-start": [
        lambda: (
            Recording(complete=True)
            .see(T0, 5, event())
            .note({"kind": "disabled", "t": T0 + 1, "group": "web"})
            .see(T0 + 2, 6)
        ),
        lambda: Recording(complete=True, begun=False).see(T0, 2),
        lambda: (
            Recording(complete=True)
            .see(T0, 5, event())
            .note({"kind": "disabled", "t": T0 + 1, "group": "web", "removed": True})
            .see(T0 + 2, 1)
        ),
    ],
    # What may and may not pass for a change of the id, or for short notice, is in recordings/.
    "changed-id": [
        lambda: Recording().see(T0, 5, event()).see(T0 + 1, 6, started(event(B))),
    ],
    "vanished": [
        lambda: Recording(complete=True).see(T0, 2, event()).approve(T0 + 1, A).see(T0 + 2, 3),
    ],
    "short-notice": [
        lambda: Recording().see(T0, 5).see(T0 + 1, 6, event(not_before=DUE - 1)),
    ],
    "unscheduled-start": [
        lambda: Recording().see(T0, 5).see(T0 + 1, 6, started(event())),
    ],
    "early-start": [
        lambda: (  # by a clock that has jumped ahead
            Recording()
            .note({"kind": "up", "t": T0 - 5, "clock": "wall"})
            .see(T0, 5, event(), host="h1", real=100.0)
            .see(DUE + 1, 6, started(event()), host="h1", real=763.0)
        ),
        lambda: Recording().see(T0, 5, event()).see(T0 + 1, 6, started(event())),
        lambda: (
            Recording()
            .see(T0, 5, event(), version="2017-03-01")
            .see(DUE - 0.5, 6, started(event()))
        ),
        lambda: (
            Recording()
            .see(T0, 5, event())
            .approve(T0 + 1, A, status=400, answer=BAD, asked=T0 - 1)
            .see(T0 + 2, 6, started(event()))
            .approve(T0 + 3, A)
        ),
        lambda: (
            Recording()
            .see(T0, 5, event())
            .approve(T0 + 1, B, status=None)
            .note({"kind": "approval", "t": T0 + 60, "event": A, "by": "operator"})
            .see(T0 + 2, 6, started(event()))
        ),
    ],
    "grace-start": [
        # Due after the interruption, or before it and still Scheduled after it.
        lambda: paused().up(DUE - 30).see(DUE + 1, 6, started(event())),
        lambda: paused().up(DUE + 9).see(DUE + 12, 5, event()).see(DUE + 60, 6, started(event())),
        lambda: paused().step(DUE - 30, 3).see(DUE + 1, 6, started(event())),
        lambda: (
            paused()
            .step(DUE + 900, 1800)
            .see(DUE + 903, 5, event())
            .see(DUE + 904, 6, started(event()))
        ),
        lambda: (
            paused().step(DUE + 20, -5).see(DUE + 30, 5, event()).see(DUE + 60, 6, started(event()))
        ),
        # Due while nobody served, and everybody had been told so.
        lambda: paused().down(DUE - 10).up(DUE + 500).see(DUE + 503, 6, started(event())),
        # The length of the pause is the shortest that was ever named.
        lambda: paused().fleet(T0 + 1, grace=20).up(DUE - 5).see(DUE + 1, 6, started(event())),
        # Carried out, and gone before anybody saw it Started.
        lambda: paused().up(DUE - 30).impact(DUE + 1).see(DUE + 3, 7),
        lambda: paused().up(DUE + 9).see(DUE + 12, 5, event()).impact(DUE + 20).see(DUE + 30, 7),
        # A refused approval, one of another event and one that came later are none.
        lambda: (
            paused()
            .approve(T0 + 1, A, B, status=400, answer=BAD)
            .approve(T0 + 2, B, status=None)
            .up(DUE - 30)
            .see(DUE + 1, 6, started(event()))
            .approve(DUE + 2, A)
        ),
        # A delete and an eviction pause like everything else.
        lambda: (
            Recording(grace=60)
            .see(T0, 5, event(type="Preempt"))
            .step(DUE - 30, 3)
            .see(DUE + 1, 6, started(event(type="Preempt")))
        ),
        # Another event is witness that this is the service that was away.
        lambda: (
            paused()
            .up(T0 + 100)
            .see(T0 + 103, 6, event(), event(B, type="Preempt", not_before=T0 + 133))
            .see(T0 + 134, 7, event(), started(event(B, type="Preempt")))
        ),
        # Without slack where one recorder wrote everything down.
        lambda: (
            paused(complete=True)
            .up(DUE - 30)
            .see(DUE - 29.9, 5, event())
            .see(DUE + 29.9, 6, started(event()))
        ),
    ],
    "coupling": [
        lambda: coupled().see(T0 + 2, 6, started(ONE), OTHER),
        lambda: coupled().see(DUE - 1, 6, started(ONE), OTHER, version="2019-01-01"),
        lambda: coupled(complete=True).see(T0 + 2, 6, started(ONE), OTHER, asked=T0 + 2),
        # The other is due earlier; the one was approved beside the wire.
        lambda: (
            Recording()
            .see(T0, 5, ONE, event(B, type="Terminate", not_before=DUE - 60))
            .note({"kind": "approval", "t": T0 + 1, "event": A, "by": "operator"})
            .see(T0 + 9, 6, started(ONE), event(B, type="Terminate", not_before=DUE - 60))
        ),
        # Carried out and gone, while the other is still there.
        lambda: coupled().impact(T0 + 5, type="Terminate").see(T0 + 60, 7, OTHER),
        # Two of three are approved, by one request; the third comes too late or is refused.
        lambda: (
            Recording()
            .see(T0, 5, ONE, OTHER, event(C, type="Terminate", resources=["web_2"]))
            .approve(T0 + 1, A, B)
            .approve(T0 + 2, C, status=400, answer=BAD, machine="jump")
            .see(
                T0 + 3,
                6,
                started(ONE),
                started(OTHER),
                event(C, type="Terminate", resources=["web_2"]),
            )
            .approve(T0 + 4, C)
        ),
    ],
    "late-start": [
        lambda: Recording().see(DUE + 1, 5, event()).see(DUE + 200, 5, event()),
    ],
    "lost-approval": NEXT_GET,
    "approval-refused": [
        lambda: Recording().see(T0, 5, event()).approve(T0 + 1, A, status=400, answer=BAD),
        lambda: (
            Recording()
            .see(T0, 5, event())
            .see(T0 + 1, 6)
            .approve(T0 + 2, A.lower(), status=400, answer=BAD, machine="web_1")
        ),
    ],
    "approval-accepted": [
        lambda: Recording().approve(T0, "nobody"),
        lambda: Recording().see(T0, 5, event()).approve(T0 + 1, A, machine="jump"),
        lambda: Recording(complete=True).see(T0, 1).approve(T0 + 1, A),
    ],
    "leak-event": [
        lambda: (
            Recording()
            .see(T0, 5, event(resources=["gone"]))
            .see(T0 + 1, 3, event(resources=["gone"]), machine="jump")
        ),
    ],
    "leak-resource": [
        lambda: Recording().see(T0, 5, event(resources=["jump"])),
        lambda: Recording().see(T0, 5, event(resources=["jump"]), version="2017-03-01"),
    ],
    "domain-split": [
        lambda: Recording().see(T0, 5, event(resources=["web_0", "web_1"])),
        lambda: in_two_fault_domains().see(T0, 5, event(resources=["web_0", "web_1"])),
    ],
    "domain-overlap": [domain_overlap, fault_domain_overlap],
    "machine-overlap": [machine_overlap],
    "impact-early": [
        lambda: Recording().see(T0, 2, event()).impact(T0 + 5).see(DUE, 3, started(event())),
        lambda: Recording().see(T0, 2, event()).impact(DUE - 1),
    ],
    "impact-while-scheduled": [
        lambda: (
            Recording()
            .see(T0, 2, started(event(B, resources=["web_1"])), event())
            .approve(T0 + 1, A)
            .impact(T0 + 2)
            .see(T0 + 3, 2, started(event(B, resources=["web_1"])), event())
        ),
    ],
    "impact-after-gone": [
        impact(T0 + 301),
        lambda: Recording().see(T0, 2, event()).see(T0 + 1, 3).impact(DUE + 5),
    ],
    "impact-twice": [
        lambda: impact(T0 + 20)().impact(T0 + 30),
        lambda: Recording().impact(T0).impact(T0),
    ],
    "impact-stray": [impact(T0 + 20, machines=["web_0", "web_2"])],
    "impact-type": [impact(T0 + 20, type="Redeploy")],
    "over-before-back": [
        lambda: carried_out().over_at(CARRIED_OUT + 5),
        lambda: carried_out().over_at(CARRIED_OUT + 590),  # within the time, by a few seconds
        lambda: carried_out(type="Freeze").over_at(CARRIED_OUT + 50),
        lambda: carried_out(impacts=False).over_at(CARRIED_OUT + 5),
        lambda: carried_out().see_other(CARRIED_OUT + 1).over_at(CARRIED_OUT + 5),
        lambda: carried_out(every=250).over_at(CARRIED_OUT + 5),
        lambda: carried_out(every=None).over_at(CARRIED_OUT + 5),
    ],
}
for name, more in (*PLANNED.items(), *DISCONNECTED.items()):
    BROKEN[name] = [*BROKEN.get(name, ()), *more]


def variants() -> Iterator[Any]:
    for rule, builds in BROKEN.items():
        for number, build in enumerate(builds):
            yield pytest.param(rule, build, id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "build"), list(variants()))
def test_a_broken_promise_is_found_by_its_name_and_no_other(rule: str, build: Build) -> None:
    judgement = judge(build().records)
    assert {finding.rule for finding in judgement.findings} == {rule}, judgement.render()
    assert all(finding.message.endswith(".") for finding in judgement.findings)


def test_every_rule_has_a_service_that_breaks_it() -> None:
    assert set(BROKEN) == set(RULES)
    assert all(BROKEN.values())
