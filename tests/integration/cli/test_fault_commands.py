"""Faults as an operator or developer adds, lists and clears them: the commands and the API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.node import Node
from forewarn.node.settings import load
from forewarn.service.faults.kinds import FaultKind
from forewarn.testing import Service
from helpers.token_api import Api


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 3)
        yield service


@pytest.fixture
def service(shared: Service) -> Iterator[Service]:
    yield shared
    shared.faults.clear()


@pytest.fixture
def api(service: Service) -> Api:
    return Api(service.control_url)


def run(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, ["fault", *words, "--url", service.control_url])


def result_of(service: Service, *words: str) -> Any:
    result = run(service, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_a_fault_is_added_listed_counted_and_cleared(service: Service) -> None:
    added = lines(run(service, "add", "gone", "--machine", "web_0", "--times", "5"))
    id = added[0][1]
    assert added[1:] == [
        ["kind", "gone"],
        ["for", "web_0"],
        ["when", "always"],
        ["state", "active"],
    ]
    for _ in range(3):
        assert service.get("web_0").status == 410
    head, row = run(service, "list").stdout.splitlines()
    assert head.split() == ["ID", "KIND", "TARGET", "WHEN", "STATE", "CONSUMED", "LAST"]
    assert "3 of 5 consumed" in row
    assert row.split()[:5] == [id, "gone", "web_0", "always", "active"]
    assert "3 of 5 consumed" in run(service, "clear", id).stdout
    assert service.get("web_0").status == 200
    assert "no faults" in run(service, "list").stdout
    assert "no faults" in run(service, "clear").stdout


def test_every_field_of_a_fault_is_an_option(service: Service) -> None:
    fault = result_of(
        service,
        *("add", "error", "--machine", "web_0", "--machine", "web_1", "--group", "web"),
        *("--method", "POST", "--times", "4", "--after", "2", "--from", "1m", "--for", "1h"),
        *("--probability", "0.5", "--seed", "9", "--status", "502", "--body", "out of\r\norder"),
        "--takes-effect",
    )
    expected = {
        "kind": "error",
        "state": "waiting",
        "machines": ["web_0", "web_1"],
        "groups": ["web"],
        "method": "POST",
        "times": 4,
        "skip": 2,
        "starts_at": "2027-01-15T08:01:00Z",
        "ends_at": "2027-01-15T09:01:00Z",
        "probability": 0.5,
        "seed": 9,
        "status": 502,
        "body": "out of\r\norder",
        "takes_effect": True,
        "added_by": "operator",
        "remaining": 4,
        "message": "0 of 4 consumed",
    }
    assert {key: fault[key] for key in expected} == expected
    row = run(service, "list").stdout.splitlines()[1]
    assert re.search(r"POST .*web_0, web_1, .*web", row)
    assert re.search(r"after 2, .* 0\.5 \(seed 9\), .* 2027-01-15 08:01:00Z", row)


def test_a_fault_may_keep_an_approval_from_taking_effect(service: Service) -> None:
    assert result_of(service, "add", "reset")["takes_effect"] is True
    assert result_of(service, "add", "reset", "--no-takes-effect")["takes_effect"] is False


def test_fault_kinds_are_listed_without_a_service() -> None:
    result = CliRunner().invoke(app, ["fault", "kinds"])
    rows = lines(result)
    assert {row[0] for row in rows[1:]} == {kind.value for kind in FaultKind}
    assert ["slow", "GET,", "POST"] in [row[:3] for row in rows]
    found = json.loads(CliRunner().invoke(app, ["fault", "kinds", "--json"]).stdout)
    assert found["gone"].startswith("410")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "gome"), "'gone'"),
        (("add", "gone", "--machine", "web_7"), "machine 'web_7'"),
        (("add", "gone", "--seconds", "3"), "takes no seconds"),
        (("clear", "f0"), "no fault 'f0'"),
    ],
)
def test_a_mistake_is_refused_in_one_line(
    service: Service, words: tuple[str, ...], reason: str
) -> None:
    result = run(service, *words)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(service.faults) == 0


def test_the_api_returns_the_location_of_a_fault_and_counts_it(service: Service, api: Api) -> None:
    made = api.post("/v1/faults", {"kind": "throttled", "machines": ["web_1"], "times": 1})
    assert made.status == 201
    where = made.headers["location"]
    assert where == f"/v1/faults/{made.json()['id']}"
    assert service.get("web_1").status == 429
    found = api.get(where).json()
    assert (found["message"], found["state"], found["remaining"]) == (
        "1 of 1 consumed",
        "used up",
        0,
    )
    assert (found["matched"], found["by_machine"]) == (1, {"web_1": 1})
    assert found["last_at"] == "2027-01-15T08:00:00Z"
    assert api.get("/v1/faults").json() == [found]
    assert api.call("DELETE", where).json() == found
    assert api.call("DELETE", where).status == 404
    assert api.get(where).status == 404


def test_the_api_clears_all_faults(service: Service, api: Api) -> None:
    for kind in ("gone", "sudden"):
        api.post("/v1/faults", {"kind": kind})
    cleared = api.call("DELETE", "/v1/faults")
    assert [fault["kind"] for fault in cleared.json()] == ["gone", "sudden"]
    assert len(service.faults) == 0


def test_a_service_without_the_setting_refuses_faults(tmp_path: Path) -> None:
    settings = tmp_path / "forewarn.toml"
    settings.write_text('metadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\nstate = "s.db"\n')
    config = load(settings, {})[1]

    async def refused() -> None:
        async with Node(config) as node:
            api = Api(node.control_url)
            answer = await asyncio.to_thread(api.post, "/v1/faults", {"kind": "gone"})
            assert answer.status == 409
            assert "not allowed" in answer.detail
            assert (await asyncio.to_thread(api.get, "/v1/faults")).json() == []

    asyncio.run(refused())


def test_a_service_for_tests_allows_faults(tmp_path: Path) -> None:
    settings = tmp_path / "forewarn.toml"
    settings.write_text("faults = true\n")
    assert load(settings, {})[1].faults is True
