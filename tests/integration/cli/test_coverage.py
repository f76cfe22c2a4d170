"""Machines that do not poll, and callers that are no machine, as commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service
from helpers.polls import metrics

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, host: h1}, {name: web_1, host: h1}, {name: web_2, host: h2}]
  - name: db
    kind: standalone
    machines: [{name: db-0, host: h2}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """web_0 listens, web_1 is silent and never approves, web_2 and db-0 have never polled."""
    with Service(FLEET, sockets=True) as made:
        made.document("web_1")
        event = made.schedule("Reboot", "web_1")
        made.document("web_1")
        event.until_started().until_over()
        made.clock.advance("2h")
        made.document("web_0")
        yield made


def run(service: Service, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def printed(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 0, result.output
    return result.output


def read(service: Service, *words: object) -> Any:
    return json.loads(run(service, *words, "--json").stdout)


@pytest.mark.parametrize(
    ("coverage", "expected"),
    [
        ("listening", ["web_0"]),
        ("silent", ["web_1"]),
        ("never-polled", ["db-0", "web_2"]),
        ("Never-Approves", ["web_1"]),
    ],
)
def test_machines_are_listed_by_coverage(
    service: Service, coverage: str, expected: list[str]
) -> None:
    machines = read(service, "machine", "list", "--coverage", coverage)
    assert [machine["name"] for machine in machines] == expected


def test_an_unknown_coverage_is_refused(service: Service) -> None:
    result = run(service, "machine", "list", "--coverage", "deaf")
    assert result.exit_code == 1
    assert "'deaf'" in result.stderr
    assert "listening, silent" in result.stderr


def test_a_machine_shows_that_it_does_not_poll_and_does_not_answer(service: Service) -> None:
    text = printed(service, "machine", "show", "web_1")
    assert "does not poll" in text
    assert re.search("none; 1 .* without any approval", text)
    machine = read(service, "machine", "show", "web_1")
    assert (machine["coverage"], machine["ignored_events"]) == ("silent", 1)


def test_groups_and_status_count_machines_by_coverage(service: Service) -> None:
    assert read(service, "group", "show", "web")["coverage"] == {
        "listening": 1,
        "silent": 1,
        "never_polled": 1,
        "never_approves": 1,
    }
    assert "LISTENING" in printed(service, "group", "list")
    counts = "1 listening, 1 silent .*, {} never polled, 1 never approve"
    assert re.search(counts.format(2), run(service, "status").stdout)
    assert re.search(counts.format(1), printed(service, "group", "show", "web"))


def test_callers_that_are_no_machine_are_listed() -> None:
    """Everybody on loopback is one of the machines, until the machine is gone."""
    fleet = "groups: [{name: web, kind: scale-set, machines: [{name: web_0, spot: true}]}]"
    with Service(fleet, sockets=True) as service:
        assert "every caller" in printed(service, "caller", "list")
        assert service.get("web_0").status == 200
        service["web_0"].evict().until_over()
        for _ in range(3):
            assert service.get("web_0").status == 404
        [caller] = read(service, "caller", "list")
        assert caller["requests"] == 3
        assert (caller["first"], caller["machine"]) == (caller["last"], "web_0")
        assert "web_0 (gone)" in printed(service, "caller", "list")
        assert "unknown callers: 1" in run(service, "status").stdout
        found = metrics(service.control_url)
        assert found["forewarn_unknown_callers"] == 1
        assert found["forewarn_unknown_caller_requests_total"] == 3


def test_explain_names_machines_that_will_not_be_warned_and_the_command_to_approve(
    service: Service,
) -> None:
    event = service.schedule("Reboot", "web_2")
    text = printed(service, "event", "explain", event.id)
    assert re.search("not warned, .* ever polled: web_2\n", text)
    assert re.search("other machines .* 'web' .* approve", text)
    assert f"forewarn event approve {event.id}\n" in text
    silent = service.schedule("Reboot", "web_1")
    text = printed(service, "event", "explain", silent.id)
    assert re.search(r"not warned, .* any more: web_1 \(last 2027-01-15 08:", text)
    unheard = service.schedule("Reboot", "db-0")
    text = printed(service, "event", "explain", unheard.id)
    assert re.search("nobody in .* 'db' .* starts at", text)
    assert re.search("by an operator, .* no machine .* 'db'", text)
    explanation = read(service, "event", "explain", unheard.id)
    assert (explanation["not_listening"], explanation["unheard"]) == ({"db-0": None}, True)
    assert explanation["advice"] == [{"kind": "approve", "event": unheard.id, "moved": []}]
    for planned in (event, silent, unheard):
        service.cancel(planned)
    result = run(service, "host", "maintain", "h2", "--type", "Reboot")
    assert re.search("2 of 2 machines .*: db-0, web_2", result.stderr)


def test_explain_gives_no_start_that_has_passed() -> None:
    with Service(FLEET, sockets=True) as service:
        event = service.schedule("Reboot", "db-0")
        assert run(service, "halt", "place", "--group", "db").exit_code == 0
        service.clock.advance("16m")
        text = printed(service, "event", "explain", event.id)
    assert "starts as soon" in text
    assert "starts at" not in text
