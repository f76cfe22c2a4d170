"""The manners of Azure Resource Manager, which clients rely on: api-versions, letter case, errors
and headers."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.arm import routing
from forewarn.testing import Service
from helpers.arm import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, Arm, anonymous, code, message

FLEET = "groups: [{name: web, kind: standalone, machines: [{name: web-0}]}]"
MACHINE = f"{COMPUTE}/virtualMachines/web-0"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture(scope="module")
def arm(service: Service) -> Arm:
    return Arm(service)


@given(
    version=st.dates(datetime.date(2012, 1, 1), datetime.date(2030, 12, 31)),
    suffix=st.sampled_from(["", "-preview", "-alpha", "-privatepreview", "-PREVIEW"]),
    name=st.sampled_from(["api-version", "API-Version", "Api-version"]),
)
def test_any_date_is_an_api_version(
    arm: Arm, version: datetime.date, suffix: str, name: str
) -> None:
    answer = arm.call("GET", f"{MACHINE}?{name}={version}{suffix}&api-version-of=nothing")
    assert answer.status == 200


@pytest.mark.parametrize(
    "version",
    ["latest", "2024-13-01", "2024-02-30", "2024-7-1", "20240701", "2024-07-01-", "٢٠٢٤-01-01"],
)
def test_other_words_are_not_api_versions(arm: Arm, version: str) -> None:
    answer = arm.call("GET", f"{MACHINE}?api-version={version}")
    assert code(answer) == (400, "InvalidApiVersionParameter")


@pytest.mark.parametrize("path", ["/subscriptions", MACHINE, "/tenants"])
def test_an_api_version_is_required_even_before_a_token(service: Service, path: str) -> None:
    answer = anonymous(service, "GET", path)
    assert code(answer) == (400, "MissingApiVersionParameter")


@given(
    letters=st.lists(st.booleans(), min_size=len(MACHINE), max_size=len(MACHINE)),
    slashes=st.sampled_from(["", "/"]),
)
def test_paths_are_the_same_in_any_letter_case(arm: Arm, letters: list[bool], slashes: str) -> None:
    path = "".join(
        letter.upper() if upper else letter.lower()
        for letter, upper in zip(MACHINE, letters, strict=True)
    )
    answer = arm.call("GET", slashes + path + slashes)
    assert (answer.status, answer.json()["id"]) == (200, MACHINE)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_any_name_gets_an_answer(arm: Arm, name: str) -> None:
    from urllib.parse import quote

    for path in (
        f"{COMPUTE}/virtualMachines/{quote(name, safe='')}",
        f"/subscriptions/{quote(name)}",
    ):
        answer = arm.call("GET", path)
        assert answer.status in (200, 404)
        if answer.status == 404:
            assert set(answer.json()["error"]) >= {"code", "message"}


def test_unknown_subscriptions_and_resource_groups_have_codes_of_their_own(arm: Arm) -> None:
    unknown = "/subscriptions/99999999-0000-0000-0000-000000000000"
    for path in (unknown, f"{unknown}/resourceGroups", f"{unknown}{MACHINE[51:]}"):
        assert code(arm.call("GET", path)) == (404, "SubscriptionNotFound")
    for path in (f"{SUBSCRIPTION}/resourceGroups/none", MACHINE.replace("forewarn", "none")):
        assert code(arm.call("GET", path)) == (404, "ResourceGroupNotFound")
    assert code(arm.call("GET", f"{SUBSCRIPTION}/providers/Microsoft.Nothing")) == (
        404,
        "InvalidResourceNamespace",
    )
    assert code(arm.call("GET", f"{COMPUTE}/disks")) == (404, "InvalidResourceType")


def test_a_method_that_is_not_offered_is_named(arm: Arm) -> None:
    answer = arm.call("PATCH", f"{MACHINE}/restart")
    assert code(answer) == (405, "MethodNotAllowed")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("PUT", f"{COMPUTE}/virtualMachines/new", "the fleet file"),
        ("PUT", f"{COMPUTE}/availabilitySets/new", "the fleet file"),
        ("DELETE", f"{COMPUTE}/availabilitySets/web", "the fleet file"),
        ("PUT", f"{COMPUTE}/hostGroups/hosts/hosts/h1", "the fleet file"),
        ("PATCH", f"{COMPUTE}/virtualMachineScaleSets/web/virtualMachines/0", "the fleet file"),
        ("PUT", f"{SUBSCRIPTION}/resourcegroups/other", "the fleet file"),
        ("DELETE", SUBSCRIPTION + "/resourceGroups/forewarn", "the fleet file"),
        ("POST", f"{MACHINE}/runCommand", "maintenance"),
        ("POST", f"{COMPUTE}/virtualMachineScaleSets/web/virtualMachines/0/start", "maintenance"),
        ("PUT", f"{COMPUTE}/disks/d", "no other resources"),
        ("PUT", f"{MACHINE}/extensions/e", "no other resources"),
        ("GET", f"{COMPUTE}/disks", "no other resources"),
        ("GET", f"{MACHINE}/extensions", "no other resources"),
        ("GET", f"{COMPUTE}/virtualMachineScaleSets/web/skus", "no other resources"),
        ("GET", "/v1.0/me", "no other resources"),
        ("PUT", f"{SUBSCRIPTION}/tagNames/team", "the fleet file"),
        ("PATCH", f"{MACHINE}/providers/Microsoft.Resources/tags/default", "the fleet file"),
        ("GET", SUBSCRIPTION + "/providers/Microsoft.Network/networkInterfaces", "no other"),
    ],
)
def test_what_is_not_offered_is_refused_with_the_reason(
    arm: Arm, method: str, path: str, reason: str
) -> None:
    answer = arm.call(method, path, {} if method == "PUT" else None)
    expected = (404, "InvalidResourceType") if method == "GET" else (409, "OperationNotAllowed")
    assert code(answer) == expected
    assert reason in message(answer)


@pytest.mark.parametrize(
    ("method", "action", "status"),
    [("PUT", "", 201), ("POST", "/validate", 202), ("POST", "/whatIf", 202)],
)
def test_a_deployment_fails_with_the_reason(
    arm: Arm, method: str, action: str, status: int
) -> None:
    path = f"{RESOURCE_GROUP}/providers/Microsoft.Resources/deployments/d{action}"
    answer = arm.call(method, path, {})
    assert answer.status == status
    operation = arm.operation(answer)
    assert (operation["status"], operation["error"]["code"]) == ("Failed", "OperationNotAllowed")
    assert operation["error"] == answer.json()["properties"]["error"]


def test_every_answer_has_its_ids(arm: Arm) -> None:
    answer = arm.call(
        "GET",
        MACHINE,
        x_ms_client_request_id="mine",
        x_ms_return_client_request_id="true",
        x_ms_correlation_request_id="ours",
    )
    assert answer.headers["x-ms-client-request-id"] == "mine"
    assert answer.headers["x-ms-correlation-request-id"] == "ours"
    other = arm.call("GET", MACHINE)
    assert "x-ms-client-request-id" not in other.headers
    assert parsedate_to_datetime(other.headers["date"]).tzinfo is datetime.UTC
    assert answer.headers["x-ms-request-id"] != other.headers["x-ms-request-id"]
    refused = arm.call("GET", f"{MACHINE}-none")
    assert refused.headers["x-ms-request-id"]
    assert refused.headers["content-type"] == "application/json; charset=utf-8"


def test_a_request_for_another_host_is_refused(service: Service) -> None:
    path = "/subscriptions?api-version=2022-12-01"
    answer = anonymous(service, "GET", path, {"Host": "evil.example:8171"})
    assert code(answer) == (421, "MisdirectedRequest")


@pytest.mark.parametrize("content", [b"{", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_object_changes_nothing(
    service: Service, arm: Arm, content: bytes
) -> None:
    answer = arm.call("POST", f"{COMPUTE}/virtualMachineScaleSets/web/restart", content=content)
    assert answer.status in (400, 404)
    assert service.events == []


def test_every_operation_is_declared_once() -> None:
    declared = [(route.method, route.template.lower()) for route in routing.ROUTES]
    assert len(set(declared)) == len(declared)


def test_only_logging_in_needs_no_token() -> None:
    public = {route.template for route in routing.ROUTES if route.role is None}
    tenants = {
        "/v2.0/.well-known/openid-configuration",
        "/.well-known/openid-configuration",
        "/discovery/v2.0/keys",
        "/oauth2/v2.0/token",
        "/oauth2/v2.0/authorize",
        "/oauth2/v2.0/devicecode",
        "/oauth2/token",
    }
    assert public == {
        *("/metadata/endpoints", "/common/discovery/instance", "/identity"),
        *(prefix + path for path in tenants for prefix in ("/{tenant}", "/adfs/{tenant}")),
    }
