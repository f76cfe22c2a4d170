"""The rules of asking, step by step: scripted answers, a pretended clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forewarn.client import pace
from forewarn.client.errors import (
    ApprovalRefusedError,
    EndpointNotFoundError,
    EndpointUnavailableError,
)
from forewarn.client.identity import VERSIONS as OF_INSTANCE
from forewarn.client.rules import MAX_NOTE
from forewarn.client.steps import Location, Request, Response
from forewarn.support.limits import MAX_READY_NOTE
from forewarn.wire.extensions import ReadinessReport
from forewarn.wire.times import rfc1123
from forewarn.wire.versions import VERSIONS
from helpers.scripted_client import (
    EVENT,
    HERE,
    Script,
    ScriptedExchanges,
    answer,
    body,
    document,
    is_wait,
    trouble,
    version,
)

DOWNWARDS = [one.name for one in reversed(VERSIONS)]
A, B = Location("169.254.169.254"), Location("168.63.129.16", 8080)
LISTING = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request.",'
    b'"newest-versions":["2025-04-07","2024-07-17","2024-03-15"]}'
)


def always(reply: Response) -> Callable[[Request], Response]:
    return lambda _: reply


def in_turn(*replies: Response) -> Script:
    """One after the other; the last for ever. There is no long-poll."""
    left = list(replies)

    def script(ask: Request) -> Response:
        if is_wait(ask):
            return answer(404)
        return left.pop(0) if len(left) > 1 else left[0]

    return script


# How often


def test_polls_are_a_second_unreachable_give_or_take_and_never_the_same() -> None:
    stage = ScriptedExchanges(in_turn(document()))
    stage.until(60)
    assert 54 <= len(stage.polls) <= 67
    assert len(set(stage.rests)) > 10
    assert all(0.85 <= rest + 0.02 <= 1.15 for rest in stage.rests[1:])


def test_a_poll_sends_the_tag_of_the_document_in_hand() -> None:
    stage = ScriptedExchanges(
        in_turn(document(tag='"a"'), answer(304), document(tag='"b"'), answer(304))
    )
    stage.until(5)
    assert [ask.etag for ask in stage.polls[:5]] == ["", '"a"', '"a"', '"b"', '"b"']


@pytest.mark.parametrize("tag", ["", "x" * 1_000])
def test_an_invalid_tag_is_not_sent_back(tag: str) -> None:
    stage = ScriptedExchanges(in_turn(document(tag=tag)))
    stage.until(3)
    assert {ask.etag for ask in stage.asks} == {""}
    assert not stage.waits


def test_back_off_grows_up_to_a_limit() -> None:
    stage = ScriptedExchanges(in_turn(answer(500)))
    stage.until(60)
    for number, rest in enumerate(stage.rests):
        most = min(pace.BACK_OFF_MOST, 2.0**number)
        assert most / 2 <= rest <= most
    assert stage.rules.status.problem == "answered 500"
    stands = stage.rules.status
    under_way = len(stage.polls) - stands.failures
    assert under_way in (0, 1)
    assert stands.failures == sum(stands.failures_by_kind.values())


@pytest.mark.parametrize(
    ("response", "least"), [("3", 3.0), ("86400", 10.0), ("soon", 0.5), ("-5", 0.5), ("²", 0.5)]
)
def test_retry_after_is_kept_to_within_reason(response: str, least: float) -> None:
    stage = ScriptedExchanges(in_turn(answer(429, retry_after=response), document()))
    stage.done(stage.rules.events(60))
    assert least <= stage.rests[0] <= max(least, 1.0)


def test_after_a_success_the_back_off_is_reset() -> None:
    stage = ScriptedExchanges(
        in_turn(document(EVENT), answer(410), trouble("cut"), document(EVENT))
    )
    reported = stage.until(30)
    assert [len(look.changes) for look in reported if look.changes] == [1], (
        "and nothing is told twice"
    )
    assert stage.rules.status.problem == ""
    assert max(stage.rests[6:]) <= 1.1


# Which version


def knows(name: str, events: Callable[[str], Response]) -> Script:
    """A server that knows the versions up to this one."""

    def script(ask: Request) -> Response:
        if is_wait(ask):
            return answer(404)
        return events(version(ask)) if version(ask) <= name else answer(400, LISTING)

    return script


def test_versions_are_tried_downwards_from_the_newest() -> None:
    stage = ScriptedExchanges(knows("2019-01-01", lambda _: document()))
    stage.done(stage.rules.events(10))
    assert [version(ask) for ask in stage.asks] == DOWNWARDS[:4]
    assert stage.rests == []
    assert stage.rules.status.version == "2019-01-01"
    assert not {version(ask) for ask in stage.asks} & {"2025-04-07", "2024-07-17", "2024-03-15"}


def test_an_endpoint_that_refuses_every_version_is_backed_off() -> None:
    stage = ScriptedExchanges(always(answer(400, LISTING)))
    with pytest.raises(EndpointUnavailableError, match="answered 400"):
        stage.done(stage.rules.events(60))
    assert {version(ask) for ask in stage.asks} == set(DOWNWARDS)
    assert stage.now < 1_000 + pace.ABSENT + 1, "it will not be otherwise soon"


def test_a_version_that_worked_is_not_given_up_for_a_few_refusals() -> None:
    replies = [document(), *[answer(400, LISTING)] * (pace.DOUBT - 1), document()]
    stage = ScriptedExchanges(in_turn(*replies))
    stage.until(30)
    assert {version(ask) for ask in stage.polls} == {DOWNWARDS[0]}


def test_a_version_that_is_refused_repeatedly_is_given_up() -> None:
    stage = ScriptedExchanges(knows("2020-07-01", lambda _: document()))
    stage.until(3)
    stage.script = knows("2019-08-01", lambda _: document())
    stage.until(60)
    assert stage.rules.status.version == "2019-08-01"
    assert stage.rules.status.problem == ""


def test_the_newest_version_is_tried_again_after_a_while() -> None:
    stage = ScriptedExchanges(knows("2019-08-01", lambda _: document(EVENT)))
    reported = stage.until(pace.NEWEST_AGAIN * 3)
    asked = [version(ask) for ask in stage.polls]
    assert 3 <= asked.count(DOWNWARDS[0]) <= 4
    assert stage.rules.status.failures == 0
    assert len(reported) > 150, "nobody waited for it"
    stage.script = knows("2020-07-01", lambda _: document(EVENT))
    assert not any(look.changes for look in stage.until(pace.NEWEST_AGAIN + 3)[1:])
    assert stage.rules.status.version == "2020-07-01"


def test_the_retry_of_the_newest_version_is_not_lost_during_a_poll() -> None:
    script = knows("2019-08-01", lambda _: document())
    stage = ScriptedExchanges(lambda ask: (script(ask), 0.9))  # type: ignore[return-value, arg-type]
    stage.until(pace.NEWEST_AGAIN * 4)
    assert [version(ask) for ask in stage.polls].count(DOWNWARDS[0]) == 4


def test_an_event_that_an_older_version_does_not_show_is_not_reported_as_over() -> None:
    spot = {**EVENT, "EventType": "Preempt"}
    stage = ScriptedExchanges(in_turn(document(spot)))
    looks = stage.snapshots()
    assert next(looks).changes
    old = knows("2017-08-01", lambda _: document(tag='"old"'))
    stage.script = old
    shown = [next(looks) for _ in range(20)]
    assert stage.rules.status.version == "2017-08-01"
    assert shown[-1].document.events == ()
    assert not any(look.changes for look in shown)
    stage.script = in_turn(document(spot), document())
    kinds = [change.kind for _ in range(80) for change in next(looks).changes]
    assert kinds == ["finished"], "told once it can be seen again that it is gone"


# Waiting


def held(ask: Request) -> tuple[Response, float]:
    return (answer(304), 10.0) if is_wait(ask) else (document(), 0.01)


def test_long_polls_are_detected_and_repeated_at_once() -> None:
    stage = ScriptedExchanges(held)
    stage.until(120)
    assert stage.rules.status.long_poll
    assert len(stage.polls) == 1
    assert 11 <= len(stage.waits) <= 13
    assert {ask.etag for ask in stage.waits} == {'"t"'}
    assert all(ask.timeout > pace.WAIT for ask in stage.waits), "it is waited for longer than held"


def test_long_polls_can_be_disabled() -> None:
    stage = ScriptedExchanges(held, long_poll=False)
    stage.until(10)
    assert not stage.waits
    assert len(stage.polls) >= 9


def test_long_polls_that_are_not_offered_are_tried_once_in_a_while() -> None:
    stage = ScriptedExchanges(in_turn(document()))
    stage.until(pace.WAIT_AGAIN * 2)
    assert len(stage.waits) == 2
    assert not stage.rules.status.long_poll
    assert stage.rules.status.failures == 0


def test_long_polls_answered_at_once_are_repeated_with_a_pause() -> None:
    stage = ScriptedExchanges(lambda _: document())
    stage.until(20)
    assert len(stage.waits) <= 24


def test_long_polls_that_always_bring_changes_are_repeated_with_a_pause() -> None:
    number = iter(range(10_000))
    stage = ScriptedExchanges(lambda _: document({**EVENT, "EventId": f"{next(number)}"}))
    stage.until(5)
    assert len(stage.asks) <= 5 / pace.LEAST_REST + 1


def test_long_polls_that_are_lost_are_given_up_after_some() -> None:
    stage = ScriptedExchanges(lambda ask: (trouble("late"), 20.0) if is_wait(ask) else document())
    stage.until(300)
    assert len(stage.waits) == pace.WAIT_TRIES
    assert len(stage.polls) > 200


@pytest.mark.parametrize(
    "reply", [answer(410), answer(429), answer(500), answer(200), trouble("reset")]
)
def test_a_long_poll_that_fails_once_is_tried_again(reply: Response) -> None:
    replies = [reply]

    def script(ask: Request) -> tuple[Response, float]:
        if is_wait(ask) and replies:
            return replies.pop(), 1.0
        return held(ask)

    stage = ScriptedExchanges(script)
    stage.until(60)
    assert stage.rules.status.long_poll
    assert len(stage.waits) >= 5


def test_during_an_outage_long_polls_are_not_given_up() -> None:
    outages = [2] * (pace.WAIT_TRIES + 1)  # polls that fail after each long-poll that does
    left = 0

    def script(ask: Request) -> tuple[Response, float]:
        nonlocal left
        if is_wait(ask) and outages:
            left = outages.pop()
            return trouble("reset"), 0.01
        if left:
            left -= 1
            return trouble("refused"), 0.01
        return held(ask)

    stage = ScriptedExchanges(script)
    stage.until(120)
    assert not outages
    assert stage.rules.status.long_poll


def test_long_polls_last_until_the_next_deadline_within_limits() -> None:
    def script(ask: Request) -> tuple[Response, float]:
        if is_wait(ask):
            seconds = float(ask.target.partition("timeout=")[2].partition("&")[0])
            return answer(304), seconds
        return document(), 0.01

    stage = ScriptedExchanges(script)
    due = stage.now + 34.5
    reported = stage.until(34.6, lambda: due - stage.now)
    assert len(reported) >= 4
    assert due - 1.2 <= stage.now <= due + 1.2
    stage = ScriptedExchanges(script)
    stage.until(2, lambda: 0.2)
    assert not stage.waits, "for so little it is not worth while"
    assert len(stage.polls) >= 8


# Where


def test_what_answers_without_a_document_is_no_endpoint() -> None:
    stage = ScriptedExchanges(lambda _: answer(200, b"hello"), endpoint=None)
    with pytest.raises(EndpointNotFoundError):
        stage.done(stage.rules.events(10))
    assert stage.rules.status.endpoint is None


def test_an_endpoint_that_is_not_found_is_reported_after_a_while() -> None:
    stage = ScriptedExchanges(lambda _: trouble("unreachable"), endpoint=None)
    with pytest.raises(EndpointNotFoundError, match=f"{HERE} cannot be reached"):
        stage.done(stage.rules.events(130))
    assert sum(stage.rests) < pace.ABSENT
    assert len(stage.asks) >= 3, "somebody may have been restarting"
    assert all(ask.connect_timeout <= pace.CONNECT for ask in stage.asks)


def test_an_endpoint_that_is_found_in_a_bad_moment_is_waited_for() -> None:
    stage = ScriptedExchanges(lambda _: answer(410), endpoint=None)
    stage.script = lambda _: document() if stage.now > 1_070 else answer(410)
    assert stage.done(stage.rules.events(130)) == ()
    assert stage.rules.status.endpoint == str(HERE)


def test_an_endpoint_that_was_lost_is_found_again() -> None:
    def script(ask: Request) -> Response:
        if is_wait(ask):
            return answer(404)
        return trouble("refused") if 1_100 < stage.now < 1_200 else document(EVENT)

    stage = ScriptedExchanges(script, endpoint=None)
    looks = stage.snapshots()
    assert next(looks).changes
    while stage.now < 1_200:
        assert next(looks).changes == (), "it is the same event"
    assert stage.rules.status.endpoint == str(HERE)


def test_a_configured_endpoint_is_never_replaced() -> None:
    stage = ScriptedExchanges(in_turn(document(), trouble("refused")), well_known=A)
    stage.until(300)
    assert {ask.location for ask in stage.asks} == {HERE}


# How long


def test_a_first_answer_may_take_two_minutes() -> None:
    stage = ScriptedExchanges(lambda _: (document(), 120.0))
    assert stage.done(stage.rules.events(130)) == ()
    assert stage.asks[0].timeout >= 120


def test_later_answers_get_two_minutes_only_after_repeated_timeouts() -> None:
    stage = ScriptedExchanges(in_turn(document(), trouble("late"), trouble("late"), document()))
    stage.until(10)
    assert [ask.timeout for ask in stage.polls[1:5]] == [10.0, 20.0, 40.0, 10.0]


def test_the_timeout_of_a_call_is_respected() -> None:
    for reply, most in ((answer(500), 20.0), (trouble("stalled"), 20.0), (trouble("refused"), 15)):
        stage = ScriptedExchanges(always(reply))
        with pytest.raises(EndpointUnavailableError, match="valid answer"):
            stage.done(stage.rules.events(20))
        assert most - 5 <= stage.now - 1_000
        assert sum(stage.rests) <= most
    stage = ScriptedExchanges(always(answer(500)))
    with pytest.raises(EndpointUnavailableError):
        stage.done(stage.rules.events(0))
    assert len(stage.asks) == 1


def test_an_endpoint_that_answers_in_between_is_not_taken_for_absent() -> None:
    """As during a long restart: nothing listens, a proxy answers for it, nothing listens again."""
    replies = [trouble("refused"), answer(503)] * 10
    stage = ScriptedExchanges(in_turn(*replies, document(EVENT)))
    assert len(stage.done(stage.rules.events(130))) == 1
    assert stage.now - 1_000 > pace.ABSENT


# Approving, and the rest


@pytest.mark.parametrize("reply", [answer(500), answer(410), answer(429), trouble("reset")])
def test_an_approval_is_repeated_until_it_is_answered(reply: Response) -> None:
    stage = ScriptedExchanges(in_turn(document(EVENT), reply, reply, answer(200)))
    stage.done(stage.rules.approve(["x"], 60))
    assert [ask.method for ask in stage.asks] == ["GET", "POST", "POST", "POST"]
    assert {ask.body for ask in stage.asks[1:]} == {b'{"StartRequests":[{"EventId":"x"}]}'}


def test_a_refused_approval_is_not_repeated() -> None:
    stage = ScriptedExchanges(in_turn(document(), answer(400, b'{"error":"Bad \x1b[2J"}')))
    with pytest.raises(ApprovalRefusedError, match=r'answered 400 .* x: {"error":"Bad \\x1b'):
        stage.done(stage.rules.approve(["x"], 60))


def test_an_event_approved_here_that_disappears_is_finished() -> None:
    stage = ScriptedExchanges(in_turn(document(EVENT), answer(200), document()))
    stage.rules._endpoint._server_clock._offset = 0.0  # long before its NotBefore
    looks = stage.snapshots()
    assert next(looks).changes
    stage.done(stage.rules.approve([EVENT["EventId"].lower()], 60))  # type: ignore[attr-defined]
    (change,) = next(looks).changes
    assert (change.kind, change.presumed) == ("finished", True)


@pytest.mark.parametrize(("status", "kind"), [(500, "finished"), (400, "withdrawn")])
def test_an_approval_whose_answer_was_lost_may_have_counted(status: int, kind: str) -> None:
    stage = ScriptedExchanges(in_turn(document(EVENT), answer(status), document()))
    stage.rules._endpoint._server_clock._offset = 0.0  # long before its NotBefore
    looks = stage.snapshots()
    assert next(looks).changes
    with pytest.raises((EndpointUnavailableError, ApprovalRefusedError)):
        stage.done(stage.rules.approve([str(EVENT["EventId"])], 0))
    assert [change.kind for change in next(looks).changes] == [kind]


def test_failing_approvals_do_not_slow_down_polls() -> None:
    def script(ask: Request) -> Response | tuple[Response, float]:
        return answer(500) if ask.method == "POST" else held(ask)

    stage = ScriptedExchanges(script)
    looks = stage.snapshots()
    next(looks), next(looks)
    with pytest.raises(EndpointUnavailableError):
        stage.done(stage.rules.approve(["x"], 60))
    assert stage.rules.status.problem == "", "documents come as ever"
    polls = len([ask for ask in stage.polls if ask.method == "GET"])
    next(looks), next(looks)
    assert len([ask for ask in stage.polls if ask.method == "GET"]) == polls


def test_two_watchers_get_all_changes() -> None:
    stage = ScriptedExchanges(in_turn(document(EVENT)))
    one, other = stage.snapshots(), stage.snapshots()
    for reported in (next(one), next(other)):
        assert [change.kind for change in reported.changes] == ["appeared"]


def test_the_identity_is_requested_with_its_own_versions() -> None:
    def script(ask: Request) -> Response:
        known = version(ask) == OF_INSTANCE[-1]
        return answer(200, b'{"name":"web_0"}') if known else answer(400, LISTING)

    stage = ScriptedExchanges(script)
    assert stage.done(stage.rules.identity(10)).name == "web_0"
    assert [version(ask) for ask in stage.asks] == list(OF_INSTANCE)


def test_an_identity_without_a_name_is_an_error() -> None:
    stage = ScriptedExchanges(always(answer(200, b"{}")))
    with pytest.raises(EndpointUnavailableError, match="without the name"):
        stage.done(stage.rules.identity(10))


READY = b'{"EventId":"x","Ready":[{"Machine":"web_1","At":"","Note":""}],"Waiting":["web_0"]}'


def test_readiness_is_offered_or_it_is_not() -> None:
    stage = ScriptedExchanges(in_turn(answer(410), answer(500), answer(200, READY)))
    reported = stage.done(stage.rules.readiness("x/y", 60, ReadinessReport(note="drained")))
    assert reported is not None
    assert (reported.ready, reported.waiting) == (("web_1",), ("web_0",))
    assert {(ask.method, ask.target) for ask in stage.asks} == {("PUT", "/forewarn/v1/ready/x%2Fy")}
    for none in (answer(404), answer(400), answer(200, b"<html>")):
        stage = ScriptedExchanges(always(none))
        assert stage.done(stage.rules.readiness("x", 60)) is None
        assert len(stage.asks) == 1


def test_readiness_that_was_changed_too_often_is_not_retried() -> None:
    refusal = answer(429, b'{"error":"changed 16 times"}')
    stage = ScriptedExchanges(lambda ask: refusal if ask.method == "PUT" else answer(200, READY))
    assert stage.done(stage.rules.readiness("x", 60, ReadinessReport())) is not None
    assert stage.rests == []


def test_a_note_that_is_too_long_is_not_sent() -> None:
    stage = ScriptedExchanges(always(answer(200, READY)))
    with pytest.raises(ValueError, match="at most 1,024 characters, not 1,025"):
        stage.done(stage.rules.readiness("x", 60, ReadinessReport(note="x" * 1_025)))
    assert stage.asks == []
    assert MAX_NOTE == MAX_READY_NOTE


# Its clock


def test_a_clock_that_runs_faster_is_followed_also_by_long_polls() -> None:
    def script(ask: Request) -> tuple[Response, float]:
        took = 10.0 if is_wait(ask) else 0.01
        answered = stage.now + took
        headers = ("Date", rfc1123(int(theirs(answered)))), ("ETag", "t")
        came = Response(
            status=200, headers=headers, body=body(), sent_at=stage.now, received_at=answered
        )
        return came, took

    def theirs(now: float) -> float:
        return 1.8e9 + now * 1.0005

    stage = ScriptedExchanges(script)
    looks = stage.snapshots()
    for _ in range(1_000):
        next(looks)
        assert abs(stage.rules.now().timestamp() - theirs(stage.now)) < 2
    assert len(stage.polls) == 1


def test_the_clock_is_the_services_and_steps_with_it() -> None:
    date = "Fri, 15 Jan 2027 08:00:00 GMT"

    def script(ask: Request) -> Any:
        return Response(
            status=200,
            headers=(("Date", date),),
            body=body(),
            sent_at=stage.now,
            received_at=stage.now,
        )

    stage = ScriptedExchanges(script)
    for response, hour in (
        (date, 8),
        ("Fri, 15 Jan 2027 11:00:00 GMT", 11),
        ("Fri, 15 Jan 2027 02:00:00 GMT", 2),
    ):
        date = response
        stage.done(stage.rules.events(1))
        assert stage.rules.now().hour == hour
    date = "Fri, 31 Dec 9999 23:59:59 GMT"
    stage.done(stage.rules.events(1))
    stage.now += 1_000
    assert stage.rules.now().year == 9999, "and none of them ends a watch"
