"""The calendar of planned events: what calendar programs read, and with which token."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import icalendar
import pytest

from forewarn.control.views.calendar import MAX_ENTRIES, calendar
from forewarn.core import Event, EventType, Source
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.control_api import ApiResponse, ask
from helpers.token_api import FLEET, api_with_token

PATH = "/v1/calendar.ics"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def entries(answer: ApiResponse) -> list[Any]:
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    found: list[Any] = parsed(answer.raw).walk("VEVENT")
    return found


def machines(answer: ApiResponse) -> list[str]:
    """Return the machine of each entry."""
    return [found for entry in entries(answer) for found in re.findall(r"\w+_\d", entry["SUMMARY"])]


def parsed(text: bytes) -> Any:
    assert all(len(line) <= 75 for line in text.split(b"\r\n"))  # as RFC 5545 folds lines
    assert b"\n" not in text.replace(b"\r\n", b"")
    return icalendar.Calendar.from_ical(text)


def test_an_event_is_an_entry_that_keeps_its_uid_while_it_changes(service: Service) -> None:
    service.document("web_0")  # a group that polls can approve
    words = "Neuer Kernel; Rückfragen, bitte, an die Leitstelle: " + "sehr " * 30
    event = service.schedule(
        "Reboot", "web_0", "web_1", notice="1h", duration=90, description=words
    )
    (planned,) = entries(ask(service, "GET", PATH))
    start = planned["DTSTART"].dt
    assert start == event.not_before
    assert start.utcoffset() == timedelta(0)
    assert planned["DTEND"].dt - start == timedelta(seconds=90)
    assert re.match("Reboot .* web_0, web_1", planned["SUMMARY"])
    assert planned["STATUS"] == "TENTATIVE"
    assert words.strip() in planned["DESCRIPTION"]
    assert planned["UID"] == f"{event.id}@forewarn"
    service.approve("web_2", event)
    (started,) = entries(ask(service, "GET", PATH))
    assert started["UID"] == planned["UID"]
    assert started["STATUS"] == "CONFIRMED"
    assert started["SEQUENCE"] > planned["SEQUENCE"]
    assert started["DTSTAMP"].dt >= planned["DTSTAMP"].dt
    service.clock.advance("1h")
    assert entries(ask(service, "GET", PATH)) == []


@pytest.mark.parametrize(
    ("blackout_days", "postponed"),
    [
        (0, (timedelta(minutes=1), timedelta(minutes=1))),
        (89, (timedelta(days=28), timedelta(days=1))),  # about as late as an event can be
    ],
)
def test_an_event_that_is_postponed_is_a_later_version_of_the_same_entry(
    service: Service, blackout_days: int, postponed: tuple[timedelta, ...]
) -> None:
    now = service.clock.now
    blackout = f"{now:%Y-%m-%d} to {now + timedelta(blackout_days):%Y-%m-%d}"
    policy = {"may_postpone": "30d, twice", "blackouts": [blackout] if blackout_days else []}
    ask(service, "PATCH", "/v1/groups/web/policy", policy)
    ask(service, "POST", "/v1/hosts/shared/maintain", {"mode": "Freeze"})
    planned = {str(entry["UID"]): entry for entry in entries(ask(service, "GET", PATH))}
    assert len(planned) == 2
    (event,) = ask(service, "GET", "/v1/events?group=web").body
    for by in postponed:
        service.clock.advance("1m")
        request = {"by": by.total_seconds()}
        answer = ask(service, "POST", f"/v1/events/{event['id']}/postpone", request)
        assert answer.status == 200, answer.body
        moved = {str(entry["UID"]): entry for entry in entries(ask(service, "GET", PATH))}
        assert moved.keys() == planned.keys()
        for uid, entry in moved.items():  # also that of the other group on the host
            before = planned[uid]
            assert entry["DTSTART"].dt == before["DTSTART"].dt + by
            assert entry["SEQUENCE"] > before["SEQUENCE"]
            for stamp in ("LAST-MODIFIED", "DTSTAMP"):
                assert entry[stamp].dt == service.clock.now.replace(microsecond=0)
            assert entry["CREATED"].dt == before["CREATED"].dt
        planned = moved


def test_a_withdrawn_event_is_shown_as_cancelled_for_a_week(service: Service) -> None:
    event = service.schedule("Reboot", "web_0", notice="1h")
    (planned,) = entries(ask(service, "GET", PATH))
    ask(service, "POST", f"/v1/events/{event.id}/cancel", {"reason": "wrong week"})
    (cancelled,) = entries(ask(service, "GET", PATH))
    assert (cancelled["UID"], cancelled["DTSTART"]) == (planned["UID"], planned["DTSTART"])
    assert cancelled["STATUS"] == "CANCELLED"
    assert cancelled["SEQUENCE"] > planned["SEQUENCE"]
    assert "operator: wrong week" in cancelled["DESCRIPTION"]
    assert entries(ask(service, "GET", f"{PATH}?group=amber")) == []
    service.clock.advance("7d1s")
    assert entries(ask(service, "GET", PATH)) == []


def test_a_calendar_that_has_not_changed_is_not_sent_again(service: Service) -> None:
    service.schedule("Reboot", "web_0")
    first = ask(service, "GET", PATH)
    service.clock.advance("1m")
    again = ask(service, "GET", PATH, If_None_Match=first.headers["etag"])
    assert (again.status, again.raw) == (304, b"")
    service.schedule("Freeze", "web_2")
    assert ask(service, "GET", PATH, If_None_Match=first.headers["etag"]).status == 200


def test_a_part_of_the_fleet_can_be_subscribed_to(service: Service) -> None:
    service.schedule("Reboot", "web_0")
    service.schedule("Reboot", "amber_0")

    def of(query: str) -> list[str]:
        return machines(ask(service, "GET", f"{PATH}?{query}"))

    assert sorted(of("")) == ["amber_0", "web_0"]
    assert of("group=web") == of("label=tier%3Dweb") == of("machine=web_0") == ["web_0"]
    assert of("label=tier!%3Dweb") == ["amber_0"]
    assert of("host=granite") == []  # it is not the maintenance of that host
    assert ask(service, "GET", f"{PATH}?group=wbe").status == 404
    assert ask(service, "GET", f"{PATH}?label=a%20b").status == 400


def test_calendar_programs_send_the_token_as_a_password(service: Service) -> None:
    service.schedule("Reboot", "web_0")
    service.schedule("Reboot", "amber_0")
    api_with_token(service, "root", Role.ADMIN)
    api = api_with_token(service, "cal", Role.VIEWER, groups=("web",))

    def basic(user: str, password: str) -> str:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    anonymous = ask(service, "GET", PATH)
    assert anonymous.status == 401
    assert anonymous.headers["www-authenticate"] == 'Basic realm="forewarn", charset="UTF-8"'
    answer = ask(service, "GET", PATH, Authorization=basic("anybody", api.token))
    assert machines(answer) == ["web_0"]
    assert ask(service, "GET", PATH, Authorization=f"Bearer {api.token}").raw == answer.raw
    for wrong in (basic(api.token, ""), basic("a", "b"), "Basic x", "Basic"):
        refused = ask(service, "GET", PATH, Authorization=wrong)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
    # No other path takes a password, and no path a token in its URL.
    assert ask(service, "GET", "/v1/events", Authorization=basic("a", api.token)).status == 401
    assert ask(service, "GET", f"{PATH}?group={api.token}").status == 400


BOTH = {"type": "Reboot", "groups": ["web", "amber"]}


def planned_entries(service: Service, query: str = "") -> list[Any]:
    found = entries(ask(service, "GET", PATH + query))
    return [entry for entry in found if entry["SUMMARY"].endswith("(planned)")]


def rolled_out(service: Service, **fields: Any) -> str:
    answer = ask(service, "POST", "/v1/rollouts", {**BOTH, **fields})
    assert answer.status == 201
    service._session.settle()
    return str(answer.body["id"])


def test_each_wave_that_a_rollout_has_not_announced_is_one_entry(service: Service) -> None:
    id = rolled_out(service, canary=["web"], ticket="CHG-7")
    first, second = planned_entries(service)
    numbers = [re.findall(r"\d+", entry["SUMMARY"]) for entry in (first, second)]
    assert numbers == [["1", "1", "2"], ["3", "2", "2"]]  # machines, and which wave of how many
    assert (first["UID"], second["UID"]) == (f"{id}-1@forewarn", f"{id}-2@forewarn")
    assert (first["STATUS"], second["STATUS"]) == ("TENTATIVE", "TENTATIVE")
    assert "2 steps" in second["DESCRIPTION"]
    assert "Ticket: CHG-7" in second["DESCRIPTION"]
    assert service.clock.now < first["DTSTART"].dt < first["DTEND"].dt <= second["DTSTART"].dt
    for query in ("?group=amber", "?machine=amber_0", "?label=tier%3Dvault"):
        assert [entry["UID"] for entry in planned_entries(service, query)] == [second["UID"]]
    assert planned_entries(service, "?host=dune") == []  # it is not the maintenance of that host
    service.clock.advance("55m")  # the first wave is done, and amber has been announced
    (later,) = planned_entries(service)
    assert later["UID"] == second["UID"]
    assert later["SEQUENCE"] > second["SEQUENCE"]
    ask(service, "POST", f"/v1/rollouts/{id}/pause", {})
    assert planned_entries(service) == []  # nobody knows when it will be resumed


def test_each_window_in_which_a_rollout_will_announce_is_one_entry(
    service: Service,
) -> None:
    rolled_out(service, windows=["daily 02:00-02:30"], bake=3600)
    planned = planned_entries(service)
    assert [f"{entry['DTSTART'].dt:%H:%M}" for entry in planned] == ["02:00"] * 3
    assert len({(entry["UID"], entry["DTSTART"].dt.date()) for entry in planned}) == 3
    tag = ask(service, "GET", PATH).headers["etag"]
    service.clock.advance("1m")
    assert ask(service, "GET", PATH, If_None_Match=tag).status == 304


def test_a_token_that_does_not_see_a_rollout_does_not_see_its_plans(service: Service) -> None:
    rolled_out(service)
    assert planned_entries(service)
    api_with_token(service, "root", Role.ADMIN)
    for groups, seen in ((("web", "amber"), True), (("web",), False)):
        token = api_with_token(service, "-".join(groups), Role.VIEWER, groups=groups).token
        calendar = ask(service, "GET", PATH, Authorization=f"Bearer {token}").raw
        assert (b"(planned)" in calendar) is seen


def test_a_calendar_that_leaves_events_out_has_a_note() -> None:
    at = 1_800_000_000_000_000
    events = [
        Event(
            id=f"{number:08}",
            group="web",
            type=EventType.FREEZE,
            source=Source.PLATFORM,
            resources=("web_0",),
            domain=0,
            not_before=at + number,
            raised_at=at,
            by="ann",
        )
        for number in range(MAX_ENTRIES + 1)
    ]
    text = calendar(events)
    assert text.count(b"BEGIN:VEVENT") == MAX_ENTRIES
    assert re.search(rb"X-WR-CALDESC:.* 5\\,000 of 5\\,001 ", text)
    assert "X-WR-CALDESC" not in parsed(calendar(events[:2]))
