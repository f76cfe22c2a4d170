"""A state with everything in it, moved by `forewarn move`: both engines answer every question of
the control API in the same way, then and after they have gone on."""

from __future__ import annotations

import itertools
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.access import Role
from forewarn.store.port import Member
from forewarn.store.postgres import lease
from forewarn.store.postgres.engine import PostgresStore
from forewarn.testing import Service
from helpers import postgres
from helpers.paths import ROOT
from helpers.token_api import Answer, Api, api_with_token
from helpers.waiting import until

FLEET = """
hosts: [h1, h2, {name: h3, labels: {rack: "3"}}]
maintenance:
  - {name: year-end, blackouts: ["2027-12-20 to 2028-01-06 Europe/Berlin"]}
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {terminate_notice: 5m, may_postpone: "2h, twice"}
    machines:
      - {name: web_0, host: h1, update_domain: 0, spot: true}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h3, update_domain: 2}
  - name: sql
    kind: availability-set
    policy: {windows: ["mon-sun 00:00-23:00 Europe/Berlin"]}
    machines:
      - {name: sql-0, host: h1, update_domain: 0}
      - {name: sql-1, host: h2, update_domain: 1}
  - {name: alone, kind: standalone, machines: [{name: alone}]}
  - {name: past, kind: standalone, machines: [{name: past}]}
"""
PATHS = json.loads((ROOT / "docs/reference/openapi.json").read_text())["paths"]
ELSEWHERE = {  # not about the state, or about when and where it is served
    *("/v1/backup", "/v1/callers", "/v1/control-nodes", "/v1/faults", "/v1/feed", "/v1/status"),
    *("/v1/clock", "/v1/verdict", "/healthz", "/leaderz", "/metrics", "/readyz"),
}
PARTS = {  # what is asked about each item of a list, by the field that names it
    "/v1/events": ("id", ("", "/explain")),
    "/v1/rollouts": ("id", ("", "/explain", "/steps")),
    "/v1/groups": ("name", ("", "/windows")),
    "/v1/hosts": ("name", ("", "/explain")),
    "/v1/machines": ("name", ("",)),
    "/v1/halts": ("id", ("",)),
    "/v1/tokens": ("id", ("",)),
}
KEY = {"Idempotency-Key": "k-1"}
REDEPLOY = {"type": "Redeploy", "machines": ["alone"]}


def ids(life: int) -> Callable[[], str]:
    numbers = itertools.count(life << 64)
    return lambda: str(uuid.UUID(int=next(numbers))).upper()


def fill(file: Path) -> tuple[str, Answer]:
    """Fill a state. Returns the token of an admin, and what a request with a key was answered."""
    with Service(FLEET, state=file, sockets=True, new_id=ids(1)) as service:
        api = api_with_token(service, "ann", Role.ADMIN)
        api_with_token(service, "bob", Role.VIEWER, groups=("web",))
        for machine in ("web_0", "sql-0", "past"):
            service.document(machine)
        event = done(api, "/v1/events", {"type": "Reboot", "machines": ["past"]})["id"]
        done(api, f"/v1/events/{event}/approve")
        service.clock.advance("1h")
        window = {"select": "tier=web", "windows": ["mon-sun 00:00-23:00 Europe/Berlin"]}
        assert api.call("PUT", "/v1/maintenance/days", window).status == 200
        everything = done(api, "/v1/halts", {"note": "stop all"})["id"]
        done(api, f"/v1/halts/{everything}/release", {"note": "go on"})
        done(api, "/v1/halts", {"groups": ["alone"], "note": "leave it"})
        done(api, "/v1/hosts/h3/cordon", {"note": "full"})
        postponed = done(api, "/v1/events", {"type": "Freeze", "machines": ["web_2"]})["id"]
        done(api, f"/v1/events/{postponed}/postpone", {"by": 600})
        keyed = api.call("POST", "/v1/events", REDEPLOY, KEY)
        assert keyed.status == 201
        done(api, "/v1/rollouts", {"type": "Reboot", "groups": ["web"]})
        paused = done(api, "/v1/rollouts", {"type": "Freeze", "groups": ["sql"]})["id"]
        done(api, f"/v1/rollouts/{paused}/pause", {"reason": "lunch"})
        return api.token, keyed


def done(api: Api, path: str, body: object = None) -> Any:
    answer = api.post(path, body)
    assert answer.status in (200, 201), (path, answer.body)
    return answer.json()


def everything(api: Api) -> dict[str, Any]:
    """Return the answers to every question about the state, by path."""
    paths = [
        path
        for path, operations in PATHS.items()
        if "get" in operations and "{" not in path and path not in ELSEWHERE
    ]
    for path, (field, parts) in PARTS.items():
        items = api.get(path).json()
        assert items, path
        paths += [f"{path}/{item[field]}{part}" for item in items for part in parts]
    answers = {}
    for path in (*paths, "/v1/events?past=true"):
        answer = api.get(path + ("?after=0" if path == "/v1/changes" else ""))
        assert answer.status == 200, (path, answer)
        # Each service has a port of its own for guests.
        answers[path] = re.sub(rb"(http://127[0-9.]+):[0-9]+", rb"\1", answer.body).decode()
    return answers


def test_both_engines_answer_the_same_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CLOCK_LIMIT", math.inf)  # its times are those of a virtual clock
    postgres.needed()
    file, url = tmp_path / "state.db", postgres.shared_server().new_state()
    token, keyed = fill(file)
    result = CliRunner().invoke(app, ["move", str(file), url, "--json"])
    assert result.exit_code == 0, result.output
    moved = json.loads(result.stdout)
    assert moved["changed"] == 0
    store = PostgresStore(url, Member(name="c1", machine="m1", address=""), lease=900.0)
    with (
        Service(store=store, sockets=True, new_id=ids(2)) as there,
        Service(state=moved["kept"], sockets=True, new_id=ids(2)) as here,
    ):
        until(lambda: there._session.node.health.deciding)
        apis = [Api(service.control_url, token) for service in (there, here)]
        answers = [everything(api) for api in apis]
        assert answers[0] == answers[1]
        assert rollouts(answers[0]) == ["paused", "running"]
        for service, api in zip((there, here), apis, strict=True):
            repeated = api.call("POST", "/v1/events", REDEPLOY, KEY)
            assert (repeated.status, repeated.body) == (keyed.status, keyed.body)
            service.clock.advance("6h")
        answers = [everything(api) for api in apis]
        assert answers[0] == answers[1]
        assert rollouts(answers[0]) == ["done", "paused"]


def rollouts(answers: Mapping[str, str]) -> list[str]:
    return sorted(rollout["state"] for rollout in json.loads(answers["/v1/rollouts"]))
