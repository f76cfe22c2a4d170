"""What somebody should look at."""

from __future__ import annotations

import pytest

from forewarn.core import Event, EventType, Source, Status
from forewarn.core.events import Attempt, Waiting
from forewarn.core.fleet import Health, Host
from forewarn.core.time import DAY, MINUTE, SECOND
from forewarn.service.telemetry import attention
from forewarn.service.telemetry.attention import ProblemKind

NOW = 1_000 * DAY


def event(**fields: object) -> Event:
    known = {
        "id": "4933F66C-2867-4474-BDD4-4EEF48E126E4",
        "group": "web",
        "type": EventType.REBOOT,
        "source": Source.PLATFORM,
        "resources": ("web_0",),
        "domain": 0,
        "not_before": NOW,
        "raised_at": NOW,
        "by": "ann",
        "status": Status.STARTED,
        "started_at": NOW,
        "duration": 60,
    }
    return Event(**{**known, **fields})  # type: ignore[arg-type]


def test_an_event_is_overdue_ten_minutes_after_its_expected_end() -> None:
    end = NOW + 60 * SECOND
    assert attention.of_event(event(), end + 10 * MINUTE) is None
    problem = attention.of_event(event(), end + 10 * MINUTE + 1)
    assert problem is not None
    assert (problem.kind, problem.since) == (ProblemKind.OVERDUE, end)
    waiting = Waiting(machines=("web_0",), since=end, served=0)
    assert attention.of_event(event(waiting=waiting), end + DAY) is None
    scheduled = event(status=Status.SCHEDULED, started_at=None)
    assert attention.of_event(scheduled, NOW + DAY) is None


def test_an_event_that_is_held_says_why_and_what_to_do() -> None:
    stuck = Attempt(number=2, at=NOW + 5, stuck=True, note="no answer")
    problem = attention.of_event(event(attempt=stuck), NOW + 6)
    assert problem is not None
    assert (problem.kind, problem.since) == (ProblemKind.HELD, NOW + 5)
    assert problem.message == "Reboot 4933F66C of web_0: no answer"
    assert problem.subject in problem.advice


@pytest.mark.parametrize(
    ("expires", "found"),
    [(None, []), (NOW + 15 * DAY, []), (NOW + 14 * DAY, [NOW + 14 * DAY]), (NOW, [None])],
)
def test_a_certificate_needs_attention_before_and_after_it_expires(
    expires: int | None, found: list[int | None]
) -> None:
    assert [p.expires for p in attention.of_certificate(expires, NOW)] == found


def test_only_hosts_that_are_not_healthy_have_a_problem() -> None:
    hosts = [Host(name="a"), Host(name="b", health=Health.FAILED, since=NOW, note="no power")]
    (problem,) = attention.of_hosts(hosts)
    assert (problem.subject, problem.since) == ("b", NOW)
    assert problem.message == "host b has failed: no power"
