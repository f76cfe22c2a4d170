"""The verdict as one asks a running service for it, or a recording: commands and API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core.access import Role
from forewarn.node import settings
from forewarn.node.settings import Settings
from forewarn.testing import SAMPLE, Service
from forewarn.verdict.rules import RULES
from helpers.control_api import ask
from helpers.token_api import FLEET, api_with_token

ASK = "/metadata/scheduledevents?api-version=2020-07-01"


def live(service: Service) -> str:
    """A reboot that web_1 approves, and web_0 asks once without the header."""
    service.document("web_0")
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.request("web_0", "GET", ASK)
    service.approve("web_1", event.id)
    service.document("web_0")
    service.clock.advance("15m")
    service.document("web_0")
    return event.id


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as service:
        yield service


def run(*words: str, service: Service | None = None) -> Result:
    where = ["--url", service.control_url] if service else []
    return CliRunner().invoke(app, ["verdict", *words, *where])


def test_the_command_lists_what_was_wrong_and_ends_with_1(service: Service) -> None:
    id = live(service)
    result = run(service=service)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert re.findall(r"\d+", lines[0]) == ["1", "1", "2", "1"]
    assert lines[1].startswith("✗ missing-header: web_0 at ")
    assert lines[2].endswith("send Metadata: true")
    assert lines[3].startswith(f"· approved-for-others: web_1 about {id[:8]} at ")
    assert lines[6].startswith(f"Reboot {id[:8]} (Platform): visible ")
    assert re.search(
        "15 min .* web_1 after 0 s; started after 0 s; finished after 10 min$", lines[6]
    )
    assert lines[7].split() == ["MACHINE", "SEEN", "AS", "READY", "IN", "TIME", "POLLS"]
    assert lines[8].split("  ")[0] == "web_0"
    assert lines[11].split()[0] == "MACHINE"


def test_allowed_rules_are_not_wrong_and_notes_count_only_with_strict(
    service: Service,
) -> None:
    live(service)
    service.get("web_0", "2017-03-01")
    assert run("--allow", "missing-header", service=service).exit_code == 0
    assert run("--allow", "missing-header", "--strict", service=service).exit_code == 1
    refused = run("--allow", "mising-header", service=service)
    assert refused.exit_code == 2
    assert "'missing-header'" in refused.output


def test_a_verdict_can_be_narrowed_to_a_machine_and_an_event(service: Service) -> None:
    id = live(service)
    assert run("--machine", "web_1", service=service).exit_code == 0
    found = json.loads(run("--event", id[:8], "--json", service=service).stdout)
    assert [one["machine"] for one in found["courses"]] == ["web_0", "web_1"]
    assert found["courses"][0]["approved_by"] == "web_1"
    assert [one["rule"] for one in found["complaints"]] == ["approved-for-others"]
    refused = run("--machine", "web_9", service=service)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("forewarn: no machine 'web_9'")
    assert run("--event", "FFFFFFFF", service=service).exit_code == 1


def test_junit_is_written_beside_what_is_printed(service: Service, tmp_path: Path) -> None:
    live(service)
    file = tmp_path / "verdict.xml"
    assert run("--junit", str(file), service=service).exit_code == 1
    (suite,) = ElementTree.parse(file).getroot()
    assert suite.get("failures") == "1"
    nowhere = run("--junit", str(tmp_path / "no" / "where.xml"), service=service)
    assert nowhere.stderr.startswith("forewarn: ")
    assert "does not exist" in nowhere.stderr


def test_observations_can_be_discarded(service: Service) -> None:
    live(service)
    assert run("--forget", service=service).exit_code == 0
    found = run(service=service)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("verdict: nothing wrong")
    refused = run("--forget", "--machine", "web_0", service=service)
    assert refused.exit_code == 2


def test_rules_are_listed() -> None:
    listed = run("--rules").stdout
    assert all(f"{name} " in listed for name in RULES)
    assert set(json.loads(run("--rules", "--json").stdout)) == set(RULES)


def test_a_recording_is_judged_as_the_service_would_have_been(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(SAMPLE, record=path) as service:
        live(service)
        there = json.loads(run("--json", service=service).stdout)
    found = run(str(path), "--json")
    assert found.exit_code == 1
    here = json.loads(found.stdout)
    assert here["courses"] == there["courses"]
    assert here["complaints"] == there["complaints"]
    assert run(str(path), "--machine", "web_1").exit_code == 0
    for words in (["--machine", "web_9"], ["--event", "FFFF"]):
        refused = run(str(path), *words)
        assert refused.exit_code == 1
        assert words[1] in refused.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"", "no requests"), (b'{"kind":"exchange","t":1}\nno\nno\n', "2 lines")],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(text)
    refused = run(str(path))
    assert refused.exit_code == 1
    assert reason in refused.stderr


def test_a_service_that_does_not_observe_refuses_a_verdict() -> None:
    with Service(SAMPLE, sockets=True, front=True) as service:
        for method, path in (("GET", "/v1/verdict"), ("POST", "/v1/verdict/forget")):
            answer = ask(service, method, path)
            assert answer.status == 409
            assert "observe = true" in answer.body["detail"]


def test_a_service_observes_guests_if_its_settings_say_so() -> None:
    assert not settings.config(Settings()).observe
    assert settings.config(Settings(observe=True)).observe


def test_a_limited_token_sees_the_verdict_on_its_own_machines() -> None:
    with Service(FLEET) as service:
        api_with_token(service, "root", Role.ADMIN)
        api = api_with_token(service, "bot", Role.VIEWER, groups=("web",))
        for machine in ("web_0", "amber_0"):
            service.document(machine)
            service.schedule("Reboot", machine)
            service.request(machine, "GET", ASK)
        found: Any = api.get("/v1/verdict").json()
        for key in ("courses", "conducts", "complaints"):
            assert {one["machine"] for one in found[key]} == {"web_0"}, key
        assert api.get("/v1/verdict?machine=amber_0").status == 403
