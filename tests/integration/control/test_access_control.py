"""Who may ask: with no token everybody on this machine, with one only those who have one, and each
what its role allows."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from litestar.handlers import HTTPRouteHandler

from forewarn.control.http.access import authorization, token_attempts
from forewarn.control.http.operation import operation_of
from forewarn.control.operations.machines import LIST_DRIFT
from forewarn.control.operations.verdict import FORGET_VERDICT
from forewarn.control.routes import backup, history
from forewarn.core.access import Role
from forewarn.service.access.tokens import CreatedToken
from forewarn.support import guard
from forewarn.testing import Service
from helpers.token_api import FLEET, Api, api_with_token, token
from helpers.waiting import LIMIT

ROOT = Path(__file__).parents[3]
SECRET = re.compile(r"fw_[0-9a-f]{8}_[A-Za-z0-9]{43}")

V, T, OP, A = Role.VIEWER, Role.TENANT, Role.OPERATOR, Role.ADMIN

# Every call there is: what it needs, and whether whoever is limited is let in.
ROLES: dict[str, tuple[Role | None, bool]] = {
    "GET /": (None, False),
    "GET /ui": (None, False),
    "GET /ui/login": (None, False),
    "GET /ui/login/done": (None, False),
    "GET /ui/{path:path}": (None, False),
    "GET /docs": (None, False),
    "GET /schema/openapi.json": (None, False),
    "GET /healthz": (None, False),
    "GET /readyz": (None, False),
    "GET /leaderz": (None, False),
    "GET /metrics": (V, False),
    "GET /v1/status": (V, True),
    "GET /v1/clock": (V, True),
    "POST /v1/clock/advance": (OP, False),
    "POST /v1/clock/play": (OP, False),
    "POST /v1/clock/resume": (OP, False),
    "POST /v1/clock/pause": (OP, False),
    "POST /v1/clock/accept": (A, False),
    "GET /v1/machines": (V, True),
    "GET /v1/machines/{name:str}": (V, True),
    "DELETE /v1/machines/{name:str}": (OP, False),
    "PUT /v1/machines/{name:str}": (OP, False),
    "PATCH /v1/machines/{name:str}": (OP, False),
    "POST /v1/machines/{name:str}/restart": (T, True),
    "POST /v1/machines/{name:str}/redeploy": (T, True),
    "POST /v1/machines/{name:str}/restore": (OP, True),
    "POST /v1/machines/{name:str}/moved": (OP, False),
    "POST /v1/machines/{name:str}/evict": (OP, False),
    "POST /v1/machines/{name:str}/delete": (OP, True),
    "POST /v1/machines/{name:str}/fail": (OP, False),
    "POST /v1/batch/restart": (T, True),
    "POST /v1/batch/redeploy": (T, True),
    "POST /v1/batch/evict": (OP, False),
    "POST /v1/batch/delete": (OP, True),
    "GET /v1/callers": (V, False),
    "GET /v1/drift": (V, False),
    "GET /v1/control-nodes": (V, False),
    "DELETE /v1/control-nodes/{name:str}": (OP, False),
    "GET /v1/groups": (V, True),
    "GET /v1/groups/{name:str}": (V, True),
    "PUT /v1/groups/{name:str}": (OP, False),
    "DELETE /v1/groups/{name:str}": (OP, False),
    "POST /v1/groups/{name:str}/disable": (OP, True),
    "POST /v1/groups/{name:str}/evict": (OP, False),
    "POST /v1/groups/{name:str}/scale-in": (OP, True),
    "PATCH /v1/groups/{name:str}/policy": (OP, True),
    "GET /v1/groups/{name:str}/windows": (V, True),
    "GET /v1/maintenance": (V, False),
    "PUT /v1/maintenance/{name:str}": (OP, False),
    "DELETE /v1/maintenance/{name:str}": (OP, False),
    "GET /v1/hosts": (V, True),
    "GET /v1/overview": (V, True),
    "GET /v1/tonight": (V, True),
    "GET /v1/search": (V, True),
    "GET /v1/hosts/{name:str}": (V, True),
    "PUT /v1/hosts/{name:str}": (OP, False),
    "DELETE /v1/hosts/{name:str}": (OP, False),
    "GET /v1/hosts/{name:str}/explain": (V, True),
    "POST /v1/hosts/{name:str}/maintain": (OP, False),
    "POST /v1/hosts/{name:str}/degrade": (OP, False),
    "POST /v1/hosts/{name:str}/fail": (OP, False),
    "POST /v1/hosts/{name:str}/repair": (OP, False),
    "POST /v1/hosts/{name:str}/cordon": (OP, False),
    "POST /v1/hosts/{name:str}/uncordon": (OP, False),
    "POST /v1/hosts/{name:str}/without-node": (OP, False),
    "POST /v1/hosts/{name:str}/revoke": (OP, False),
    "POST /v1/enrollments": (A, False),
    "POST /v1/hosts/{name:str}/drain": (OP, False),
    "POST /v1/hosts/{name:str}/return": (OP, False),
    "GET /v1/events": (V, True),
    "POST /v1/events": (OP, True),
    "GET /v1/events/{id:str}": (V, True),
    "GET /v1/events/{id:str}/explain": (V, True),
    "POST /v1/events/{id:str}/approve": (T, True),
    "POST /v1/events/{id:str}/ready": (T, True),
    "POST /v1/events/{id:str}/postpone": (T, True),
    "POST /v1/events/{id:str}/cancel": (T, True),
    "POST /v1/events/cancel": (T, True),
    "POST /v1/events/{id:str}/retry": (OP, True),
    "POST /v1/events/{id:str}/finish": (OP, True),
    "POST /v1/events/{id:str}/abandon": (OP, True),
    "GET /v1/rollouts": (V, True),
    "POST /v1/rollouts": (OP, False),
    "POST /v1/rollouts/plan": (V, False),
    "GET /v1/rollouts/{id:str}": (V, True),
    "GET /v1/rollouts/{id:str}/explain": (V, True),
    "POST /v1/rollouts/{id:str}/pause": (OP, False),
    "POST /v1/rollouts/{id:str}/resume": (OP, False),
    "POST /v1/rollouts/{id:str}/skip": (OP, False),
    "POST /v1/rollouts/{id:str}/abort": (OP, False),
    "GET /v1/halts": (V, True),
    "POST /v1/halts": (OP, False),
    "GET /v1/halts/{id:str}": (V, False),
    "POST /v1/halts/{id:str}/release": (OP, False),
    "GET /v1/rollouts/{id:str}/steps": (V, True),
    "GET /v1/fleet": (V, False),
    "PUT /v1/fleet": (OP, False),
    "GET /v1/fleet/progress": (V, False),
    "GET /v1/history": (V, True),
    "GET /v1/history/export": (V, True),
    "GET /v1/feed": (V, True),
    "GET /v1/changes": (V, True),
    "GET /v1/notify": (V, True),
    "GET /v1/calendar.ics": (V, True),
    "POST /v1/notify/{name:str}/test": (OP, False),
    "GET /v1/verdict": (V, True),
    "POST /v1/verdict/forget": (OP, False),
    "GET /v1/backup": (A, False),
    "GET /v1/session": (None, False),
    "POST /v1/session": (V, True),
    "DELETE /v1/session": (V, True),
    "GET /v1/tokens": (A, False),
    "POST /v1/tokens": (A, False),
    "GET /v1/tokens/{id:str}": (A, False),
    "POST /v1/tokens/{id:str}/revoke": (A, False),
    "GET /v1/faults": (A, False),
    "POST /v1/faults": (A, False),
    "DELETE /v1/faults": (A, False),
    "GET /v1/faults/{id:str}": (A, False),
    "DELETE /v1/faults/{id:str}": (A, False),
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def routes(service: Service) -> dict[str, HTTPRouteHandler]:
    """Every call there is."""
    assert service.control_url  # there from the first time that somebody asks
    app: Any = service._session.node.control_app.handlers
    return {
        f"{method} {route.path}": handler
        for route in app.routes
        for handler in route.route_handlers
        if isinstance(handler, HTTPRouteHandler)
        for method in handler.http_methods
        if method != "OPTIONS"
    }


def test_every_operation_has_a_required_role(service: Service) -> None:
    """A new call fails this until somebody has thought about it."""
    found = {
        name: (authorization.role_for(operation_of(handler)), operation_of(handler).respects_limits)
        for name, handler in routes(service).items()
    }
    assert found == ROLES


def test_the_table_of_roles_in_the_documentation_is_right(service: Service) -> None:
    """It has every command that calls the API; `run` starts a service of its own."""
    text = (ROOT / "docs/operate/access-control.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", text, re.MULTILINE)
    documented = {
        command: [column.strip() != "–" for column in columns.split("|")]
        for commands, columns in rows
        if columns.count("|") == 4
        for command in re.findall("`([^`]+)`", commands)
    }
    declared: dict[str, list[bool]] = {}
    for handler in routes(service).values():
        operation = operation_of(handler)
        needed = authorization.role_for(operation)
        if needed is None or not operation.commands:
            continue
        limited = operation.respects_limits
        allowed = [
            needed is V,
            T.includes(needed) and limited,
            OP.includes(needed) and limited,
            OP.includes(needed),
            True,
        ]
        by_option = operation in (FORGET_VERDICT, LIST_DRIFT)
        for command in (operation.command,) if by_option else operation.commands:
            others = declared.get(command, allowed)
            declared[command] = [one and other for one, other in zip(allowed, others, strict=True)]
            declared[command][1] &= not command.startswith("host ")  # of which it is shown none
    del declared["run"]
    assert documented == declared


def test_without_tokens_local_programs_are_let_in(service: Service) -> None:
    api = Api(service.control_url)
    assert api.get("/v1/status").status == 200
    assert api.post("/v1/machines/web_0/restart").status == 200
    assert api.get("/v1/tokens").json() == []


def test_requests_without_a_token_are_refused_once_there_is_one(service: Service) -> None:
    api = Api(service.control_url)
    made = api.post("/v1/tokens", {"name": "alice", "role": "admin"})
    assert made.status == 201
    assert SECRET.fullmatch(made.json()["token"])
    assert made.headers["cache-control"] == "no-store"
    for target in ("/v1/status", "/metrics", "/v1/tokens", "/v1/feed"):
        refused = api.get(target)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "FOREWARN_TOKEN" in refused.detail
    for target in ("/healthz", "/readyz", "/leaderz", "/schema/openapi.json", "/docs"):
        assert api.get(target).status == 200
    api.token = made.json()["token"]
    assert api.get("/v1/status").status == 200


def test_a_secret_is_in_one_answer_only(service: Service) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    made = admin.post("/v1/tokens", {"name": "bot", "role": "viewer", "expires_in": 3600}).json()
    everywhere = [
        admin.get(f"/v1/{path}").body
        for path in ("tokens", f"tokens/{made['id']}", "tokens/bot", "history", "changes?after=0")
    ]
    for body in everywhere:
        assert made["token"][12:].encode() not in body
        assert b"digest" not in body
    shown = admin.get("/v1/tokens/bot").json()
    assert (shown["role"], shown["state"], shown["created_by"]) == ("viewer", "valid", "alice")
    assert shown["expires_at"] == "2027-01-15T09:00:00Z"


@pytest.mark.parametrize("role", list(Role))
def test_each_role_gets_as_far_as_it_should_with_every_call(service: Service, role: Role) -> None:
    api_with_token(service, "root", Role.ADMIN)
    groups = ("web",) if role is Role.TENANT else ()
    api = api_with_token(service, "somebody", role, groups=groups)
    before = service._session.node.store.seq
    for name, (needed, _) in ROLES.items():
        method, path = name.split(" ")
        target = re.sub(r"\{\w+:str\}", "nobody", path)
        if needed is not None and not role.includes(needed):
            refused = api.call(method, target)
            assert refused.status == 403, name
            assert f"needs the role {needed.value}; token 'somebody'" in refused.detail
    assert service._session.node.store.seq == before


def test_a_revoked_or_expired_token_is_refused(service: Service) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    bot = api_with_token(service, "bot", Role.VIEWER)
    short = api_with_token(service, "short", Role.VIEWER, expires_in=60 * 1_000_000)
    assert bot.get("/v1/status").status == short.get("/v1/status").status == 200
    assert admin.post("/v1/tokens/bot/revoke", {}).json()["state"] == "revoked"
    service.clock.advance("1m")
    for api in (bot, short):
        refused = api.get("/v1/status")
        assert refused.status == 401
        assert "revoked" in refused.detail
    states = {one["name"]: one["state"] for one in admin.get("/v1/tokens").json()}
    assert states == {"alice": "valid", "bot": "revoked", "short": "expired"}


def test_the_last_admins_token_is_revoked_only_with_force(service: Service) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    refused = admin.post("/v1/tokens/alice/revoke", {})
    assert (refused.status, "state file" in refused.detail) == (409, True)
    assert admin.post("/v1/tokens/alice/revoke", {"force": True}).status == 200
    assert admin.get("/v1/status").status == 401
    assert Api(service.control_url).get("/v1/status").status == 401  # it stays closed


def test_a_token_shows_when_it_was_last_used(service: Service) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    bot = api_with_token(service, "bot", Role.VIEWER)
    assert admin.get("/v1/tokens/bot").json()["last_used"] is None
    service.clock.advance("5m")
    bot.get("/v1/status")
    assert admin.get("/v1/tokens/bot").json()["last_used"] == "2027-01-15T08:05:00Z"


def wrong(made: CreatedToken) -> list[str]:
    text = made.secret.text
    return [
        "",
        "Bearer",
        "Bearer ",
        f"bearer {text[:-1]}",
        f"Bearer {text}x",
        f"Bearer {text} {text}",
        f"Basic {text}",
        text,
        f"Bearer fw_00000000_{text[12:]}",
        f"Bearer {text[:12]}{'A' * 43}",
        "Bearer " + "x" * 4_000,
        "Bearer \xe9\xff",
    ]


def test_a_token_in_any_other_form_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_attempts, "MAX_FAILED", 1_000)
    made = token(service, "alice", Role.ADMIN)
    api = Api(service.control_url)
    for response in wrong(made):
        refused = api.get("/v1/status", Authorization=response)
        assert refused.status == 401, response
        assert made.secret.text[12:] not in refused.body.decode()
    assert api.get("/v1/status", Authorization=f"bEARER  {made.secret.text}").status == 200


def test_a_request_with_two_tokens_is_refused(service: Service) -> None:
    made = token(service, "alice", Role.ADMIN)
    connection = Api(service.control_url).connection()
    connection.putrequest("GET", "/v1/status")
    connection.putheader("Authorization", f"Bearer {made.secret.text}")
    connection.putheader("Authorization", f"Bearer {made.secret.text}")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


def test_repeated_wrong_tokens_are_throttled_and_logged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = token(service, "alice", Role.ADMIN)
    other = token(service, "bot", Role.VIEWER)
    guesser, owner = Api(service.control_url), Api(service.control_url, made.secret.text)
    assert owner.get("/v1/status").status == 200  # from the same address as the guesser
    guesser.token = f"fw_{made.token.id}_{'x' * 43}"
    with structlog.testing.capture_logs() as logs:
        for _ in range(token_attempts.MAX_FAILED):
            assert guesser.get("/v1/status").status == 401
        waits = guesser.get("/v1/status")
    assert waits.status == 429
    assert 0 < int(waits.headers["retry-after"]) <= token_attempts.FAILED_WINDOW + 1
    reported = [
        entry for entry in logs if "authentication failed" in entry["event"] and "attempts" in entry
    ]
    assert [entry["attempts"] for entry in reported] == [1, token_attempts.MAX_FAILED]
    assert all("xxx" not in str(entry) for entry in logs)
    # Whoever has a right one is let in: a neighbour's guesses are not held against it.
    assert Api(service.control_url, other.secret.text).get("/v1/status").status == 200
    assert owner.get("/v1/status").status == 200
    assert guesser.get("/v1/status").status == 429
    late = guard.monotonic() + token_attempts.FAILED_WINDOW
    monkeypatch.setattr(guard, "monotonic", lambda: late)
    assert guesser.get("/v1/status").status == 401


@pytest.mark.parametrize(
    "page", ["/", "/docs", "/schema/openapi.json", "/healthz", "/readyz", "/leaderz"]
)
def test_open_operations_are_open_with_a_wrong_token_too(service: Service, page: str) -> None:
    token(service, "alice", Role.ADMIN)
    stale = Api(service.control_url, f"fw_00000000_{'x' * 43}")
    for _ in range(token_attempts.MAX_FAILED + 1):
        assert stale.get(page).status in (200, 302)
    assert stale.get("/v1/status").status == 401  # and nothing was counted against it


def test_the_count_of_failures_is_bounded_and_takes_networks_for_one() -> None:
    kept = token_attempts.TokenAttempts()
    for n in range(token_attempts.MAX_FAILED):
        kept.failed(f"2001:db8::{n:x}", "")
    assert kept.wait("2001:db8::ffff") > 0
    assert kept.wait("2001:db8:0:1::1") == 0
    for n in range(token_attempts.MAX_FAILING + 10):
        kept.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "")
    assert len(kept._failing) == token_attempts.MAX_FAILING


def test_a_stream_ends_when_its_token_is_revoked(service: Service) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    bot = api_with_token(service, "bot", Role.VIEWER)
    connection = bot.connection()
    connection.request("GET", "/v1/feed", headers={"Authorization": f"Bearer {bot.token}"})
    stream = connection.getresponse()
    assert stream.status == 200
    begun, lines = threading.Event(), list[bytes]()

    def follow(stream: http.client.HTTPResponse) -> None:
        for line in stream:
            lines.append(line)
            begun.set()

    reader = threading.Thread(target=follow, args=(stream,), daemon=True)
    reader.start()
    assert begun.wait(LIMIT)
    admin.post("/v1/machines/web_0/restart")
    admin.post("/v1/tokens/bot/revoke", {})
    reader.join(LIMIT)
    assert not reader.is_alive()
    connection.close()


def test_changes_of_the_virtual_clock_are_logged_with_who_made_them(service: Service) -> None:
    api = api_with_token(service, "alice", Role.ADMIN)
    with structlog.testing.capture_logs() as logs:
        assert api.post("/v1/clock/advance", {"by": 60}).status == 200
        assert api.post("/v1/clock/play", {"by": 1}).status == 200
        assert api.post("/v1/clock/resume", {"speed": 2}).status == 200
        assert api.post("/v1/clock/pause").status == 200
    changes = [entry for entry in logs if "virtual clock" in entry["event"]]
    assert [(entry["event"].split()[-1], entry["by"]) for entry in changes] == [
        *(("advanced", "alice"), ("advanced", "alice")),
        *(("resumed", "alice"), ("paused", "alice")),
    ]
    assert changes[0]["seconds"] == 60


@pytest.mark.parametrize("target", ["/v1/history/export", "/v1/backup"])
def test_a_response_is_aborted_when_its_token_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Cut, not ended: nobody takes it for all there was."""
    monkeypatch.setattr(history, "EXPORT_CHUNK", 64)
    monkeypatch.setattr(backup, "BACKUP_CHUNK", 4_096)
    ended = threading.Event()
    real = authorization.require_valid_token

    def revoked_meanwhile(ask: Any) -> None:
        if not ended.is_set():  # the first piece is still sent
            ended.set()
            used = store.registry.tokens[ask.caller.token]
            over = msgspec.structs.replace(used, revoked_at=used.created_at)
            store.registry.tokens[used.id] = over
            return
        real(ask)

    with (
        structlog.testing.capture_logs() as logs,
        Service(FLEET, sockets=True, state=tmp_path / "state.db") as there,
    ):
        store = there._session.node.store
        api_with_token(there, "alice", Role.ADMIN)
        bot = api_with_token(there, "bot", Role.ADMIN)
        for _ in range(20):
            there.schedule("Freeze", "web_0")
        monkeypatch.setattr(authorization, "require_valid_token", revoked_meanwhile)
        connection = bot.connection()
        connection.request("GET", target, headers={"Authorization": f"Bearer {bot.token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
        connection.close()
        assert bot.get("/v1/status").status == 401
    (reason,) = (entry["why"] for entry in logs if "aborted" in entry["event"])
    assert "'bot'" in reason
