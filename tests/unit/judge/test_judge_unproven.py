"""What looks wrong but is not proven: the judge stays silent."""

import pytest

from forewarn.judge import judge
from helpers.judge_traces import DUE, T0, A, B, C, Recording, event, started

BAD = '{"error":"Bad request. No."}'


def silent(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


def test_overlapping_answers_have_no_order() -> None:
    silent(
        Recording()
        .see(T0, 5, event())
        .approve(T0 + 1, A)
        .see(T0 + 2, 6, started(event()))
        .see(T0 + 3, 5, event(), asked=T0 + 0.5)
        .see(T0 + 4, 7, asked=T0 + 3.9)
        .see(T0 + 5, 6, started(event()), asked=T0 + 3.95)
    )


def test_an_answer_that_touches_another_has_no_order_with_it() -> None:
    silent(
        Recording()
        .approve(T0 - 2, A)
        .see(T0, 6, started(event()), asked=T0 - 1)
        .see(T0 + 1, 5, event(), asked=T0)
    )


def test_an_exchange_without_the_time_of_its_request_may_be_old() -> None:
    recording = Recording().approve(T0 - 2, A)
    recording.see(T0, 6, started(event())).see(T0 + 1, 5, event())
    del recording.records[-1]["asked"]
    silent(recording)


def test_an_event_before_one_that_a_version_cannot_see_proves_nothing() -> None:
    silent(
        Recording()
        .see(T0, 5, event(B), version="2017-03-01")
        .see(T0 + 1, 5, event(A, type="Preempt"), event(B))
        .see(T0 + 2, 5, event(B), version="2017-08-01")
        .see(T0 + 3, 5, event(A, type="Preempt"), event(B), version="2017-11-01")
    )


def test_events_ranked_by_chance_are_not_out_of_order() -> None:
    # B was there first, but the request that saw it was slow.
    silent(
        Recording()
        .see(T0, 5, event(A), event(C))
        .see(T0 + 1, 4, event(B), event(A), event(C), asked=T0 - 1, machine="web_1")
    )


def test_an_incarnation_may_change_and_the_events_look_the_same() -> None:
    silent(Recording().see(T0, 5, event()).see(T0 + 1, 7, event()))


def test_a_start_too_close_to_an_answer_is_not_reported() -> None:
    silent(Recording().see(T0, 5, event()).see(DUE - 0.005, 6, started(event())))


@pytest.mark.parametrize("status", [200, 500, None])
def test_an_approval_under_way_may_be_the_reason(status: int | None) -> None:
    silent(
        Recording()
        .see(T0, 5, event())
        .see(T0 + 2, 6, started(event()))
        .approve(T0 + 9, A, asked=T0 + 1.9, status=status)
        .impact(T0 + 3)
    )


@pytest.mark.parametrize(
    ("engine", "host", "down", "rules"),
    [
        ("sqlite", None, DUE, {"early-start"}),
        ("postgresql", None, DUE, set()),  # it may carry it out later
        (None, None, DUE, set()),
        ("sqlite", "h1", DUE, set()),  # control may have carried it out
        ("sqlite", None, T0 + 1.5, set()),  # the service stopped
    ],
)
def test_an_approval_that_failed_may_be_the_reason_unless_the_engine_rules_it_out(
    engine: str | None, host: str | None, down: float, rules: set[str]
) -> None:
    recording = Recording().note({"kind": "up", "t": T0 - 20, "engine": engine})
    recording.see(T0, 5, event()).approve(T0 + 1, A, status=500, answer="", host=host)
    recording.down(down).see(T0 + 20, 6, started(event()))
    assert {finding.rule for finding in judge(recording.records).findings} == rules


@pytest.mark.parametrize(
    ("step", "host", "rules"),
    [
        (None, None, {"incarnation-idle"}),
        (T0 + 101, None, set()),
        (T0 + 50, None, {"incarnation-idle"}),
        (T0 + 50, "h1", set()),  # guests may have been shown it later
    ],
)
def test_an_incarnation_may_change_with_an_event_that_nobody_saw(
    step: float | None, host: str | None, rules: set[str]
) -> None:
    recording = Recording().moved(T0, "raise").see(T0 + 100, 5, event(), host=host)
    if step is not None:
        recording.moved(step, "raise", B).moved(step, "withdraw", B)
    recording.see(T0 + 102, 7, event(), host=host)
    assert {finding.rule for finding in judge(recording.records).findings} == rules


@pytest.mark.parametrize(
    ("source", "listed", "rules"),
    [
        ("User", False, {"unannounced-shown"}),
        ("User", True, set()),
        ("Platform", False, set()),
    ],
)
def test_a_users_event_is_shown_if_its_group_was_enabled(
    source: str, listed: bool, rules: set[str]
) -> None:
    shown = event(type="Reboot", EventSource=source, DurationInSeconds=-1)
    recording = Recording().moved(T0, "raise", type="Reboot", source=source, listed=listed)
    recording.moved(T0 + 100, "list", type="Reboot", source=source).see(T0 + 100, 1, shown)
    assert {finding.rule for finding in judge(recording.records).findings} == rules


def test_an_approval_just_before_the_start_of_another_event_waits() -> None:
    other = event(B, resources=["web_1"])
    silent(
        Recording()
        .see(T0, 5, event(), other)
        .approve(T0 + 1, B)
        .see(T0 + 2, 6, started(event()), other)
        .see(T0 + 20, 6, started(event()), other)
        .see(T0 + 21, 7, other)
        .see(T0 + 22, 7, other)
        .approve(T0 - 1, A)
    )


def test_what_holds_an_event_may_be_hidden_from_an_old_version() -> None:
    silent(
        Recording()
        .see(T0, 5, event(), version="2017-08-01")
        .approve(T0 + 1, A)
        .see(T0 + 2, 5, event(), version="2017-08-01")
        .see(T0 + 60, 5, event(), version="2017-08-01")
    )


def test_a_machine_of_an_unknown_domain_may_hold_an_event() -> None:
    elsewhere = started(event(B, resources=["removed"]))
    silent(
        Recording()
        .see(T0, 5, elsewhere, event())
        .approve(T0 + 1, A)
        .see(T0 + 60, 5, elsewhere, event())
    )


def test_an_overdue_event_after_an_outage_is_not_reported() -> None:
    silent(
        Recording()
        .see(DUE + 1, 5, event())
        .note({"kind": "up", "t": DUE + 500})
        .see(DUE + 560, 5, event())
    )


def test_a_request_that_waited_through_an_outage_proves_nothing() -> None:
    silent(
        Recording()
        .see(DUE + 1, 5, event())
        .note({"kind": "up", "t": DUE + 500})
        .see(DUE + 501, 5, event(), asked=DUE + 400)
    )


def test_an_unanswered_request_may_mean_an_outage() -> None:
    silent(
        Recording()
        .see(DUE + 1, 5, event())
        .exchange(DUE + 150, status=None)
        .see(DUE + 200, 5, event())
    )


def test_an_id_from_before_the_recording_may_be_approved_or_refused() -> None:
    silent(Recording().approve(T0, A).approve(T0 + 1, B, status=400, answer=BAD))


def test_a_list_with_one_unknown_id_is_refused_as_a_whole() -> None:
    silent(Recording().see(T0, 5, event()).approve(T0 + 1, A, B, status=400, answer=BAD))


def test_the_id_of_a_forgotten_event_may_be_refused() -> None:
    silent(
        Recording()
        .see(T0, 5, event())
        .see(T0 + 1, 6)
        .see(T0 + 90_000, 6)
        .approve(T0 + 90_001, A, status=400, answer=BAD)
    )


def test_a_document_around_a_disabling_may_be_of_either_period() -> None:
    silent(
        Recording()
        .see(T0, 17, event())
        .see(T0 + 1, 1, event())
        .note({"kind": "disabled", "t": T0 + 1.5, "group": "web"})
        .see(T0 + 10, 1, event())
    )


def test_a_disabling_without_a_fleet_may_be_anyones() -> None:
    silent(
        Recording(fleet=False)
        .see(T0, 17)
        .note({"kind": "disabled", "t": T0 + 10, "group": "web"})
        .see(T0 + 20, 1)
    )


def test_a_caller_close_to_a_change_of_the_fleet_may_be_unknown() -> None:
    left = {"machines": {"jump": {"group": "jump", "update_domain": 0, "addresses": ["10.0.0.2"]}}}
    silent(
        Recording()
        .fleet(T0, **left)
        .see(T0 + 1, 5, machine=None, **{"from": "10.0.0.10"})
        .refuse(T0 - 1, '{ "error": "Not found" }', 404)
    )


def test_a_caller_from_an_unlisted_address_may_be_a_machine() -> None:
    silent(
        Recording(fleet=False)
        .fleet(T0, machines={"web_0": {"group": "web"}})
        .see(T0 + 10, 5, machine=None, **{"from": "10.0.0.10"})
    )


def test_an_address_of_several_machines_proves_nothing() -> None:
    # Where each machine has an address to be asked at, only Host tells them disconnected.
    recording = Recording(fleet=False)
    for t, host, incarnation in ((0, "127.0.1.1", 9), (1, "127.0.1.2", 3), (2, "127.0.1.1", 9)):
        recording.see(
            T0 + t,
            incarnation,
            machine=None,
            headers=[("Metadata", "true"), ("Host", host)],
            **{"from": "127.0.0.1"},
        )
    silent(recording)


def test_answers_to_unknown_callers_are_not_compared() -> None:
    silent(Recording(fleet=False).see(T0, 5, machine=None).see(T0 + 1, 3, machine=None))


def test_a_complete_trace_with_a_fault_in_it_has_a_gap() -> None:
    silent(
        Recording(complete=True)
        .see(T0, 5, event())
        .exchange(T0 + 1, status=500, fault="500")
        .see(T0 + 2, 7, event())
        .approve(T0 + 3, B)
    )


def test_headers_that_were_not_recorded_are_not_missed() -> None:
    recording = Recording().see(T0, 5)
    del recording.records[-1]["answer_headers"]
    silent(recording)


@pytest.mark.parametrize(
    "changed",
    [
        {"headers": [("Metadata", "true"), ("Metadata", "true")]},
        {"target": "/metadata/scheduledevents?API-Version=2020-07-01"},
        {"headers": [("Metadata", "true"), ("Cookie", "x" * 9000)]},
        {"method": "POST", "body": '{"startRequests":[]}'},
        {"method": "POST", "body": '{"StartRequests":[],"StartRequests":[]}'},
        {"method": "POST", "body": "\ufeff{}"},
        {"method": "POST", "body": '{"x":NaN}'},
    ],
)
def test_requests_that_the_promises_leave_open_are_not_judged(changed: dict[str, object]) -> None:
    for status in (200, 400):
        recording = Recording()
        recording.exchange(T0, status=status, answer="", tag='"x1"', **changed)  # type: ignore[arg-type]
        rules = {finding.rule for finding in judge(recording.records).findings}
        assert rules <= {"not-a-document"}


@pytest.mark.parametrize(
    "excuse",
    [
        {"kind": "step", "t": T0 + 2, "seconds": 138.0},  # which is recorded
        {"kind": "up", "t": T0 + 2, "host": "h1"},  # after which it has another clock
        {"kind": "up", "t": T0 - 5},  # of a service that may have a virtual clock
        {"kind": "approval", "t": T0 + 2, "event": A},
    ],
)
def test_a_clock_that_may_have_jumped_ahead_excuses_a_start(excuse: dict[str, object]) -> None:
    recording = Recording().note({"kind": "up", "t": T0 - 5, "clock": "wall"}).note(excuse)
    recording.see(T0, 5, event(), host="h1", real=100.0)
    recording.see(DUE + 1, 6, started(event()), host="h1", real=763.0)
    silent(recording)


def test_clocks_of_different_hosts_are_not_compared() -> None:
    recording = Recording().note({"kind": "up", "t": T0 - 5, "clock": "wall"})
    recording.see(T0, 5, event(), host="h1", real=100.0)
    recording.see(DUE + 1, 6, started(event()), host="h2", real=763.0)
    silent(recording)


def test_an_event_that_starts_in_time_by_all_clocks_is_not_reported() -> None:
    recording = Recording().note({"kind": "up", "t": T0 - 5, "clock": "wall"})
    recording.see(T0, 5, event(), host="h1", real=100.0)
    recording.see(DUE + 1, 6, started(event()), host="h1", real=1000.5)
    silent(recording)
