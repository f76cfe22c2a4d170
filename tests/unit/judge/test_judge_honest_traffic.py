"""Traffic in which every promise was kept: the judge has nothing to say."""

from typing import Any

import pytest

from forewarn.judge import judge
from helpers.judge_traces import ALL_VERSIONS, DUE, T0, A, B, C, Recording, event, started

ROOMY = 'W/"0000", "1111"'
EMPTY = '{"DocumentIncarnation":1,"Events":[]}'
BAD = '{"error":"Bad request. No."}'


def honest(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


def test_an_event_is_scheduled_approved_started_and_gone() -> None:
    honest(
        Recording()
        .see(T0, 1)
        .see(T0 + 1, 2, event())
        .approve(T0 + 5, A.lower())
        .see(T0 + 6, 3, started(event()))
        .impact(T0 + 7)
        .see(T0 + 300, 4)
        .approve(T0 + 301, A)
        .note({"kind": "end", "t": T0 + 302})
    )


def test_an_event_starts_when_its_time_has_come() -> None:
    honest(
        Recording()
        .see(T0 + 1, 2, event())
        .see(DUE - 1, 2, event())
        .see(DUE + 0.5, 3, started(event()))
        .impact(DUE + 1)
        .see(DUE + 300, 4)
    )


def test_an_event_is_withdrawn() -> None:
    honest(Recording().see(T0, 2, event()).see(T0 + 60, 3).approve(T0 + 61, A))


def test_a_failure_appears_as_started() -> None:
    honest(
        Recording()
        .see(T0, 1)
        .see(T0 + 1, 2, started(event(type="Redeploy")))
        .impact(T0 + 1, type="Redeploy")
    )


def test_an_approval_waits_for_the_domain_slot() -> None:
    other = event(B, resources=["web_1"])
    honest(
        Recording()
        .see(T0, 5, started(event()), other)
        .approve(T0 + 1, B, machine="web_1")
        .see(T0 + 2, 5, started(event()), other, machine="web_1")
        .see(T0 + 60, 5, started(event()), other, machine="web_1")
        .approve(T0 + 61, B)
        .see(T0 + 90, 6, other)
        .see(T0 + 90.5, 7, started(other))
    )


def test_a_terminate_waits_for_the_others() -> None:
    one = event(type="Terminate")
    other = event(B, type="Terminate", resources=["web_1"])
    honest(
        Recording()
        .see(T0, 5, one, other)
        .approve(T0 + 1, A)
        .see(T0 + 2, 5, one, other)
        .see(T0 + 60, 5, one, other)
        .approve(T0 + 61, B, machine="web_1")
        .see(T0 + 62, 6, started(one), started(other), machine="web_1")
    )


def test_a_users_event_does_not_wait_for_the_slot() -> None:
    mine = event(B, type="Reboot", resources=["web_1"], EventSource="User", DurationInSeconds=-1)
    honest(
        Recording()
        .see(T0, 5, started(event()), mine)
        .approve(T0 + 1, B)
        .see(T0 + 2, 6, started(event()), started(mine))
    )


def test_events_of_one_domain_are_started_side_by_side() -> None:
    other = event(B, resources=["web_2"])
    honest(
        Recording()
        .see(T0, 5, started(event()), other)
        .approve(T0 + 1, B)
        .see(T0 + 2, 6, started(event()), started(other))
    )


def test_a_kill_loses_nothing_and_what_got_no_answer_may_have_counted() -> None:
    honest(
        Recording()
        .note({"kind": "up", "t": T0 - 5})
        .see(T0, 2, event())
        .approve(T0 + 1, A, status=None)
        .exchange(T0 + 1.1, status=None)
        .note({"kind": "up", "t": T0 + 3})
        .see(T0 + 4, 3, started(event()))
    )


def test_an_operator_approves_beside_the_wire() -> None:
    honest(
        Recording()
        .see(T0, 2, event())
        .see(T0 + 4.9, 3, started(event()))
        .note({"kind": "approval", "t": T0 + 5, "event": A, "by": "operator"})
    )


def test_a_disabled_group_starts_over_and_keeps_what_is_pending() -> None:
    honest(
        Recording()
        .see(T0, 17, event())
        .note({"kind": "disabled", "t": T0 + 100, "group": "web"})
        .see(T0 + 200, 1, event())
        .see(T0 + 201, 2, event(), event(B, resources=["web_1"], not_before=T0 + 1101))
    )


def test_a_group_that_is_removed_and_created_again_continues_its_numbers() -> None:
    honest(
        Recording(complete=True)
        .see(T0, 1)
        .see(T0 + 1, 2, event())
        .note({"kind": "disabled", "t": T0 + 100, "group": "web", "removed": True})
        .see(T0 + 200, 3)
    )


def test_a_day_of_silence_restarts_the_incarnation() -> None:
    honest(Recording().see(T0, 17).see(T0 + 90_000, 1).see(T0 + 90_001, 1))


def test_silence_is_broken_by_304() -> None:
    recording = Recording().see(T0, 17)
    tag = dict(recording.records[-1]["answer_headers"])["ETag"]
    for hours in range(1, 30):
        recording.exchange(
            T0 + hours * 3600,
            status=304,
            tag=tag,
            headers=[("Metadata", "true"), ("If-None-Match", f'W/{tag}, "x"')],
            answer_headers={"Content-Type": None, "Content-Length": None},
        )
    honest(recording)


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("machine", ["web_0", "Front_IN_0"])
def test_every_version_shows_what_it_knows(version: str, machine: str) -> None:
    events = (
        event(A, resources=[machine]),
        event(B, type="Preempt", resources=[machine]),
        event(C, type="Terminate", resources=[machine]),
    )
    seen: dict[str, Any] = {"version": version, "machine": machine}
    honest(
        Recording()
        .see(T0, 1, **seen)
        .see(T0 + 1, 5, *events, **seen)
        .see(T0 + 2, 5, *events, machine=machine)
        .approve(
            T0 + 3, A, machine=machine, target=f"/metadata/scheduledEvents?api-version={version}"
        )
        .see(T0 + 4, 6, started(events[0]), *events[1:], **seen)
    )


def test_versions_may_disagree_about_underscores_where_the_kind_is_unknown() -> None:
    honest(
        Recording(fleet=False)
        .see(T0, 5, event(), version="2017-03-01")
        .see(T0 + 1, 5, event())
        .impact(DUE + 1)
    )


@pytest.mark.parametrize(
    ("asked", "answer", "status"),
    [
        ({"method": "HEAD"}, "", 405),
        ({"method": "PUT"}, BAD, 405),
        ({"headers": [("Metadata", "true"), ("X-Forwarded-For", "10.0.0.1")]}, BAD, 400),
        ({"target": "/metadata/scheduledevents?api-version=2020-07-01&x=1&x=2"}, BAD, 400),
        ({"method": "POST", "body": "{"}, BAD, 400),
        ({"method": "POST", "body": '{"StartRequests":[]}'}, BAD, 400),
        ({"method": "POST", "body": '{"StartRequests":[{"EventId":5}]}'}, BAD, 400),
        ({"method": "POST", "body": "x" * 100_000}, BAD, 413),
        ({"method": "POST", "body": '{"StartRequests":[{"EventId":"nobody"}]}'}, BAD, 400),
        ({}, "Throttle Result: Too Many Requests", 429),
    ],
)
def test_a_deserved_refusal_is_not_reported(
    asked: dict[str, Any], answer: str, status: int
) -> None:
    plain = {"Allow": "GET, POST"} if status == 405 else {}
    honest(Recording().refuse(T0, answer, status, answer_headers=plain, **asked))


def test_the_preview_takes_an_approval_without_the_header() -> None:
    honest(
        Recording()
        .see(T0, 2, event())
        .approve(T0 + 1, A, headers=[], target="/metadata/scheduledevents?api-version=2017-03-01")
        .see(T0 + 2, 3, started(event()))
    )


def test_an_approval_that_could_not_be_made_durable_has_no_effect() -> None:
    honest(
        Recording()
        .see(T0, 2, event())
        .approve(T0 + 1, A, status=500, answer='{"error":"later"}')
        .see(T0 + 2, 2, event())
        .see(T0 + 3, 3, started(event()))
    )


def test_an_unknown_caller_gets_404() -> None:
    honest(
        Recording().refuse(
            T0, '{ "error": "Not found" }', 404, machine=None, **{"from": "10.9.9.9"}
        )
    )


def test_a_caller_is_known_by_address() -> None:
    judgement = judge(Recording().get(T0, EMPTY, machine=None, **{"from": "10.0.0.11"}).records)
    assert judgement.ok
    assert judgement.machines == 1


def test_an_injected_fault_is_not_reported() -> None:
    honest(
        Recording()
        .see(T0, 5, event())
        .exchange(T0 + 1, status=500, answer="boom", fault="500")
        .get(T0 + 2, '{"Docu', fault="truncated")
        .approve(T0 + 3, A, status=503, fault="500")
        .see(T0 + 4, 6, started(event()))
    )


def test_the_path_of_another_service_has_headers_of_its_own_kind() -> None:
    honest(
        Recording()
        .exchange(T0, target="/metadata/instance?api-version=2021-02-01", answer="{}")
        .exchange(
            T0 + 1,
            target="/metadata/instance/compute/name?api-version=2021-02-01&format=text",
            answer="web_0",
            answer_headers={"Content-Type": "text/plain"},
        )
    )


def test_a_machine_that_changes_its_group_sees_two_groups_events() -> None:
    moved = {
        "machines": {
            "web_0": {"group": "jump", "update_domain": 0, "addresses": ["10.0.0.10"]},
            "jump": {"group": "jump", "update_domain": 0, "addresses": ["10.0.0.2"]},
        }
    }
    honest(
        Recording()
        .see(T0, 5, event())
        .fleet(T0 + 10, **moved)
        .see(T0 + 20, 3, event(B, resources=["jump"]))
        .see(T0 + 21, 3, event(B, resources=["jump"]), machine="jump")
    )


def test_a_stopped_clock_in_a_complete_trace_is_not_reported() -> None:
    at = {"asked": T0}
    honest(
        Recording(complete=True)
        .see(T0, 1, **at)
        .see(T0, 2, event(), **at)
        .approve(T0, A, **at)
        .see(T0, 3, started(event()), **at)
        .impact(T0)
        .see(T0, 4, **at)
        .note({"kind": "disabled", "t": T0, "group": "web"})
        .see(T0, 1, **at)
    )


def test_a_clock_stepped_back_blurs_what_is_earlier() -> None:
    honest(
        Recording()
        .see(T0 + 5, 2, event())
        .approve(T0 + 8, A)
        .note({"kind": "step", "t": T0 - 2, "seconds": -10})
        .see(T0, 3, started(event()))
    )


def test_an_answer_in_two_recordings_is_one_answer() -> None:
    recording = Recording().see(T0, 2, event())
    recording.note({**recording.records[-1], "asked": T0 - 0.0015, "t": T0 - 0.0005})
    honest(recording)
