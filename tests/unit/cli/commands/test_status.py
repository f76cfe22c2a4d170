"""`forewarn status`: one screen, and what is on it."""

from __future__ import annotations

import json

from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service


def status(service: Service, *options: str) -> Result:
    return CliRunner().invoke(app, ["status", *options, "--url", service.control_url])


def test_an_empty_service_has_nothing_planned() -> None:
    with Service() as service:
        shown = status(service)
        assert shown.exit_code == 0
        assert "0 machines in 0 groups, 0 hosts, 0 active events" in shown.output
        assert "clock: 2027-01-15 08:00:00Z, virtual, paused" in shown.output
        assert shown.output.endswith("Nothing is planned.\n")


def test_status_shows_started_next_and_held_events() -> None:
    with Service() as service:
        web = service.scale_set("web", 3, update_domains=3)
        first, second, third = (machine.schedule("Reboot") for machine in web)
        first.approve()
        second.approve()
        shown = status(service)
        assert shown.exit_code == 0
        started, rest = shown.output.split("Started\n")[1].split("Next\n")
        upcoming, waiting = rest.split("Waiting\n")
        assert f"Reboot {first.id[:8]} of web_0, since 2027-01-15 08:00:00Z (0 s)" in started
        not_before = "not before 2027-01-15 08:15:00Z (in 15 min)"
        assert f"Reboot {third.id[:8]} of web_2, {not_before}" in upcoming
        assert f"Reboot {second.id[:8]} of web_1: {second.explain()}" in waiting

        overview = json.loads(status(service, "--json").output)
        assert [event["id"] for event in overview["started"]] == [first.id]
        assert [event["id"] for event in overview["next"]] == [third.id]
        assert [item["event"]["id"] for item in overview["waiting"]] == [second.id]


def test_the_events_of_one_maintenance_are_one_line() -> None:
    with Service() as service:
        for name in ("dns", "sql", "web"):
            service.scale_set(name, 1, hosts=["rack-1"])
            service.document(f"{name}_0")
        events = sorted(service.host("rack-1").maintain("Reboot"), key=lambda e: e.group)
        upcoming = status(service).output.split("Next\n")[1].splitlines()
        assert [line.split(",")[:2] for line in upcoming] == [
            [f"  Reboot {events[0].id[:8]} of host rack-1", " with 2 other events"]
        ]
        for event in events[:-1]:
            event.approve()
        assert "Waiting" not in status(service).output


def test_warnings_make_status_fail() -> None:
    with Service() as service:
        service.scale_set("web", 1, hosts=["rack-1"])
        service.host("rack-1").degrade(note="fan 3")
        shown = status(service)
        assert shown.exit_code == 1
        problem = "host rack-1 is degraded: fan 3 (since 2027-01-15 08:00:00Z)"
        assert f"Needs attention\n  {problem}; see 'forewarn host" in shown.output


def test_a_thousand_events_fit_on_one_screen() -> None:
    with Service() as service:
        web = service.scale_set("web", 100)
        for machine in web:
            machine.schedule("Reboot")
        shown = status(service)
        assert "  and 95 more: " in shown.output
        assert len(shown.output.splitlines()) <= 24


def test_a_service_that_does_not_answer_is_an_error() -> None:
    done = CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:1"])
    assert done.exit_code == 1
    assert "http://127.0.0.1:1" in done.output
