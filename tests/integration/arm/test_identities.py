"""Managed identities: a machine gets a token of its own, which is good for its group alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from forewarn.core import Refused
from forewarn.core.access import Role
from forewarn.service.access.access_tokens import ACCESS_LIFE, LEEWAY
from forewarn.support import guard
from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response
from helpers.arm import COMPUTE, HOST, anonymous, code
from helpers.token_api import token

FLEET = """
groups:
  - {name: web, kind: availability-set, machines: [{name: web-0}, {name: web-1}]}
  - {name: sql, kind: standalone, machines: [{name: sql-0}]}
"""
ARM = "https://management.azure.com/"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(FLEET, arm=True, record=tmp_path / "trace.jsonl") as service:
        token(service, "ops", Role.ADMIN)
        yield service


def ask_for_token(service: Service, machine: str, resource: str = ARM) -> Response:
    path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={quote(resource)}"
    return service.request(machine, "GET", path, {"Metadata": "true"})


def token_of(service: Service, machine: str, resource: str = ARM) -> str:
    answer = ask_for_token(service, machine, resource)
    assert answer.status == 200, answer
    return str(answer.json()["access_token"])


def call(service: Service, text: str, path: str, method: str = "GET") -> Response:
    headers = {"Host": HOST, "Authorization": f"Bearer {text}"}
    return anonymous(service, method, f"{path}?api-version=2024-07-01", headers)


def names(service: Service, text: str) -> list[str]:
    answer = call(service, text, f"{COMPUTE}/virtualMachines")
    assert answer.status == 200, answer
    return sorted(machine["name"] for machine in answer.json()["value"])


def test_a_machine_sees_and_restarts_the_machines_of_its_group(service: Service) -> None:
    service.get("web-0")
    web, sql = token_of(service, "web-0"), token_of(service, "sql-0")
    assert (names(service, web), names(service, sql)) == (["web-0", "web-1"], ["sql-0"])
    restart = f"{COMPUTE}/virtualMachines/web-1/restart"
    assert call(service, sql, restart, "POST").status == 404
    assert call(service, web, restart, "POST").status == 202
    evict = f"{COMPUTE}/virtualMachines/web-1/simulateEviction"
    assert code(call(service, web, evict, "POST")) == (403, "AuthorizationFailed")
    [event] = service.document("web-0")["Events"]
    assert event["Resources"] == ["web-1"]


def test_an_answer_has_the_form_that_sdks_read(service: Service) -> None:
    answer = ask_for_token(service, "web-0")
    body = answer.json()
    assert (body["token_type"], body["resource"]) == ("Bearer", ARM)
    assert int(body["expires_on"]) - int(body["not_before"]) == ACCESS_LIFE + LEEWAY
    assert body["expires_in"] == str(ACCESS_LIFE)
    assert answer.headers["cache-control"] == "no-store"
    jwt = pytest.importorskip("jwt")
    [tenant] = call(service, body["access_token"], "/tenants").json()["value"]
    claims = jwt.decode(body["access_token"], options={"verify_signature": False})
    assert claims["tid"] == tenant["tenantId"]


def test_a_token_expires(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    jwt = pytest.importorskip("jwt")
    now = guard.wall_us()
    monkeypatch.setattr(guard, "wall_us", lambda: now - (ACCESS_LIFE + LEEWAY + 1) * 1_000_000)
    text = token_of(service, "web-0")
    assert jwt.decode(text, options={"verify_signature": False})["machine"] == "web-0"
    refused = call(service, text, f"{COMPUTE}/virtualMachines")
    assert code(refused) == (401, "ExpiredAuthenticationToken")


def test_a_token_for_another_resource_is_not_accepted_here(service: Service) -> None:
    vault = token_of(service, "web-0", "https://vault.azure.net")
    assert call(service, vault, f"{COMPUTE}/virtualMachines").status == 401
    here = token_of(service, "web-0", f"https://{HOST}")
    assert names(service, here) == ["web-0", "web-1"]


@pytest.mark.parametrize(
    "fleet",
    [
        "groups: [{name: web, kind: availability-set, machines: [{name: web-1}]}]",
        "groups: [{name: other, kind: availability-set, machines: [{name: web-0}]}]",
        "groups: [{name: web, kind: availability-set, machines: [{name: web-0, vm_id:"
        " 7d1f3f0e-0000-4000-8000-000000000001}]}]",
    ],
    ids=["removed", "in another group", "another one of its name"],
)
def test_a_token_ends_with_its_machine(service: Service, fleet: str) -> None:
    text = token_of(service, "web-0")
    applied = service._session.node.fleet_apply.text(fleet, by="ops")
    assert not isinstance(service._session.run(applied), Refused)
    assert call(service, text, f"{COMPUTE}/virtualMachines").status == 401


def test_a_machine_that_was_deleted_has_no_token(service: Service) -> None:
    text = token_of(service, "web-0")
    service["web-0"].delete()
    service.clock.advance("1h")
    assert call(service, text, f"{COMPUTE}/virtualMachines").status == 401


def test_a_token_of_a_machine_counts_also_while_no_tokens_are_needed() -> None:
    with Service(FLEET, arm=True) as service:
        assert names(service, token_of(service, "sql-0")) == ["sql-0"]
        vault = token_of(service, "sql-0", "https://vault.azure.net")
        assert call(service, vault, f"{COMPUTE}/virtualMachines").status == 401
        text = token_of(service, "web-0")
        service["web-0"].delete()
        service.clock.advance("1h")
        assert call(service, text, f"{COMPUTE}/virtualMachines").status == 401


def test_a_token_of_another_service_is_not_accepted(service: Service) -> None:
    with Service(FLEET, arm=True) as other:
        text = token_of(other, "web-0")
    assert call(service, text, f"{COMPUTE}/virtualMachines").status == 401


def test_no_recording_contains_a_token(service: Service, tmp_path: Path) -> None:
    text = token_of(service, "web-0")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    [answer] = [json.loads(line["answer"]) for line in lines if "identity" in str(line)]
    assert set(answer["access_token"]) == {"x"}
    assert text not in (tmp_path / "trace.jsonl").read_text()


def test_without_the_setting_a_machine_has_no_identity() -> None:
    with Service(FLEET) as service:
        answer = ask_for_token(service, "web-0")
        assert (answer.status, answer.json()["error_description"]) == (400, "Identity not found")
