"""The dates of calendars in a fleet file: added to its text, with everything else left in place."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from forewarn.core.time import DAY, Time
from forewarn.service.fleet import read
from forewarn.service.fleet.calendar_dates import with_dates
from forewarn.support import guard
from forewarn.support.instants import from_datetime, to_datetime

NOW = from_datetime(to_datetime(0).replace(year=2026, month=11, day=17))
FLEET = """# Fêtes 🎄
maintenance:
  - name: freezes
    blackouts:
      - '2026-11-30'
      - calendar: fêtes.ics  # of the whole company
      - &team {calendar: "team.ics",
          }
      - calendar:
          fêtes.ics
groups:
  - {name: web, kind: standalone, machines: [{name: web}], policy: {blackouts: [*team]}}
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(guard, "wall_us", lambda: NOW)
    for name, day in (("fêtes", "20261224"), ("team", "20270301"), ("past", "20200101")):
        event = f"BEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:{day}\nEND:VEVENT"
        text = f"BEGIN:VCALENDAR\n{event}\nEND:VCALENDAR\n"
        (tmp_path / f"{name}.ics").write_text(text, encoding="utf-8")
    return tmp_path


def load(directory: Path, text: str) -> read.Fleet:
    file = directory / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    return read.load(file)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_events_of_a_calendar_are_blackouts_of_the_fleet(directory: Path, mark: str) -> None:
    fleet = load(directory, mark + FLEET)
    assert fleet.configurations is not None
    dates = [blackout.text for blackout in fleet.configurations[0].blackouts]
    assert dates == ["2026-11-30", "2026-12-24", "2027-03-01", "2026-12-24"]
    assert [b.text for b in fleet.groups["web"].policy.blackouts] == ["2027-03-01"]


def test_a_fleet_in_json_can_refer_to_calendars_too(directory: Path) -> None:
    fleet = load(
        directory,
        '{"groups": [],\n"maintenance": [{"name": "a", "blackouts": [{"calendar": "team.ics"}]}]}',
    )
    assert fleet.configurations is not None
    assert [b.text for b in fleet.configurations[0].blackouts] == ["2027-03-01"]


def test_inserting_dates_keeps_lines_and_comments(directory: Path) -> None:
    lines = with_dates(FLEET, directory, lambda: NOW).splitlines()
    assert len(lines) == len(FLEET.splitlines())
    comment = FLEET.splitlines()[5].partition("#")[2]
    assert comment
    assert lines[5].endswith(f"#{comment}")
    assert lines[10:] == FLEET.splitlines()[10:]


def test_every_calendar_that_cannot_be_read_is_reported_with_its_line(directory: Path) -> None:
    (directory / "wrong.ics").write_text("BEGIN:VEVENT\nEND:VEVENT\n")
    text = FLEET.replace("fêtes.ics  #", "no.ics  #").replace("team.ics", "wrong.ics")
    with pytest.raises(read.FleetError) as raised:
        load(directory, text)
    first, second = str(raised.value).splitlines()
    file = directory / "fleet.yaml"
    missing = os.strerror(errno.ENOENT)
    assert first == f"{file}:6: maintenance[0].blackouts[1].calendar: no.ics: {missing}"
    assert second.startswith(f"{file}:7: maintenance[0].blackouts[2].calendar: wrong.ics: ")


@pytest.mark.parametrize(
    ("name", "problem"), [("a\\0b", "null"), (".", "Is a directory"), ("a\\nb", "a\\nb: No such")]
)
def test_a_name_that_no_file_can_have_is_reported(directory: Path, name: str, problem: str) -> None:
    with pytest.raises(read.FleetError) as raised:
        load(directory, FLEET.replace('"team.ics"', f'"{name}"'))
    assert problem in str(raised.value)


def test_a_calendar_without_events_ahead_is_noted(directory: Path) -> None:
    notes: list[str] = []
    text = FLEET.replace("fêtes.ics  #", "past.ics  #")
    with_dates(text, directory, lambda: NOW, notes.append)
    (note,) = notes
    assert note.startswith("past.ics")
    assert "400 d" in note


def test_dates_are_those_ahead_of_now(directory: Path) -> None:
    def later() -> Time:
        return NOW + 60 * DAY

    assert '"fêtes.ics", "dates": []' in with_dates(FLEET, directory, later)


@pytest.mark.parametrize(
    "text",
    [
        "a: [calendar",  # not YAML
        "? [blackouts, {calendar: team.ics}]\n: calendar\n",
        "groups: [{name: web, labels: {calendar: team.ics}}]",
        "maintenance: [{name: a, blackouts: [{calendar: team.ics, colour: red}]}]",
        "maintenance: [{name: a, blackouts: [{calendar: team.ics, dates: ['2027-01-01']}]}]",
    ],
)
def test_a_fleet_without_calendars_is_returned_unchanged(directory: Path, text: str) -> None:
    assert with_dates(text, directory, lambda: NOW) == text


def test_a_calendar_without_its_dates_is_refused_where_no_file_is_read() -> None:
    with pytest.raises(read.FleetError, match=r"dates .* missing") as raised:
        read.parse(FLEET)
    assert [error.line for error in (raised.value, *raised.value.others)] == [6, 12]


def test_a_calendar_and_its_dates_have_to_be_valid_and_not_too_many() -> None:
    def problem(entry: str) -> str:
        with pytest.raises(read.FleetError) as raised:
            read.parse(f"groups: []\nmaintenance: [{{name: a, blackouts: [{entry}]}}]")
        return str(raised.value)

    assert "maintenance[0].blackouts[0].dates[1]: 'x'" in problem(
        "{calendar: a.ics, dates: ['2027-01-01', x]}"
    )
    many = ", ".join(f"'{2000 + n}-01-01'" for n in range(101))
    assert "at most 100" in problem(f"{{calendar: a.ics, dates: [{many}]}}")
