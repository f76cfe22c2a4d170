"""Services that break what is promised of planned work: hosts, windows, deletes that nobody is
told of, and long-polls. By the rule that has to find them, for the table of all rules.
"""

from collections.abc import Callable
from typing import Any

from helpers.judge_traces import DUE, T0, A, B, C, Event, Recording, document, event, started

Build = Callable[[], Recording]
EMPTY = '{"DocumentIncarnation":1,"Events":[]}'
OLD = document(4, [event()])
TAG = '"0123456789abcdef"'

# One host: a machine of a scale set, and one that stands alone.
WEB = event(A)
JUMP = event(B, resources=["jump"])
ROLE = event(C, resources=["Front_IN_0"])


# What a user has asked for.
USERS = event(type="Reboot", EventSource="User", DurationInSeconds=-1)


def hosted(**changed: Any) -> Recording:
    """The host's work was announced to both of its groups, and both have asked."""
    recording = Recording(**changed).joint(T0 - 1, web=A, jump=B)
    return recording.see(T0, 5, WEB).see(T0 + 0.1, 3, JUMP, machine="jump")


def approved(**changed: Any) -> Recording:
    return hosted(**changed).approve(T0 + 1, A).approve(T0 + 1.5, B, machine="jump")


def begun(recording: Recording, t: float) -> Recording:
    return recording.see(t, 6, started(WEB)).see(t + 0.1, 4, started(JUMP), machine="jump")


def idle(recording: Recording, *times: float, jump: Event = JUMP) -> Recording:
    """Asked by both at these times, and nothing has changed."""
    for t in times:
        recording.see(t, 5, WEB).see(t + 0.1, 3, jump, machine="jump")
    return recording


def windowed(opens: float, closes: float | None = None) -> Recording:
    return Recording().window(opens, closes).see(T0, 5, event())


def halted(**scope: Any) -> Recording:
    return Recording().halts(T0 - 60, scope).see(T0, 5, event())


def limited(*open: tuple[float, float], **scope: Any) -> Recording:
    """Maintenance may start at these times only."""
    return Recording().maintenance(T0 - 60, *open, **scope).see(T0, 5, event())


def wait(answer: str, **changed: Any) -> Build:
    return lambda: Recording().wait(T0 + 30, answer, **changed)


def third_withdrawn() -> Recording:
    recording = Recording().joint(T0 - 1, web=A, jump=B, roles=C)
    recording.see(T0, 7, ROLE, machine="Front_IN_0").see(T0 + 9, 8, machine="Front_IN_0")
    return idle(recording, DUE + 1, DUE + 200)


