from __future__ import annotations

from datetime import UTC, datetime

import pytest

from forewarn.core.windows.syntax import parse_blackout
from forewarn.service.fleet.calendar import CalendarError, read_blackouts
from forewarn.support.instants import from_datetime

NOW = from_datetime(datetime(2026, 11, 17, 12, tzinfo=UTC))
BERLIN = "DTSTART;TZID=Europe/Berlin:"


def calendar(*events: str, before: str = "") -> str:
    """A calendar of events whose lines are separated by spaces; `_` is a space in a value."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test", *before.split()]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT"]
        lines += [] if "UID:" in event else [f"UID:event-{number}"]
        lines += [line.replace("_", " ") for line in event.split()]
        lines += ["END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""])


def blackouts(*events: str, before: str = "") -> list[str]:
    texts = read_blackouts(calendar(*events, before=before), NOW)
    for text in texts:
        parse_blackout(text)
    return texts


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART:20261224T180000Z DTEND:20261227T060000Z", "2026-12-24 18:00 to 2026-12-27 06:00"),
        ("DTSTART:20261224T180000Z DURATION:PT90M", "2026-12-24 18:00 to 2026-12-24 19:30"),
        ("DTSTART:20261224T180010Z DURATION:PT5S", "2026-12-24 18:00 to 2026-12-24 18:01"),
        ("DTSTART;VALUE=DATE:20261224", "2026-12-24"),
        ("DTSTART;VALUE=DATE:20261224 DURATION:P2D", "2026-12-24 to 2026-12-25"),
        (
            "DTSTART;VALUE=DATE:20261220 DTEND;VALUE=DATE:20270107 TRANSP:TRANSPARENT",
            "2026-12-20 to 2027-01-06",
        ),
        (
            f"{BERLIN}20261224T180000 DTEND;TZID=Asia/Tokyo:20261225T080000",
            "2026-12-24 18:00 to 2026-12-25 00:00 Europe/Berlin",
        ),
        (
            "DTSTART;TZID=W._Europe_Standard_Time:20261224T180000 DURATION:PT1H",
            "2026-12-24 18:00 to 2026-12-24 19:00 Europe/Berlin",
        ),
        # The clocks show 02:30 twice on 2027-10-31: this is the second time.
        (
            f"{BERLIN}20271031T000000 DTEND:20271031T013000Z",
            "2027-10-30 22:00 to 2027-10-31 01:30",
        ),
    ],
)
def test_an_event_becomes_a_blackout(event: str, expected: str) -> None:
    assert blackouts(event) == [expected]


def test_days_and_times_without_a_zone_are_in_that_of_the_calendar() -> None:
    events = (
        "DTSTART;VALUE=DATE:20261224 DTEND;VALUE=DATE:20261226",
        "DTSTART:20261231T180000 DTEND:20270101T060000",
    )
    assert blackouts(*events, before="X-WR-TIMEZONE:Europe/Berlin") == [
        "2026-12-24 to 2026-12-25 Europe/Berlin",
        "2026-12-31 18:00 to 2027-01-01 06:00 Europe/Berlin",
    ]


def test_a_zone_that_only_the_file_describes_is_written_in_utc() -> None:
    zone = (
        "BEGIN:VTIMEZONE TZID:Office BEGIN:STANDARD DTSTART:19700101T000000 TZOFFSETFROM:+0300"
        " TZOFFSETTO:+0300 TZNAME:O END:STANDARD END:VTIMEZONE"
    )
    event = "DTSTART;TZID=Office:20261224T180000 DURATION:PT1H"
    assert blackouts(event, before=zone) == ["2026-12-24 15:00 to 2026-12-24 16:00"]


def test_a_recurring_event_keeps_its_local_times_and_leaves_out_what_is_excluded() -> None:
    assert blackouts(
        f"{BERLIN}20270320T220000 DTEND;TZID=Europe/Berlin:20270321T060000"
        " RRULE:FREQ=WEEKLY;COUNT=4 EXDATE;TZID=Europe/Berlin:20270403T220000"
        " RDATE;TZID=Europe/Berlin:20270501T100000"
        " RDATE;VALUE=PERIOD:20270601T000000Z/PT2H,20270602T000000Z/20270602T010000Z"
    ) == [
        "2027-03-20 22:00 to 2027-03-21 06:00 Europe/Berlin",
        "2027-03-27 22:00 to 2027-03-28 06:00 Europe/Berlin",  # the clocks change in this night
        "2027-04-10 22:00 to 2027-04-11 06:00 Europe/Berlin",
        "2027-05-01 10:00 to 2027-05-01 18:00 Europe/Berlin",
        "2027-06-01 02:00 to 2027-06-01 04:00 Europe/Berlin",
        "2027-06-02 02:00 to 2027-06-02 03:00 Europe/Berlin",
    ]


def test_an_occurrence_loses_the_hour_that_the_clocks_skip() -> None:
    rule = "RRULE:FREQ=WEEKLY;COUNT=2"
    assert blackouts(f"{BERLIN}20270321T023000 DURATION:PT45M {rule}") == [
        "2027-03-21 02:30 to 2027-03-21 03:15 Europe/Berlin",
        "2027-03-28 03:00 to 2027-03-28 03:15 Europe/Berlin",
    ]
    assert len(blackouts(f"{BERLIN}20270321T021500 DURATION:PT30M {rule}")) == 1


@pytest.mark.parametrize(
    ("start", "until", "last"),
    [
        ("DTSTART:20261201T100000Z", "20261203T100000Z", "2026-12-03 10:00 to 2026-12-03 11:00"),
        ("DTSTART:20261201T100000Z", "20261203T095959Z", "2026-12-02 10:00 to 2026-12-02 11:00"),
        ("DTSTART:20261201T100000Z", "20261203", "2026-12-03 10:00 to 2026-12-03 11:00"),
        (
            f"{BERLIN}20261201T003000",
            "20261202T233000Z",
            "2026-12-03 00:30 to 2026-12-03 01:30 Europe/Berlin",
        ),
    ],
)
def test_until_is_the_last_occurrence(start: str, until: str, last: str) -> None:
    assert blackouts(f"{start} DURATION:PT1H RRULE:FREQ=DAILY;UNTIL={until}")[-1] == last


def test_single_occurrences_are_moved_or_cancelled() -> None:
    assert blackouts(
        "UID:f DTSTART;VALUE=DATE:20261201 RRULE:FREQ=WEEKLY;COUNT=4",
        "UID:f RECURRENCE-ID;VALUE=DATE:20261208 DTSTART;VALUE=DATE:20261210",
        "UID:f RECURRENCE-ID;VALUE=DATE:20261215 DTSTART;VALUE=DATE:20261215 STATUS:CANCELLED",
        "DTSTART;VALUE=DATE:20270101 STATUS:CANCELLED",
    ) == ["2026-12-01", "2026-12-10", "2026-12-22"]


def test_only_what_is_not_over_and_begins_within_the_look_ahead_counts() -> None:
    assert blackouts(
        "DTSTART:20261117T100000Z DTEND:20261117T120000Z",  # over now
        "DTSTART;VALUE=DATE:20261110 DTEND;VALUE=DATE:20261118",  # has begun
        "DTSTART;VALUE=DATE:20200704 RRULE:FREQ=YEARLY",
        "DTSTART;VALUE=DATE:20280101",  # in more than 400 days
    ) == ["2026-11-10 to 2026-11-17", "2027-07-04"]
    assert blackouts() == []


def test_times_that_overlap_or_are_adjacent_become_one() -> None:
    assert blackouts(
        "DTSTART;VALUE=DATE:20261224",
        "DTSTART;VALUE=DATE:20261225",
        "DTSTART:20261225T180000Z DTEND:20261226T090000Z",
        "DTSTART:20261225T190000Z DTEND:20261225T200000Z",
        "DTSTART:20261226T090100Z DTEND:20261226T100000Z",
    ) == ["2026-12-24 00:00 to 2026-12-26 09:00", "2026-12-26 09:01 to 2026-12-26 10:00"]


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ("DTSTART:20261224T180000Z DTEND:20261224T170000Z", "it ends before it begins"),
        ("DTSTART:20261224T180000Z", "it ends when it begins; give it a DTEND or a DURATION"),
        ("DTEND:20261224T180000Z", "it has no start (DTSTART)"),
        ("DTSTART;TZID=Mars/Base:20261224T180000 DURATION:PT1H", "unknown time zone 'Mars/Base'"),
        ("DTSTART:20261224T180000 DURATION:PT1H", "its times have no time zone; "),
        ("DTSTART:P1D DURATION:PT1H", "'1 day, 0:00:00' is neither a day nor a time of a day"),
        ("DTSTART:soon DURATION:PT1H", "DTSTART is not valid: "),
        ("DTSTART;VALUE=DATE:20261224 DTEND:20261224T180000Z", "one of DTSTART and DTEND is a day"),
        ("DTSTART;VALUE=DATE:20261224 DURATION:PT12H", "it begins on a day without a time"),
        ("DTSTART;VALUE=DATE:20261224 DTSTART;VALUE=DATE:20261225", "DTSTART occurs twice"),
        ("DTSTART;VALUE=DATE:99991224", "a year is from 1970 to 8999"),
        ("DTSTART;VALUE=DATE:20261224 RRULE:FREQ=OFTEN", "RRULE is not valid: "),
        ("DTSTART;VALUE=DATE:20261224 RRULE:FREQ=MINUTELY", "it repeats every minute or second"),
        (
            "DTSTART;VALUE=DATE:20261224 RRULE:FREQ=DAILY;INTERVAL=0",
            "its RRULE needs a FREQ, and an INTERVAL of at least 1",
        ),
        ("DTSTART;VALUE=DATE:20261224 EXDATE:never", "EXDATE is not valid: "),
        (
            "DTSTART:20261201T000000Z DURATION:PT1H RDATE;VALUE=PERIOD:20261203T000000Z/-PT1H",
            "it ends before it begins",
        ),
    ],
)
def test_a_wrong_event_is_named(event: str, problem: str) -> None:
    right = "DTSTART;VALUE=DATE:20270101"
    with pytest.raises(CalendarError) as caught:
        blackouts(right, f"SUMMARY:Code_freeze {event}")
    assert str(caught.value).startswith(f"event 'Code freeze': {problem}")
    assert "\n" not in str(caught.value)
    with pytest.raises(CalendarError, match=r"^event 'event-1': "):
        blackouts(right, event)


def test_a_change_of_all_following_occurrences_is_refused() -> None:
    with pytest.raises(CalendarError, match=r"^event 'f': .*all following"):
        blackouts(
            "UID:f DTSTART;VALUE=DATE:20261201 RRULE:FREQ=WEEKLY",
            "UID:f RECURRENCE-ID;VALUE=DATE;RANGE=THISANDFUTURE:20261208"
            " DTSTART;VALUE=DATE:20261210",
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "BEGIN:VEVENT\nEND:VEVENT\n",
        "\0\1\2",
        calendar("DTSTART:20261224T180000Z")[:-20],
    ],
)
def test_what_is_not_a_calendar_is_refused(text: str) -> None:
    with pytest.raises(CalendarError, match="not an iCalendar file"):
        read_blackouts(text, NOW)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("DTSTART;TZID=Europe:20261224T180000", "it names a time zone that does not exist"),
        ("DTSTART;VALUE=DATE,DATE:20261224", "it is not an iCalendar file"),
    ],
)
def test_what_the_parser_cannot_read_is_refused(lines: str, problem: str) -> None:
    with pytest.raises(CalendarError, match=problem):
        blackouts(lines)


def test_an_unknown_zone_of_the_calendar_is_refused() -> None:
    with pytest.raises(CalendarError, match=r"unknown time zone 'Mars/Base' \(X-WR-TIMEZONE\)"):
        blackouts(before="X-WR-TIMEZONE:Mars/Base")
