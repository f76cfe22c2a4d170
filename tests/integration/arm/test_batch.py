"""Several requests in one, as Ansible's inventory sends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.arm.routes import batch
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import COMPUTE, HOST, Arm, code
from helpers.token_api import token

JUMPBOX = f"{COMPUTE}/virtualMachines/jumpbox"
VERSION = "api-version=2024-07-01"
FLEET = """
groups:
  - {name: jump, kind: standalone, machines: [{name: jumpbox, tags: {team: a b}}]}
  - {name: web, kind: scale-set, machines: [{name: web_0}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def get(url: str, name: str = "one") -> dict[str, Any]:
    return {"httpMethod": "GET", "url": url, "name": name}


def statuses(arm: Arm, *urls: str) -> list[int]:
    answer = arm.call("POST", "/batch", {"requests": [get(url) for url in urls]})
    return [response["httpStatusCode"] for response in answer.json()["responses"]]


def test_each_request_is_answered_as_if_it_were_sent_alone(arm: Arm) -> None:
    tagged = "$filter=tagName%20eq%20'team'%20and%20tagValue%20eq%20'a+b'"
    urls = {
        "machine": f"https://{HOST}{JUMPBOX}?{VERSION}",
        "list": f"{COMPUTE}/virtualMachines?{VERSION}",
        "tagged": f"{COMPUTE.partition('/providers')[0]}/resources?{VERSION}&{tagged}",
        "unknown": f"{JUMPBOX}-none?{VERSION}",
        "not offered": f"{COMPUTE}/disks?{VERSION}",
    }
    requests = [get(url, name) for name, url in urls.items()]
    answer = arm.call("POST", "/batch?api-version=2015-11-01", {"requests": requests}).json()
    assert [response["name"] for response in answer["responses"]] == list(urls)
    for response in answer["responses"]:
        alone = arm.call("GET", urls[response["name"]].replace(f"https://{HOST}", ""))
        assert response["httpStatusCode"] == alone.status
        assert response["content"] == alone.json()
    assert [item["name"] for item in answer["responses"][2]["content"]["value"]] == ["jumpbox"]


@pytest.mark.parametrize(
    "requests",
    [
        None,
        "all",
        [1],
        [{"url": JUMPBOX}],
        [{"httpMethod": "DELETE", "url": f"{JUMPBOX}?{VERSION}"}],
        [get("https://evil.example/subscriptions")],
        [get("https://[")],
        [get("subscriptions")],
        [{"httpMethod": "GET", "url": 1}],
        [get(f"/subscriptions?{VERSION}")] * 101,
    ],
)
def test_a_batch_that_does_more_than_read_is_refused(
    service: Service, arm: Arm, requests: Any
) -> None:
    assert code(arm.call("POST", "/batch", {"requests": requests})) == (400, "InvalidParameter")
    assert service.events == []


def test_a_batch_shows_a_caller_what_it_sees_and_no_more(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    web = Arm(service, token(service, "t", Role.TENANT, groups=("web",)).secret.text)
    windows = COMPUTE.replace("Compute", "Maintenance") + "/maintenanceConfigurations"
    scale_set = f"{COMPUTE}/virtualMachineScaleSets/web"
    urls = [f"{path}?{VERSION}" for path in (scale_set, JUMPBOX, windows)]
    assert statuses(web, *urls) == [200, 404, 403]


def test_the_answers_to_a_batch_are_limited_together(
    arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{JUMPBOX}?{VERSION}"
    size = len(arm.call("GET", url).body)
    monkeypatch.setattr(batch, "MAX_BYTES", 3 * size)
    assert statuses(arm, *[url] * 3) == [200] * 3
    answer = arm.call("POST", "/batch", {"requests": [get(url)] * 4})
    assert code(answer) == (400, "ResponsePayloadTooLarge")
