"""Which events a watch reports: those of this machine, and no short freezes; and what need not be
approved any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forewarn.client import pace
from forewarn.client.document import parse_document
from forewarn.client.errors import ApprovalRefusedError, EndpointUnavailableError
from forewarn.client.events import Event
from forewarn.client.identity import Identity
from forewarn.client.steps import Request, Response
from helpers.scripted_client import EVENT, ScriptedExchanges, answer, body, document, is_wait

MINE = {**EVENT, "EventId": "MINE"}
OTHERS = {**EVENT, "EventId": "OTHERS", "Resources": ["web_1"]}
NAMED = answer(200, b'{"name":"web_0"}')


def of_instance(ask: Request) -> bool:
    return ask.target.startswith("/metadata/instance")


def service(*documents: Response, identity: Callable[[], Response] = lambda: NAMED) -> Any:
    """The documents one after the other, the last for ever. There is no long-poll."""
    left = list(documents)

    def script(ask: Request) -> Response:
        if is_wait(ask):
            return answer(404)
        if of_instance(ask):
            return identity()
        return left.pop(0) if len(left) > 1 else left[0]

    return script


def changes(stage: ScriptedExchanges, count: int, **which: Any) -> list[tuple[str, str]]:
    """What the first so many snapshots report."""
    snapshots = stage.snapshots(**which)
    return [
        (str(change.kind), change.event.id)
        for _ in range(count)
        for change in next(snapshots).changes
    ]


def freeze(duration: int | None) -> dict[str, Any]:
    length = {} if duration is None else {"DurationInSeconds": duration}
    return {**MINE, "EventType": "Freeze", **length}


def event(**fields: Any) -> Event:
    return parse_document(body({**MINE, **fields})).events[0]


def test_only_events_that_list_this_machine_are_reported() -> None:
    stage = ScriptedExchanges(service(document(MINE, OTHERS), document()))
    assert changes(stage, 2, mine=True) == [("appeared", "MINE"), ("finished", "MINE")]
    stage = ScriptedExchanges(service(document(MINE, OTHERS), document(MINE)))
    assert [id for _, id in changes(stage, 1)] == ["MINE", "OTHERS"]


def test_the_identity_is_asked_for_once() -> None:
    stage = ScriptedExchanges(service(document(MINE)))
    changes(stage, 5, mine=True)
    assert len([ask for ask in stage.asks if of_instance(ask)]) == 1
    stage = ScriptedExchanges(service(document(MINE)))
    changes(stage, 5)
    assert not [ask for ask in stage.asks if of_instance(ask)]


def test_a_document_is_delivered_whole() -> None:
    stage = ScriptedExchanges(service(document(MINE, OTHERS)))
    snapshot = next(stage.snapshots(mine=True))
    assert [one.id for one in snapshot.document.events] == ["MINE", "OTHERS"]


def test_an_event_that_no_longer_lists_this_machine_is_over_for_it() -> None:
    left = {**MINE, "Resources": ["web_1"]}
    started = {"EventStatus": "Started", "NotBefore": ""}
    stage = ScriptedExchanges(service(document(MINE), document(left), document(MINE)))
    stage.rules._endpoint._server_clock._offset = 0.0  # long before its NotBefore
    assert [kind for kind, _ in changes(stage, 3, mine=True)] == [
        *("appeared", "withdrawn", "appeared"),
    ]
    stage = ScriptedExchanges(service(document({**MINE, **started}), document({**left, **started})))
    assert [kind for kind, _ in changes(stage, 2, mine=True)] == ["appeared", "started", "finished"]


def test_while_the_identity_is_not_given_polls_go_on_and_nothing_is_lost() -> None:
    identities = [answer(500), answer(429), answer(200, b""), NAMED]
    stage = ScriptedExchanges(
        service(document(), document(MINE), identity=lambda: identities.pop(0))
    )
    assert changes(stage, 1, mine=True) == [("appeared", "MINE")]
    assert len([ask for ask in stage.polls if not of_instance(ask)]) == 4


def test_while_the_identity_is_not_given_no_long_poll_delays_the_next_attempt() -> None:
    identities = [answer(500), answer(500), NAMED]

    def script(ask: Request) -> Response:
        return identities.pop(0) if of_instance(ask) else document(MINE)

    stage = ScriptedExchanges(script)
    assert changes(stage, 1, mine=True) == [("appeared", "MINE")]
    assert not stage.waits


def test_after_a_change_of_other_machines_the_next_long_poll_starts_at_once() -> None:
    documents = [document(), document(OTHERS, tag='"b"'), document(OTHERS, tag='"b"')]

    def script(ask: Request) -> Response:
        return NAMED if of_instance(ask) else documents.pop(0)

    stage = ScriptedExchanges(script)
    assert changes(stage, 3, mine=True) == []
    assert len(stage.waits) == 2
    assert max(stage.rests) < pace.INTERVAL / 2


@pytest.mark.parametrize(
    ("identity", "seconds", "problem"),
    [
        (answer(404), pace.ABSENT, "answered 404"),
        (answer(400), pace.ABSENT, "answered 400"),
        (answer(500), pace.TIMEOUT, "answered 500"),
        (answer(200, b"{}"), pace.TIMEOUT, "without the name"),
    ],
)
def test_an_endpoint_with_events_and_without_identities_is_an_error(
    identity: Response, seconds: float, problem: str
) -> None:
    stage = ScriptedExchanges(service(document(MINE), identity=lambda: identity))
    begun = stage.now
    with pytest.raises(EndpointUnavailableError, match=f"the identity .*{problem}"):
        next(stage.snapshots(mine=True))
    assert seconds - pace.BACK_OFF_MOST <= stage.now - begun < seconds + 1


def test_an_endpoint_that_does_not_answer_at_all_is_outlasted() -> None:
    stage = ScriptedExchanges(lambda _: answer(500))
    down_until = stage.now + 3_600

    def script(ask: Request) -> Response:
        if stage.now < down_until or is_wait(ask):
            return answer(500)
        return NAMED if of_instance(ask) else document(MINE)

    stage.script = script
    assert changes(stage, 1, mine=True) == [("appeared", "MINE")]


@pytest.mark.parametrize(
    ("duration", "reported"), [(0, False), (5, False), (9, False), (10, True), (-1, True)]
)
def test_short_freezes_can_be_left_out(duration: int, reported: bool) -> None:
    stage = ScriptedExchanges(service(document(freeze(duration))))
    assert bool(changes(stage, 1, min_freeze=10)) is reported
    assert changes(ScriptedExchanges(service(document(freeze(duration)))), 1)


def test_a_freeze_of_unknown_duration_is_not_short() -> None:
    stage = ScriptedExchanges(service(document(freeze(None))))
    assert changes(stage, 1, mine=True, min_freeze=10**9) == [("appeared", "MINE")]


def test_a_short_event_other_than_a_freeze_is_reported() -> None:
    stage = ScriptedExchanges(service(document({**MINE, "DurationInSeconds": 5})))
    assert changes(stage, 1, min_freeze=10) == [("appeared", "MINE")]


def test_an_event_affects_the_machines_that_it_lists() -> None:
    assert event().affects("web_0")
    assert event(Resources=["_web_0"]).affects(Identity("web_0"))
    assert not event(Resources=["web_00", "WEB_0"]).affects("web_0")
    assert not event(Resources=[]).affects(Identity("web_0"))


# What needs no approval


def approvals(stage: ScriptedExchanges) -> list[bytes | None]:
    return [ask.body for ask in stage.asks if ask.method == "POST"]


def test_an_event_that_has_started_is_not_approved() -> None:
    stage = ScriptedExchanges(service(document()))
    stage.done(stage.rules.approve([event(EventStatus="Started")], 60))
    assert stage.asks == []


@pytest.mark.parametrize("listed", [[], [{**MINE, "EventStatus": "Started", "NotBefore": ""}]])
def test_an_event_that_ended_or_started_meanwhile_needs_no_approval(
    listed: list[dict[str, Any]],
) -> None:
    def script(ask: Request) -> Response:
        return answer(400) if ask.method == "POST" else document(*listed)

    stage = ScriptedExchanges(script)
    stage.done(stage.rules.approve([event()], 60))
    assert len(approvals(stage)) == 1


def test_other_events_are_approved_if_one_is_refused() -> None:
    def script(ask: Request) -> Response:
        if ask.method == "POST":
            return answer(400 if b"MINE" in (ask.body or b"") else 200)
        return document(OTHERS)

    stage = ScriptedExchanges(script)
    stage.done(stage.rules.approve([event(), event(EventId="others")], 60))
    assert approvals(stage)[1:] == [b'{"StartRequests":[{"EventId":"others"}]}']


@pytest.mark.parametrize("approved", [event(), "MINE"])
def test_a_refusal_of_an_event_that_is_still_scheduled_is_an_error(approved: Event | str) -> None:
    def script(ask: Request) -> Response:
        return answer(400) if ask.method == "POST" else document(MINE)

    stage = ScriptedExchanges(script)
    with pytest.raises(ApprovalRefusedError, match=r"400 .*MINE"):
        stage.done(stage.rules.approve([approved], 60))
    assert len(approvals(stage)) == 1
