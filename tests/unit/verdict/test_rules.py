"""Each thing that a client can do wrong, done to the real service, is told and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import pytest

from forewarn.testing import Service
from forewarn.verdict.rules import MAX_APPROVALS, NOTE, RULES, WRONG, RuleName

PLACE = "/metadata/scheduledevents"
NEWEST = "2020-07-01"
ASK = f"{PLACE}?api-version={NEWEST}"
HEADER = {"Metadata": "true"}
FLEET = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0}
      - {name: web_1, update_domain: 1}
      - {name: web_2, update_domain: 0, spot: true}
  - {name: jump, kind: standalone, machines: [{name: jump}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in ("web_0", "web_1", "jump"):
            service.document(machine)
        yield service


def no_header(service: Service) -> None:
    service.request("web_0", "GET", ASK)


def false_header(service: Service) -> None:
    service.request("web_0", "GET", ASK, {"Metadata": "True, really"})


def forwarded(service: Service) -> None:
    service.get("web_0", headers={"X-Forwarded-For": "10.0.0.1"})


def old_path(service: Service) -> None:
    service.request("web_0", "GET", "/metadata/latest/scheduledevents", HEADER)


def another_verb(service: Service) -> None:
    service.request("web_0", "PUT", ASK, HEADER)


def version_twice(service: Service) -> None:
    service.request("web_0", "GET", f"{ASK}&api-version={NEWEST}", HEADER)


def no_version(service: Service) -> None:
    service.request("web_0", "GET", PLACE, HEADER)


def version_of_another(service: Service) -> None:
    service.get("web_0", "2021-02-01")


def no_json(service: Service) -> None:
    service.post("web_0", b"EventId=1")


def nothing_to_start(service: Service) -> None:
    service.post("web_0", b'{"StartRequests":[]}')


def no_id(service: Service) -> None:
    service.post("web_0", b'{"StartRequests":[{"Id":"x"}]}')


def far_too_much(service: Service) -> None:
    service.post("web_0", b" " * 70_000)


def made_up(service: Service) -> None:
    service.approve("web_0", "NO-SUCH-EVENT")


def somebody_elses(service: Service) -> None:
    event = service.schedule("Reboot", "jump")
    service.document("jump")
    service.approve("web_0", event.id)


def withdrawn(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.cancel(event)
    service.document("web_0")
    service.approve("web_0", event.id)


def ready_for_nothing(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.cancel(event)
    service.document("web_0")
    answer = service.request("web_0", "PUT", f"/forewarn/v1/ready/{event.id}", HEADER)
    if answer.status != 200:  # it is not taken any more, and so not held against anybody either
        service.approve("web_0", event.id)


def impatient(service: Service) -> None:
    event = service.schedule("Freeze", "web_0", duration=5)
    service.document("web_0")
    service.approve("web_0", event.id)


def blind(service: Service) -> None:
    service.get("web_2", "2017-08-01")
    service.schedule("Preempt", "web_2")
    service.get("web_2", "2017-08-01")
    service.clock.advance("1m")


def too_late(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.clock.advance("15m")
    service.document("web_0")
    service.approve("web_0", event.id)


def again_and_again(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    for _ in range(MAX_APPROVALS):
        service.approve("web_0", event.id)


def for_another(service: Service) -> None:
    event = service.schedule("Reboot", "web_1")
    service.document("web_0")
    service.approve("web_0", event.id)


def without_a_word(service: Service) -> None:
    service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.clock.advance("15m")


def wound_past(service: Service) -> None:
    service.schedule("Reboot", "web_0")
    service.clock.advance("2h")
    service.document("web_0")


def preview(service: Service) -> None:
    service.get("web_0", "2017-03-01")


@pytest.mark.parametrize(
    ("does", "rule", "message"),
    [
        (no_header, "missing-header", "no Metadata header"),
        (false_header, "missing-header", "Metadata: True, really"),
        (forwarded, "forwarded", "through a proxy"),
        (old_path, "wrong-path", "/metadata/latest/scheduledevents"),
        (another_verb, "wrong-verb", "GET"),
        (version_twice, "wrong-query", "give each once"),
        (no_version, "wrong-version", NEWEST),
        (version_of_another, "wrong-version", "api-version=2021-02-01"),
        (no_json, "malformed-approval", "valid JSON"),
        (nothing_to_start, "malformed-approval", "no StartRequests"),
        (no_id, "malformed-approval", "without an EventId"),
        (far_too_much, "malformed-approval", "send {"),
        (made_up, "unknown-approval", "NO-SUCH-EVENT"),
        (somebody_elses, "unknown-approval", "never in a document"),
        (withdrawn, "ignored-withdrawal", "withdrawn"),
        (ready_for_nothing, "ignored-withdrawal", "withdrawn"),
        (impatient, "approved-freeze", "5 s"),
        (blind, "blind-version", "api-version 2017-08-01"),
        (too_late, "late-approval", "as Started"),
        (again_and_again, "repeated-approval", "once is enough"),
        (for_another, "approved-for-others", "of web_1"),
        (without_a_word, "no-reaction", "neither approved"),
        (wound_past, "clock-passed", "clock.play"),
        (preview, "preview-version", "a preview"),
    ],
)
def test_each_mistake_is_reported_by_its_rule_alone(
    service: Service, does: Callable[[Service], None], rule: str, message: str
) -> None:
    does(service)
    (complaint,) = service.verdict().complaints
    assert complaint.rule == rule
    assert message in complaint.message
    assert complaint.machine in ("web_0", "web_2")
    assert complaint.group == "web"
    assert complaint.severity == RULES[rule].severity
    assert service.verdict().ok == (complaint.severity == NOTE)


def test_a_late_approval_of_another_machines_event_is_reported_as_such(service: Service) -> None:
    """Who takes web_10 for web_1 is found, even if that comes too late."""
    event = service.schedule("Reboot", "web_1")
    service.document("web_0")
    service.clock.advance("15m")
    service.document("web_0")
    service.approve("web_0", event.id)
    rules = {complaint.rule for complaint in service.verdict().complaints}
    assert rules >= {"late-approval", "approved-for-others"}


def test_a_check_prints_how_many_notes_it_has_passed_over(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    for_another(service)
    service.verdict().check()
    assert "1 note (approved-for-others)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "headers", "rule"),
    [
        (ASK, {}, "missing-header"),
        (PLACE, HEADER, "wrong-version"),
        (ASK, {**HEADER, "X-Forwarded-For": "10.0.0.1"}, "forwarded"),
        ("/metadata/latest/scheduledevents", HEADER, "wrong-path"),
        ("/metadata/scheduled-events", HEADER, "wrong-path"),
    ],
)
def test_a_client_whose_requests_are_all_refused_has_only_that_complaint(
    target: str, headers: dict[str, str], rule: str
) -> None:
    with Service(FLEET) as service:
        service.request("web_0", "GET", target, headers)
        service.schedule("Reboot", "web_0")
        service.clock.advance("2h")
        service.request("web_0", "GET", target, headers)
        assert [complaint.rule for complaint in service.verdict().complaints] == [rule]


def test_the_events_of_a_client_whose_requests_are_all_refused_are_not_held_against_it() -> None:
    with Service(FLEET) as service:
        service.document("web_1")
        service.request("web_0", "GET", ASK)
        event = service.schedule("Reboot", "web_0")
        service.document("web_1")
        service.clock.advance("2h")
        verdict = service.verdict()
        assert [complaint.rule for complaint in verdict.complaints] == ["missing-header"]
        assert verdict.course("web_0", event).excuse.endswith("refused")


def test_a_client_that_is_refused_once_has_complaints_for_missed_events(
    service: Service,
) -> None:
    no_header(service)
    wound_past(service)
    rules = {complaint.rule for complaint in service.verdict().complaints}
    assert rules == {"missing-header", "clock-passed"}


def test_a_correct_client_has_its_course_and_no_complaints(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    visible = service.clock.now.timestamp()
    service.clock.advance("2s")
    service.document("web_0")
    service.clock.advance("10s")
    service.request("web_0", "PUT", f"/forewarn/v1/ready/{event.id}", HEADER)
    service.approve("web_1", event.id)
    service.document("web_0")
    service.clock.advance("1h")
    service.document("web_0")
    verdict = service.verdict().check()
    assert {complaint.rule for complaint in verdict.complaints} == {"approved-for-others"}
    course = verdict.course("web_0", event)
    assert (course.type, course.source, course.concerned) == ("Reboot", "Platform", True)
    assert (course.visible, course.notice) == (visible, 900)
    assert (course.seen, course.seen_after) == (visible + 2, 2)
    assert course.statuses == ("Scheduled", "Started")
    assert (course.prepared, course.approved) == (visible + 12, visible + 12)
    assert (course.approved_by, course.margin) == ("web_1", 888)
    assert (course.started, course.started_by) == (visible + 12, "approval")
    assert course.impact is not None
    assert course.impact >= visible + 12
    assert (course.ending, course.in_time, course.polls) == ("finished", True, 2)


def test_an_operator_is_named_as_the_approver(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service._session.run(service._session.node.platform.approve(event.id, "alice"))
    service._session.settle()
    course = service.verdict().course("web_0", event)
    assert (course.approved_by, course.started_by) == ("alice", "approval")


def test_a_pause_that_was_prepared_for_may_be_brought_on(service: Service) -> None:
    event = service.schedule("Freeze", "web_0", duration=5)
    service.document("web_0")
    service.request("web_0", "PUT", f"/forewarn/v1/ready/{event.id}", HEADER)
    service.approve("web_0", event.id)
    assert service.verdict().complaints == ()


def test_approving_a_freeze_of_unknown_duration_is_a_note(service: Service) -> None:
    event = service.schedule("Freeze", "web_0", duration=-1)
    service.document("web_0")
    service.approve("web_0", event.id)
    (note,) = service.verdict().complaints
    assert (note.rule, note.severity) == ("approved-freeze", NOTE)


def test_a_withdrawal_that_was_not_shown_yet_is_not_ignored(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.cancel(event)
    service.approve("web_0", event.id)
    assert service.verdict().ok


def test_effects_of_faults_are_not_held_against_clients(service: Service) -> None:
    service.faults.add("gone", machine="web_0", times=2)
    assert [service.get("web_0").status for _ in range(3)] == [410, 410, 200]
    verdict = service.verdict()
    assert verdict.complaints == ()
    assert verdict.conduct("web_0").faults == {"gone": 2}
    assert verdict.conduct("web_0").statuses == {"200": 2, "410": 2}


def test_the_conduct_of_a_machine_has_its_requests(service: Service) -> None:
    tag = service.get("web_0", headers={"User-Agent": "agent/1"}).headers["etag"]
    service.get("web_0", "2019-08-01", {"If-None-Match": tag, "User-Agent": "agent/2"})
    service.get("web_0", headers={"If-None-Match": tag, "User-Agent": "agent/2"})
    conduct = service.verdict().conduct("web_0")
    assert conduct.polls == 4
    assert conduct.versions == {NEWEST: 3, "2019-08-01": 1}
    assert conduct.headers == {"metadata": "true", "user-agent": "agent/2", "if-none-match": tag}
    assert conduct.statuses == {"200": 2, "304": 2}
    assert conduct.every is not None


def test_a_304_counts_as_seeing_the_document(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    tag = service.get("web_0").headers["etag"]
    service.get("web_1", headers={"If-None-Match": tag})
    assert service.verdict().course("web_1", event).statuses == ("Scheduled",)


def test_a_test_can_reset_the_verdict(service: Service) -> None:
    no_header(service)
    assert not service.verdict().ok
    service.reset_verdict()
    assert service.verdict().complaints == ()


def test_every_rule_describes_what_is_expected() -> None:
    for name, rule in RULES.items():
        assert rule.severity in (WRONG, NOTE), name
        assert rule.expects.endswith("."), name


def test_the_names_that_an_editor_completes_are_those_of_the_rules() -> None:
    assert get_args(RuleName) == tuple(RULES)
