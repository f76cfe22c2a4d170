"""What `forewarn watch` prints: lines, JSON, a table, and the picture on a terminal."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from rich.console import Console

from forewarn.cli.commands.watch_exec import environment
from forewarn.cli.commands.watch_live import SHOWN_EVENTS, View, picture
from forewarn.cli.commands.watch_text import ChangeLine, print_events, starts
from forewarn.client import Change, ChangeKind, EndpointStatus, Event

NOW = datetime(2027, 1, 15, 8, 0, 0, 400_000, tzinfo=UTC)
EVENT = Event(
    id="28512AF7-C957-4500-9BC4-842D6FB531E4",
    type="Reboot",
    status="Scheduled",
    resources=("web_0", "web_2"),
    not_before=datetime(2027, 1, 15, 8, 15, tzinfo=UTC),
    description="Host \x1b[2J",
    source="Platform",
    duration=9,
)
STARTED = Event(id="B", type="Freeze", status="Started", resources=("web_1",))
STANDING = EndpointStatus(
    endpoint="http://169.254.169.254",
    version="2020-07-01",
    long_poll=True,
    problem="",
    since=NOW,
    responses=3,
    failures=0,
)


def reported(kind: str = "appeared", event: Event = EVENT, **more: Any) -> ChangeLine:
    return ChangeLine(
        Change(kind=ChangeKind(kind), event=event, at=NOW, **more), event is EVENT, "web_0"
    )


def drawn(
    view: View, standing: EndpointStatus = STANDING, at: datetime = NOW, width: int = 200
) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    console.print(picture(view, standing, at, width))
    return out.getvalue()


@pytest.mark.parametrize("width", [1, 20, 30, 60, 80, 100, 130, 250])
def test_an_event_is_one_line_however_little_room_there_is(width: int) -> None:
    long = msgspec.structs.replace(EVENT, description="on and on " * 20)
    text = drawn(View(events=((long, True), (STARTED, False))), width=width)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= width
    if width < 20:
        return
    at = next(number for number, line in enumerate(lines) if "TYPE" in line)
    assert ("Reboot" in lines[at + 2], "Freeze" in lines[at + 3]) == (True, True)
    assert ("in 14 min 59 s" in text) == (width >= 30), "what is left out is of less use"
    assert ("28512AF7" in text) == (width >= 130)


def test_a_change_is_printed_as_one_line() -> None:
    assert str(reported()) == (
        "2027-01-15 08:00:00Z  appeared   Reboot 28512AF7 of web_0, web_2 (this machine), not"
        " before 2027-01-15 08:15:00Z (in 14 min 59 s), for 9 s, Platform, Host \x1b[2J"
    )
    assert str(reported("started", STARTED)) == "2027-01-15 08:00:00Z  started    Freeze B of web_1"
    assert str(reported("rescheduled", earlier_not_before=NOW)).endswith(
        "not before 2027-01-15 08:15:00Z (in 14 min 59 s), instead of 2027-01-15 08:00:00Z"
    )
    assert "presumably" in str(reported("finished", presumed=True))


def test_a_change_as_json_is_one_line_with_these_keys() -> None:
    output = reported().as_json()
    assert "\n" not in output
    assert json.loads(output) == {
        "change": "appeared",
        "at": "2027-01-15T08:00:00Z",
        "mine": True,
        "presumed": False,
        "event": {
            "id": EVENT.id,
            "type": "Reboot",
            "status": "Scheduled",
            "resources": ["web_0", "web_2"],
            "not_before": "2027-01-15T08:15:00Z",
            "description": "Host \x1b[2J",
            "source": "Platform",
            "duration": 9,
        },
    }


@pytest.mark.parametrize(
    ("seconds", "output"),
    [
        (0, "in 14 min 59 s"),
        (899, "any moment"),
        (1_000, "any moment"),
        (-86_400, "in 1 d 14 min"),
    ],
)
def test_an_event_has_a_countdown(seconds: int, output: str) -> None:
    assert starts(EVENT, NOW + timedelta(seconds=seconds)) == output


def test_started_events_and_unknown_values_are_shown_without_a_countdown() -> None:
    assert starts(STARTED, NOW) == "has started"
    assert starts(Event(id="C", type="Reboot", status="Scheduled"), NOW) == "unknown"


def test_a_command_gets_the_change_in_its_environment() -> None:
    assert environment(reported()) == {
        "FOREWARN_CHANGE": "appeared",
        "FOREWARN_MACHINE": "web_0",
        "FOREWARN_MINE": "true",
        "FOREWARN_EVENT_ID": EVENT.id,
        "FOREWARN_EVENT_TYPE": "Reboot",
        "FOREWARN_EVENT_STATUS": "Scheduled",
        "FOREWARN_EVENT_SOURCE": "Platform",
        "FOREWARN_EVENT_RESOURCES": "web_0 web_2",
        "FOREWARN_EVENT_NOT_BEFORE": "2027-01-15T08:15:00Z",
        "FOREWARN_EVENT_DESCRIPTION": "Host \x1b[2J",
        "FOREWARN_EVENT_DURATION": "9",
        "FOREWARN_SECONDS_LEFT": "899",
    }
    bare = environment(reported("started", STARTED))
    names = ("EVENT_NOT_BEFORE", "EVENT_DURATION", "SECONDS_LEFT")
    assert [bare[f"FOREWARN_{name}"] for name in names] == ["", "", ""]


def test_the_view_shows_events_changes_and_the_state_of_the_endpoint() -> None:
    view = View(events=((EVENT, True), (STARTED, False)), changes=(reported(),), machine="web_0")
    shown = drawn(view)
    head, *rest = shown.splitlines()
    assert head.split() == [
        *("web_0", "http://169.254.169.254", "2020-07-01", "long-polling"),
        *("2027-01-15", "08:00:00Z"),
    ]
    (own,) = [line for line in rest if line.lstrip().startswith("*")]
    for cell in ("Reboot", "Scheduled", "in 14 min 59 s", "Platform", "web_0, web_2", "28512AF7"):
        assert cell in own
    assert "has started" in shown
    assert "appeared   Reboot" in shown.splitlines()[-1]
    assert "\x1b" not in shown, "nothing that others wrote acts upon the terminal"
    assert "in 14 min 58 s" in drawn(view, at=NOW + timedelta(seconds=1)), "it ticks"


def test_the_view_without_events_shows_problems_of_the_endpoint() -> None:
    assert "no events" in drawn(View(events=()))
    assert "no events" not in drawn(View()), "nobody knows yet"
    waiting = EndpointStatus(
        endpoint=None,
        version="2020-07-01",
        long_poll=False,
        problem="it cannot be reached",
        since=NOW,
        responses=0,
        failures=2,
    )
    shown = drawn(View(), waiting)
    assert "looking for" in shown
    assert "polling" in shown
    assert f"since 2027-01-15 08:00:00Z: {waiting.problem}" in shown


def test_the_number_of_shown_events_is_limited() -> None:
    shown = drawn(View(events=((STARTED, False),) * (SHOWN_EVENTS + 5)))
    assert shown.count("Freeze") == SHOWN_EVENTS
    assert "and 5 more" in shown


def test_events_are_printed_as_a_table_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_events([EVENT, STARTED], lambda event: event.affects("web_0"), NOW)
    print_events([], lambda _: False, NOW)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:10].split() for line in lines] == [
        ["TYPE"],
        ["*", "Reboot"],
        ["Freeze"],
        ["no", "events"],
    ]