PLANNED: dict[str, list[Build]] = {
    "joint-start": [
        lambda: approved().see(T0 + 2, 6, started(WEB)).see(T0 + 3, 3, JUMP, machine="jump"),
        # By its NotBefore, in one group and a moment later in the other.
        lambda: hosted().see(DUE + 1, 6, started(WEB)).see(DUE + 2, 3, JUMP, machine="jump"),
        lambda: hosted().see(DUE + 1, 4, started(JUMP), machine="jump").see(DUE + 2, 5, WEB),
        # The one that approved, alone.
        lambda: (
            hosted()
            .approve(T0 + 1, A)
            .see(T0 + 2, 6, started(WEB))
            .see(T0 + 2.5, 3, JUMP, machine="jump", version="2017-08-01")
        ),
        # Carried out for the one and not even started for the other.
        lambda: approved().impact(T0 + 2).see(T0 + 5, 3, JUMP, machine="jump"),
        lambda: approved(complete=True).impact(T0 + 2).see(T0 + 2.1, 3, JUMP, machine="jump"),
        # At one instant, told by one recorder.
        lambda: (
            approved(complete=True)
            .see(T0 + 2, 6, started(WEB), asked=T0 + 2)
            .see(T0 + 2, 3, JUMP, machine="jump", asked=T0 + 2)
        ),
    ],
    "joint-not-before": [
        lambda: (
            Recording()
            .joint(T0 - 1, web=A, jump=B)
            .see(T0, 5, WEB)
            .see(T0, 3, event(B, resources=["jump"], not_before=DUE + 60), machine="jump")
        ),
    ],
    "joint-approval": [
        lambda: begun(hosted().approve(T0 + 1, A), T0 + 2),
        lambda: begun(hosted().approve(T0 + 1, B, machine="jump"), DUE - 1),
        # The other's approval was refused, or came too late.
        lambda: begun(
            hosted()
            .approve(T0 + 1, A)
            .approve(T0 + 1, B, status=400, answer='{"error":"Bad request. No."}')
            .approve(T0 + 9, B, machine="jump"),
            T0 + 2,
        ).see(T0 + 3, 6, started(WEB)),
        # Another group was disabled, this one was not.
        lambda: begun(
            hosted().approve(T0 + 1, A).note({"kind": "disabled", "t": T0 + 9, "group": "roles"}),
            T0 + 60,
        ),
        # Nobody saw it Started, but it was carried out.
        lambda: hosted().approve(T0 + 1, A).impact(T0 + 2).impact(T0 + 2, B, ["jump"]),
    ],
    "early-start": [
        lambda: begun(hosted(), T0 + 2),
        # A group that does not listen has no vote, but somebody has to approve.
        lambda: (
            Recording()
            .joint(T0 - 1, web=A, jump=B)
            .see(T0, 5, WEB)
            .see(T0 + 2, 1, started(JUMP), machine="jump")
        ),
    ],
    "grace-start": [
        lambda: begun(
            hosted(grace=60).approve(T0 + 1, A).up(T0 - 5).up(DUE - 30),
            DUE + 1,
        ),
    ],
    "impact-early": [
        lambda: hosted().impact(T0 + 2).impact(T0 + 2, B, ["jump"]),
    ],
    "late-start": [
        # A halt was released, a window is open again, a machine has left, for long enough.
        lambda: halted().halts(DUE + 60).see(DUE + 65, 5, event()).see(DUE + 300, 5, event()),
        lambda: limited((DUE + 60, DUE + 900)).see(DUE + 65, 5, event()).see(DUE + 300, 5, event()),
        lambda: idle(
            hosted().hosts(T0 - 9, web_1="h").placement(DUE + 60, web_1="g"), DUE + 65, DUE + 300
        ),
        # Another group is halted, or may not be maintained.
        lambda: halted(groups=["jump"]).see(DUE + 1, 5, event()).see(DUE + 200, 5, event()),
        lambda: limited(machines=["web_1"]).see(DUE + 1, 5, event()).see(DUE + 200, 5, event()),
        # What a user has asked for waits for no window.
        lambda: (
            Recording()
            .maintenance(T0 - 60)
            .see(T0, 5, USERS)
            .see(DUE + 1, 5, USERS)
            .see(DUE + 200, 5, USERS)
        ),
        lambda: limited().ignores_windows(DUE).see(DUE + 5, 5, event()).see(DUE + 200, 5, event()),
        lambda: idle(hosted(), DUE + 1, DUE + 200),
        third_withdrawn,
        # In its window, for long enough.
        lambda: windowed(T0 - 9).see(DUE + 1, 5, event()).see(DUE + 200, 5, event()),
        lambda: (
            windowed(DUE + 300, DUE + 900).see(DUE + 301, 5, event()).see(DUE + 500, 5, event())
        ),
        # What was hidden and held it is long over.
        lambda: (
            Recording()
            .unannounced(DUE - 5, C, ["web_0"])
            .over(DUE + 25, C)
            .see(DUE + 1, 5, event())
            .see(DUE + 200, 5, event())
        ),
    ],
    "lost-approval": [
        lambda: idle(approved(), T0 + 2, T0 + 9),
        # One event by itself is no company.
        lambda: (
            Recording()
            .joint(T0 - 1, web=A)
            .see(T0, 5, event())
            .approve(T0 + 1, A)
            .see(T0 + 2, 5, event())
        ),
        lambda: windowed(T0 - 1, DUE).approve(T0 + 1, A).see(T0 + 2, 5, event()),
        lambda: (
            windowed(T0 + 60).approve(T0 + 1, A).see(T0 + 61, 5, event()).see(T0 + 70, 5, event())
        ),
        # A hidden delete in the same domain, in another group, or over holds nothing.
        *(
            lambda line=line: (
                Recording()
                .unannounced(T0 - 60, C, **line)
                .over(T0 - 30, C if line == {} else B)
                .see(T0, 5, event())
                .approve(T0 + 1, A)
                .see(T0 + 2, 5, event())
            )
            for line in ({"machines": ["web_2"]}, {"machines": ["jump"], "group": "jump"}, {})
        ),
    ],
    "window": [
        lambda: windowed(T0 + 60).approve(T0 + 1, A).see(T0 + 2, 6, started(event())),
        lambda: windowed(DUE + 60).see(DUE + 1, 6, started(event())),
        lambda: windowed(T0 + 60).approve(T0 + 1, A).impact(T0 + 2),
        # Still Scheduled when the window had closed, and then it started all the same.
        lambda: (
            windowed(T0 - 1, DUE - 60).see(DUE - 30, 5, event()).see(DUE + 1, 6, started(event()))
        ),
        lambda: windowed(T0 - 1, DUE - 60).see(DUE - 30, 5, event()).impact(DUE + 1),
    ],
    "started-while-halted": [
        lambda: halted().see(T0 + 60, 5, event()).see(DUE + 5, 6, started(event())),
        # Approved meanwhile, or of one of the machines that it covers.
        lambda: halted().approve(T0 + 60, A).see(T0 + 70, 6, started(event())),
        lambda: (
            halted(groups=["web"], machines=["web_0"])
            .see(T0 + 60, 5, event())
            .impact(DUE + 5)
            .halts(DUE + 60)
        ),
        # Its time came long after the halt was placed; another halt was released.
        lambda: (
            Recording()
            .see(T0, 5, event())
            .halts(T0 + 60, {}, {"groups": ["jump"]})
            .halts(T0 + 90, {})
            .see(DUE + 5, 6, started(event()))
        ),
        # An eviction waits as well, and so does what nobody is told of.
        lambda: (
            Recording()
            .halts(T0 - 60, {})
            .see(T0, 5, event(type="Preempt", not_before=T0 + 30))
            .see(T0 + 60, 6, started(event(type="Preempt")))
        ),
        lambda: Recording().halts(T0, {}).unannounced(T0 + 9, C).impact(T0 + 20, C, ["web_1"]),
        # Another group on the host is halted.
        lambda: begun(hosted().halts(T0 + 60, {"groups": ["jump"]}), DUE + 1),
        # Nobody asked, but the service has recorded when it was.
        lambda: halted().moved(T0, "raise").moved(DUE + 5, "start"),
    ],
    "started-outside-window": [
        lambda: limited((DUE + 600, DUE + 900)).see(DUE + 5, 6, started(event())),
        lambda: (
            limited((T0 - 60, T0 + 60))
            .see(T0 + 90, 5, event())
            .approve(T0 + 100, A)
            .see(T0 + 110, 6, started(event()))
        ),
        lambda: limited(groups=["web"]).see(DUE + 5, 5, event()).impact(DUE + 30),
        # It was open, and is not any more.
        lambda: (
            limited((T0, T0 + 9_000))
            .maintenance(T0 + 60, (T0 + 8_000, T0 + 9_000))
            .see(DUE + 5, 6, started(event()))
        ),
        # Of one of its machines, or of another group on its host.
        lambda: limited(machines=["web_0"]).moved(T0, "raise").moved(DUE + 5, "start"),
        lambda: begun(hosted().maintenance(T0 - 60, groups=["jump"]), DUE + 1),
        # An operator has let it ignore them later, or another one.
        lambda: limited().ignores_windows(DUE + 60).see(DUE + 5, 6, started(event())),
        lambda: begun(hosted().maintenance(T0 - 60).ignores_windows(T0, A), DUE + 1),
        lambda: limited().ignores_windows(T0, B).see(DUE + 5, 6, started(event())),
    ],
    "started-uninformed": [
        lambda: begun(idle(hosted().hosts(T0 - 9, web_1="h"), T0 + 60), DUE + 1),
        lambda: begun(idle(hosted().hosts(T0 - 9).placement(T0 + 60, web_1="h"), T0 + 90), DUE + 1),
        lambda: (
            Recording()
            .hosts(T0 - 9, web_0="h", jump="h")
            .note({"kind": "joint", "t": T0, "id": "j", "host": "h", "events": {A: "web"}})
            .see(T0, 5, event())
            .moved(T0, "raise")
            .moved(DUE, "start")
        ),
        # Its turn has come, as the update domain of the machine that was not warned.
        lambda: (
            Recording()
            .hosts(T0 - 9, web_0="h", web_2="h")
            .note(
                {
                    "kind": "joint",
                    "t": T0,
                    "id": "j",
                    "host": "h",
                    "events": {A: "web"},
                    "domain": 0,
                }
            )
            .see(T0, 5, event())
            .see(DUE + 5, 6, started(event()))
        ),
    ],
    "unannounced-shown": [
        lambda: (
            Recording()
            .unannounced(T0, A, ["web_0"])
            .see(T0 + 9, 5, started(event(type="Terminate")))
        ),
        lambda: Recording().unannounced(T0, A, ["web_0"]).see(T0 + 1, 5, event(type="Terminate")),
    ],
    "approval-accepted": [
        lambda: Recording().unannounced(T0, C).approve(T0 + 1, C),
    ],
    "not-a-document": [wait("{}"), wait("", query="?api-version=2019-01-01")],
    "keys": [
        wait(OLD, query="?api-version=2019-08-01"),
        wait(document(4, [event()], "2017-08-01")),
    ],
    "unknown-caller": [wait(EMPTY, machine=None, **{"from": "10.9.9.9"})],
    "content-type": [wait(EMPTY, answer_headers={"Content-Type": "text/plain"})],
    "etag-form": [wait(EMPTY, answer_headers={"ETag": None})],
    "etag-mismatch": [
        lambda: (
            Recording()
            .wait(T0, EMPTY, answer_headers={"ETag": TAG})
            .get(T0 + 1, EMPTY, answer_headers={"ETag": '"another"'})
        ),
    ],
    "missed-304": [
        wait(EMPTY, query=f"?timeout=20&etag={TAG.strip(chr(34))}", answer_headers={"ETag": TAG}),
        wait(EMPTY, query=f"?etag=%22x%22,W/{TAG}", answer_headers={"ETag": TAG}),
    ],
    "wrong-304": [
        wait("", status=304, answer_headers={"ETag": TAG}),
        wait("", status=304, query="?etag=0", answer_headers={"ETag": TAG}),
        wait("", status=304, query="?etag=abcdefabcdef", answer_headers={"ETag": TAG}),
        wait("{}", status=304, query=f"?etag={TAG}", answer_headers={"ETag": TAG}),
    ],
    "incarnation-down": [
        lambda: Recording().see(T0, 5).wait(T0 + 30, document(4, [event()])),
    ],
    "server-header": [wait(EMPTY, answer_headers={"Server": "uvicorn"})],
}
