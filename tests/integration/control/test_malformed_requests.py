"""What the control API makes of requests that cannot be right: a clear refusal, and never a fault
that nobody hears of."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog

from forewarn.control.views import core
from forewarn.testing import SAMPLE, Service
from helpers.waiting import LIMIT

FLEET = """
hosts: [h1, h2]
groups:
  - {name: web, kind: availability-set, machines: [{name: web-0, host: h1}, {name: web-1}]}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    state = tmp_path_factory.mktemp("doorway") / "state.db"
    with Service(FLEET, sockets=True, state=state) as service:
        yield service


def asked(service: Service, method: str, target: str, body: bytes = b"") -> tuple[int, str, Any]:
    parts = urlsplit(service.control_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], json.loads(answer.read())
    finally:
        connection.close()


def refused(service: Service, method: str, target: str, body: bytes = b"") -> tuple[int, str]:
    status, kind, problem = asked(service, method, target, body)
    assert kind == "application/problem+json"
    assert problem["status"] == status
    return status, problem["detail"]


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "reason"),
    [
        ("GET", "/v1/history?since=99999999999999999999d", b"", 400, "since: '999999"),
        ("GET", "/v1/history/export?since=99999999999999999999d", b"", 400, "since: '999999"),
        ("GET", "/v1/history?until=99999999999999999999", b"", 400, "until: '999999"),
        ("GET", "/v1/history?event=%F4%8F%BF%BF", b"", 404, "no event '\U0010ffff'"),
        ("GET", "/v1/history?event=%ED%9F%BF", b"", 404, "no event '\ud7ff'"),
        ("GET", "/v1/events/%F4%8F%BF%BF", b"", 404, "no event '\U0010ffff'"),
        ("POST", "/v1/events", DEEP, 400, "nested too deeply"),
        ("POST", "/v1/rollouts", DEEP, 400, "nested too deeply"),
        ("PATCH", "/v1/groups/web/policy", DEEP, 400, "nested too deeply"),
        ("POST", "/v1/clock/advance", b'{"by":' * 50_000, 400, ""),
        # A parser that would be slow with smaller numbers says that this one is out of range.
        ("POST", "/v1/halts", b'{"reason": "a", "more": 1e400}', 400, "unknown field"),
        ("PUT", "/v1/fleet", b"groups: !!timestamp foo", 400, "groups: 'foo'"),
        ("PUT", "/v1/hosts/h3", b"!!timestamp foo: 1", 400, "valid timestamp"),
        ("GET", "/v1/machines/%00", b"", 400, "U+0000"),
        ("GET", "/v1/machines/%ED%A0%80", b"", 404, "no machine '\ufffd"),
        ("GET", "/v1/history?machine=a%00", b"", 400, "'machine' contains"),
        ("GET", "/v1/history?machine=%ED%A0%80", b"", 404, "no machine"),
        ("POST", "/v1/halts", rb'{"reason": "a\\\u0000"}', 400, "the body contains"),
        ("POST", "/v1/halts", rb'{"reason": "a\ud800 is half"}', 400, "surrogate"),
        ("PUT", "/v1/hosts/h3", rb'{"domain": "\0"}', 400, "U+0000"),
        ("PUT", "/v1/hosts/h3", rb'{"domain": "\ud800"}', 400, "Unicode"),
    ],
)
def test_a_malformed_value_is_refused_and_no_failure(
    service: Service, method: str, target: str, body: bytes, status: int, reason: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        found, detail = refused(service, method, target, body)
    faults = [entry for entry in logs if entry["log_level"] in ("warning", "error")]
    assert (found, faults) == (status, [])
    assert reason in detail


def test_a_failure_of_the_service_is_logged_and_its_answer_has_no_details(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_name: str) -> None:
        raise KeyError("the secret of the house")

    monkeypatch.setattr(service._session.node.hosts, "host", broken)
    with structlog.testing.capture_logs() as logs:
        status, detail = refused(service, "GET", "/v1/hosts/h1")
    assert status == 500
    assert detail.startswith("the service failed")
    assert "secret" not in detail
    (entry,) = (entry for entry in logs if "exc_info" in entry)
    assert (entry["log_level"], entry["path"]) == ("error", "/v1/hosts/h1")
    assert isinstance(entry["exc_info"], KeyError)


@pytest.mark.parametrize(
    ("method", "target", "name", "hint"),
    [
        ("PUT", "/v1/fleet?paln=true", "paln", "'plan'"),
        ("DELETE", "/v1/groups/web?forse=true", "forse", "'force'"),
        ("GET", "/v1/machines?labels=a", "labels", "'label'"),
        ("GET", "/v1/events?zzz=1", "zzz", "group, machine,"),
        ("POST", "/v1/machines/web-0/restart?x=", "x", "takes none"),
        ("GET", "/v1/history?machines=web-0", "machines", "'machine'"),
        ("GET", "/v1/status?" + "x" * 5_000, "x" * 40, "takes none"),
    ],
)
def test_an_unknown_parameter_is_refused_before_anything_happens(
    service: Service, method: str, target: str, name: str, hint: str
) -> None:
    before = service._session.node.store.seq
    body = b"groups: []" if method == "PUT" else b""
    status, detail = refused(service, method, target, body)
    assert status == 400
    assert detail.startswith(f"no parameter '{name}'")
    assert hint in detail
    assert service._session.node.store.seq == before


def test_every_call_knows_its_own_parameters(service: Service) -> None:
    assert asked(service, "GET", "/v1/events?group=web&past=true&limit=3")[0] == 200
    assert asked(service, "GET", "/v1/machines?group=web&label=!x")[0] == 200
    assert asked(service, "PUT", "/v1/fleet?plan=true&force=true", b"groups: []")[0] == 200


@pytest.mark.parametrize(
    ("target", "maker"),
    [("/v1/machines", "machines"), ("/v1/hosts", "hosts"), ("/v1/groups", "group")],
)
def test_a_list_that_may_be_long_is_made_while_guests_are_answered(
    service: Service, monkeypatch: pytest.MonkeyPatch, target: str, maker: str
) -> None:
    """The thread that makes it is held until a guest, who needs the loop, has had an answer."""
    make = getattr(core, maker)
    answered = threading.Event()
    held: list[bool] = []

    def slow(*arguments: Any) -> Any:
        held.append(answered.wait(LIMIT))
        return make(*arguments)

    monkeypatch.setattr(core, maker, slow)
    with ThreadPoolExecutor(1) as other:
        listing = other.submit(asked, service, "GET", target)
        assert service.get("web-0").status == 200
        answered.set()
        assert listing.result()[0] == 200
    assert held == [True]


def test_the_beginning_of_an_id_finds_what_is_over_without_reading_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Service(SAMPLE, sockets=True) as service:
        made = service.schedule("Reboot", "web_0")
        asked(service, "POST", f"/v1/events/{made.id}/cancel")

        def never(*_: object, **__: object) -> None:
            raise AssertionError("all that is over was read")

        monkeypatch.setattr(service._session.node.store, "past_events", never)
        status, _, found = asked(service, "GET", f"/v1/events/{made.id[:8].lower()}")
        assert (status, found["id"]) == (200, made.id)
        assert asked(service, "GET", "/v1/events/ZZZZ")[0] == 404
        assert asked(service, "GET", "/v1/events/%25")[0] == 404
