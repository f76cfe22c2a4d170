"""Every call that changes something is in the history, with who did it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.service.access.authority import create_authority
from forewarn.service.platform.enrollment import NodeAuthority
from forewarn.testing import Service
from helpers.reachable_hosts import cut_off
from helpers.token_api import FLEET, Api, api_with_token

GROUP = {"name": "new", "kind": "standalone", "machines": [{"name": "new"}]}
ROLLOUT = {"type": "Reboot", "groups": ["web"]}
KEPT_NOWHERE = {"POST /v1/clock/advance", "POST /v1/rollouts/plan"}  # the first is logged
KEPT_NOWHERE |= {"POST /v1/session", "DELETE /v1/session"}  # which do nothing by themselves
KEPT_NOWHERE |= {f"POST /v1/clock/{verb}" for verb in ("play", "resume", "pause")}  # these too
KEPT_NOWHERE |= {"POST /v1/clock/accept"}  # it is, but takes a wrong clock: test_wrong_clock.py
KEPT_NOWHERE |= {"POST /v1/faults", "DELETE /v1/faults", "DELETE /v1/faults/{id}"}  # and these
KEPT_NOWHERE |= {"DELETE /v1/control-nodes/{name}"}  # and this, which changes nothing but a list
KEPT_NOWHERE |= {"POST /v1/notify/{name}/test"}  # which changes nothing
KEPT_NOWHERE |= {"POST /v1/verdict/forget"}  # which changes nothing that anybody is told


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[Api]:
    with Service(FLEET, sockets=True) as service:
        service.document("web_0")
        own = NodeAuthority(create_authority(tmp_path / "authority"), ("192.0.2.1:8171",), "")
        service._session.node.enrollments._own = own
        api = api_with_token(service, "alice", Role.ADMIN)
        done(api, "PUT", "/v1/hosts/remote", {"name": "remote"})
        cut_off(service, "remote")
        yield api


def done(api: Api, method: str, target: str, body: object = None) -> Any:
    answer = api.call(method, target, body)
    assert answer.status < 300, (method, target, answer)
    return answer.json()


def event(api: Api, machine: str = "web_0") -> str:
    made = done(api, "POST", "/v1/events", {"type": "Reboot", "machines": [machine]})
    return str(made["id"])


def started(api: Api) -> str:
    """One that its driver is busy with."""
    id = event(api)
    done(api, "POST", f"/v1/events/{id}/approve")
    return id


def rollout(api: Api) -> str:
    return str(done(api, "POST", "/v1/rollouts", ROLLOUT)["id"])


def paused(api: Api) -> str:
    id = rollout(api)
    done(api, "POST", f"/v1/rollouts/{id}/pause", {})
    return id


def unwell(api: Api) -> str:
    done(api, "POST", "/v1/hosts/dune/degrade", {})
    return "dune"


def cordoned(api: Api) -> str:
    done(api, "POST", "/v1/hosts/dune/cordon", {})
    return "dune"


def gone(api: Api) -> str:
    """A machine that was deleted."""
    id = done(api, "POST", "/v1/machines/web_1/delete")["id"]
    done(api, "POST", f"/v1/events/{id}/approve")
    done(api, "POST", "/v1/clock/advance", {"by": 7200})
    assert done(api, "GET", "/v1/machines/web_1")["gone"]
    return "web_1"


def spare(api: Api) -> str:
    done(api, "PUT", "/v1/groups/new", GROUP)
    return "new"


def host(api: Api) -> str:
    done(api, "PUT", "/v1/hosts/empty", {"name": "empty"})
    return "empty"


def halt(api: Api) -> str:
    return str(done(api, "POST", "/v1/halts", {})["id"])


def token(api: Api) -> str:
    return str(done(api, "POST", "/v1/tokens", {"name": "bot", "role": "viewer"})["id"])


def postponable(api: Api) -> str:
    done(api, "PATCH", "/v1/groups/web/policy", {"may_postpone": "2h, twice"})
    return event(api)


def configured(api: Api) -> str:
    done(api, "PUT", "/v1/maintenance/nights", {"windows": ["22:00-04:00"]})
    return "nights"


def named(name: str) -> Callable[[Api], str]:
    return lambda _: name


def nothing(_api: Api) -> str:
    return ""


# The call, what has to be there before it, and what is sent.
CALLS: dict[str, tuple[Callable[[Api], str], object]] = {
    "POST /v1/events": (nothing, {"type": "Reboot", "machines": ["web_0"]}),
    "POST /v1/events/{id}/approve": (event, None),
    "POST /v1/events/{id}/ready": (event, {"machine": "web_0", "note": "drained"}),
    "POST /v1/events/{id}/postpone": (postponable, {"by": 600}),
    "POST /v1/events/{id}/cancel": (event, None),
    "POST /v1/events/cancel": (event, {"ids": [*"0123456789ABCDEF"]}),  # one of them is it
    "POST /v1/events/{id}/retry": (started, None),
    "POST /v1/events/{id}/finish": (started, {"reason": "done by hand"}),
    "POST /v1/events/{id}/abandon": (started, {"reason": "it did not happen"}),
    "POST /v1/machines/{name}/restart": (named("web_0"), None),
    "POST /v1/machines/{name}/redeploy": (named("web_0"), None),
    "POST /v1/machines/{name}/restore": (gone, None),
    "POST /v1/machines/{name}/moved": (named("web_0"), {"host": "dune"}),
    "POST /v1/machines/{name}/evict": (named("web_0"), None),
    "POST /v1/machines/{name}/delete": (named("web_1"), None),
    "POST /v1/machines/{name}/fail": (named("web_0"), {}),
    "DELETE /v1/machines/{name}": (named("web_1"), None),
    "PUT /v1/machines/{name}": (named("web_1"), {"host": "dune"}),
    "PATCH /v1/machines/{name}": (named("web_1"), {"host": "dune"}),
    "POST /v1/batch/restart": (nothing, {"machines": ["web_0"]}),
    "POST /v1/batch/redeploy": (nothing, {"machines": ["web_0"]}),
    "POST /v1/batch/evict": (nothing, {"machines": ["web_0"]}),
    "POST /v1/batch/delete": (nothing, {"machines": ["web_1"]}),
    "POST /v1/groups/{name}/disable": (named("web"), None),
    "POST /v1/groups/{name}/evict": (named("web"), None),
    "POST /v1/groups/{name}/scale-in": (named("web"), {"count": 1}),
    "PATCH /v1/groups/{name}/policy": (named("web"), {"user_event_limit": 3}),
    "PUT /v1/groups/{name}": (named("new"), GROUP),
    "DELETE /v1/groups/{name}": (spare, None),
    "PUT /v1/maintenance/{name}": (named("nights"), {"windows": ["22:00-04:00"]}),
    "DELETE /v1/maintenance/{name}": (configured, None),
    "POST /v1/hosts/{name}/maintain": (named("dune"), {"mode": "Freeze"}),
    "POST /v1/hosts/{name}/degrade": (named("dune"), {}),
    "POST /v1/hosts/{name}/fail": (named("dune"), {}),
    "POST /v1/hosts/{name}/repair": (unwell, None),
    "POST /v1/hosts/{name}/cordon": (named("dune"), {}),
    "POST /v1/hosts/{name}/uncordon": (cordoned, None),
    "POST /v1/hosts/{name}/drain": (named("dune"), {}),
    "POST /v1/hosts/{name}/return": (cordoned, None),
    "POST /v1/hosts/{name}/without-node": (named("remote"), None),
    "POST /v1/hosts/{name}/revoke": (named("remote"), None),
    "POST /v1/enrollments": (nothing, {"host": "dune"}),
    "PUT /v1/hosts/{name}": (named("empty"), {"name": "empty"}),
    "DELETE /v1/hosts/{name}": (host, None),
    "PUT /v1/fleet": (nothing, {"hosts": [], "groups": [GROUP]}),
    "POST /v1/halts": (nothing, {"note": "smoke"}),
    "POST /v1/halts/{id}/release": (halt, {"note": "no smoke"}),
    "POST /v1/rollouts": (nothing, ROLLOUT),
    "POST /v1/rollouts/{id}/pause": (rollout, {}),
    "POST /v1/rollouts/{id}/resume": (paused, None),
    "POST /v1/rollouts/{id}/skip": (rollout, {"steps": [1]}),
    "POST /v1/rollouts/{id}/abort": (rollout, {}),
    "POST /v1/tokens": (nothing, {"name": "bot", "role": "viewer"}),
    "POST /v1/tokens/{id}/revoke": (token, {}),
}


def last(api: Api) -> int:
    return max(int(record["seq"]) for record in done(api, "GET", "/v1/history")["records"])


def test_no_call_that_changes_something_is_left_out(alice: Api) -> None:
    paths = alice.get("/schema/openapi.json").json()["paths"]
    found = {f"{m.upper()} {path}" for path, item in paths.items() for m in item if m != "get"}
    assert found - KEPT_NOWHERE == set(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_every_change_is_recorded_with_its_actor(alice: Api, call: str) -> None:
    before, body = CALLS[call]
    method, path = call.split(" ")
    name = before(alice)
    since = last(alice)
    target = path.replace("{id}", name).replace("{name}", name)
    forced = method == "DELETE" and "maintenance" not in path
    if forced or call == "PUT /v1/fleet":
        target += "?force=true"
    done(alice, method, target, body)
    records = done(alice, "GET", f"/v1/history?after_seq={since}")["records"]
    who = {record["by"] for record in records}
    assert "alice" in who, records
    assert "operator" not in who


def test_without_tokens_the_actor_is_the_operator() -> None:
    with Service(FLEET, sockets=True) as service:
        api = Api(service.control_url)
        event(api)
        (record,) = done(api, "GET", "/v1/history?what=raised")["records"]
        assert record["by"] == "operator"
