"""A calendar file limits when maintenance starts: `--blackout-calendar`, and in a fleet file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.support import extras
from forewarn.testing import Service

FLEET = """
hosts: [h1]
groups: [{name: web, kind: scale-set, machines: [{name: web_0, host: h1}]}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("web_0")
        yield made


def run(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def calendar(path: Path, *lines: str) -> Path:
    event = ["BEGIN:VEVENT", "UID:1", "SUMMARY:Freeze", *lines, "END:VEVENT"]
    path.write_text("\n".join(["BEGIN:VCALENDAR", *event, "END:VCALENDAR", ""]))
    return path


def test_maintenance_does_not_start_during_the_events_of_a_calendar(
    service: Service, tmp_path: Path
) -> None:
    today = service.clock.now.replace(hour=0, minute=0, second=0, microsecond=0)
    file = calendar(
        tmp_path / "freeze.ics",
        f"DTSTART;VALUE=DATE:{today:%Y%m%d}",
        "DURATION:P3D",
        "RRULE:FREQ=WEEKLY;COUNT=2",
    )
    days = [
        f"{today + timedelta(first):%Y-%m-%d} to {today + timedelta(first + 2):%Y-%m-%d}"
        for first in (0, 7)
    ]
    result = run(service, "maintenance", "set", "freezes", "--blackout-calendar", file)
    assert result.exit_code == 0, result.stderr
    assert f"blackouts  {'; '.join(days)}\n" in result.stdout
    result = run(service, "host", "maintain", "h1", "--type", "Freeze")
    assert result.exit_code == 0, result.stderr
    assert f"{today + timedelta(3):%Y-%m-%d} 00:00:00Z" in result.output

    listed = "2030-01-01"
    result = run(
        service, "group", "policy", "web", "--blackout", listed, "--blackout-calendar", file
    )
    assert f"{'; '.join([listed, *days])}\n" in result.stdout


def test_a_calendar_that_cannot_be_used_changes_nothing(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = calendar(tmp_path / "wrong.ics", "DTSTART:20270105T100000")
    often = calendar(
        tmp_path / "often.ics", "DTSTART:20250101T100000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY"
    )
    latin = tmp_path / "latin.ics"
    latin.write_bytes(b"\xe4")
    large = tmp_path / "large.ics"
    with large.open("wb") as opened:
        opened.truncate(10_000_001)
    before = service._session.node.store.seq
    for file, problem in {
        wrong: "event 'Freeze': .* time zone",
        often: "400 blackouts .* at most 100",
        latin: r"UTF-8 .* \(byte 1\)",
        large: "10,000,001 bytes; .* 10,000,000",
        tmp_path: "directory",
        tmp_path / "none.ics": "No such file",
    }.items():
        result = run(service, "maintenance", "set", "other", "--blackout-calendar", file)
        assert result.exit_code == 1
        assert re.match(f"forewarn: {re.escape(str(file))}: .*{problem}", result.stderr)
        assert len(result.stderr.splitlines()) == 1
    monkeypatch.setitem(extras.MODULES, "server", ("no_such_module",))
    result = run(service, "group", "policy", "web", "--blackout-calendar", often)
    assert "--blackout-calendar" in result.stderr
    assert "pip install 'forewarn[server]'" in result.stderr
    assert service._session.node.store.seq == before


def test_a_calendar_without_events_ahead_is_noted(service: Service, tmp_path: Path) -> None:
    file = calendar(tmp_path / "past.ics", "DTSTART;VALUE=DATE:20200101")
    result = run(service, "maintenance", "set", "past", "--blackout-calendar", file)
    assert result.exit_code == 0
    assert f"{file} has no" in result.stderr


def test_a_fleet_file_takes_blackouts_from_calendars_beside_it(tmp_path: Path) -> None:
    with Service(FLEET, sockets=True) as service:
        today = service.clock.now.replace(hour=0, minute=0, second=0, microsecond=0)
        calendar(tmp_path / "freeze.ics", f"DTSTART;VALUE=DATE:{today:%Y%m%d}", "DURATION:P3D")
        calendar(tmp_path / "past.ics", "DTSTART;VALUE=DATE:20200101")
        file = tmp_path / "fleet.yaml"
        entries = "maintenance: [{name: a, blackouts: [{calendar: freeze.ics}, 2030-01-01 UTC]}]"
        file.write_text(f"{FLEET}{entries}\n")
        assert run(service, "apply", file).exit_code == 0
        dates = f"{today:%Y-%m-%d} to {today + timedelta(2):%Y-%m-%d}"
        url = f"{service.control_url}/v1/fleet"
        fleet = httpx.get(url).json()
        assert fleet["maintenance"][0]["blackouts"] == [dates, "2030-01-01 UTC"]
        assert not any(httpx.put(url, json=fleet).json()["maintenance"].values())
        assert run(service, "apply", file).stdout == "nothing to change\n"

        file.write_text(f"{FLEET}{entries.replace('freeze', 'past')}\n")
        result = run(service, "apply", file, "--plan")
        assert "past.ics has no" in result.stderr
        file.write_text(f"{FLEET}{entries.replace('freeze', 'none')}\n")
        result = run(service, "apply", file)
        assert result.exit_code == 1
        where = "maintenance[0].blackouts[0].calendar"
        assert result.stderr.startswith(f"forewarn: {file}:4: {where}: none.ics: ")


def test_without_the_packages_that_read_calendars_the_service_asks_for_the_dates(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.MODULES, "server", ("no_such_module",))
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{FLEET}maintenance: [{{name: a, blackouts: [{{calendar: a.ics}}]}}]\n")
    result = run(service, "apply", file)
    assert result.exit_code == 1
    assert f"{file}:4: maintenance[0].blackouts[0].calendar: the dates" in result.stderr
    assert "pip install 'forewarn[server]'" in result.stderr
