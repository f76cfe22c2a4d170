"""The search finds names by a part of them and ids by their beginning, within the caller's
limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.control_api import ask
from helpers.token_api import api_with_token, token

FLEET = """
hosts: [rack-1, web-rack]
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, host: rack-1}, {name: web_1}, {name: web_2}, {name: web_10}]
  - {name: sql, kind: standalone, machines: [{name: Oldweb, host: web-rack}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def found(service: Service, text: str) -> list[tuple[str, str]]:
    answer = ask(service, "GET", f"/v1/search?text={text}")
    assert answer.status == 200, answer.body
    return [(hit["kind"], hit["name"]) for hit in answer.body["hits"]]


def test_names_are_found_by_a_part_of_them_the_best_first(service: Service) -> None:
    assert found(service, "WEB") == [
        ("group", "web"),
        ("host", "web-rack"),
        *(("machine", name) for name in ("web_0", "web_1", "web_2", "web_10", "Oldweb")),
    ]
    assert found(service, "rack-1") == [("host", "rack-1")]
    assert found(service, "nothing") == found(service, "") == found(service, "%20") == []


def test_ids_are_found_by_their_beginning_also_of_what_is_over(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    body = {"type": "Freeze", "groups": ["sql"]}
    rollout = ask(service, "POST", "/v1/rollouts", body).body["id"]
    assert found(service, event.id[:6].lower()) == [("event", event.id)]
    assert found(service, event.id[:3]) == []
    assert found(service, rollout[:8]) == [("rollout", rollout)]
    event.cancel()
    assert found(service, event.id[:8]) == [("event", event.id)]


def test_a_limited_caller_finds_only_what_is_theirs(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    token(service, "admin", Role.ADMIN)
    limited = api_with_token(service, "b", Role.VIEWER, groups=("sql",))
    hits = limited.get("/v1/search?text=web").json()["hits"]
    assert [hit["name"] for hit in hits] == ["web-rack", "Oldweb"]
    assert limited.get(f"/v1/search?text={event.id}").json()["hits"] == []
