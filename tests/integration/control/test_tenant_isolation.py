"""Two tenants on shared hosts: whatever one of them can read names nobody and nothing of the
other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import msgspec
import pytest

from forewarn.core import Refused
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.control_api import OPERATIONS
from helpers.token_api import Api, api_with_token

# The words of each tenant have no part in common with those of the other, or of the platform.
FLEET = """
hosts: [granite, dune, shared, spare, other]
groups:
  - name: web
    kind: scale-set
    labels: {tier: front}
    policy: {may_postpone: '2h, 3 times'}
    machines:
      - {name: web_0, host: granite, update_domain: 0}
      - {name: web_1, host: shared, update_domain: 1}
      - {name: web_2, host: spare, update_domain: 2}
  - name: amber
    kind: scale-set
    labels: {tier: vault}
    policy: {may_postpone: '2h, 3 times'}
    machines:
      - {name: amber_0, host: dune, update_domain: 0}
      - {name: amber_1, host: shared, update_domain: 1}
      - {name: amber_2, host: other, update_domain: 2}
"""
OTHERS = {"amber", "dune", "vault", "quartz"}  # quartz is who works on amber


class Scene(msgspec.Struct):
    service: Service
    admin: Api
    words: set[str]  # of the other tenant
    limited: dict[Role, Api]  # to web


def done(api: Api, target: str, body: object = None) -> dict[str, object]:
    answer = api.post(target, body)
    assert answer.status in (200, 201), answer
    result: dict[str, object] = answer.json()
    return result


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Everything that can happen to one of them happens to both, and by the hand of the other."""
    ids = (f"AAAA{n:04X}-0000-4000-8000-000000000000" for n in count())
    with Service(FLEET, sockets=True, new_id=lambda: next(ids)) as service:
        session = service._session
        admin = api_with_token(service, "root", Role.ADMIN)
        other = api_with_token(service, "quartz", Role.TENANT, groups=("amber",))
        for machine in ("web_0", "amber_0"):
            service.document(machine)

        def maintain_shared() -> dict[str, str]:
            target, body = "/v1/hosts/shared/maintain", {"mode": "Freeze", "notice": 1800}
            events = admin.post(target, body).json()["events"]
            return {event["group"]: event["id"] for event in events}

        def postponed_and_approved(events: dict[str, str]) -> None:
            done(other, f"/v1/events/{events['amber']}/postpone", {"by": 600})
            ready = {"machine": "amber_1", "note": "amber is drained"}
            done(other, f"/v1/events/{events['amber']}/ready", ready)
            done(other, f"/v1/events/{events['amber']}/approve")

        over = maintain_shared()  # one that is carried out
        postponed_and_approved(over)
        service.clock.advance("2h")
        done(admin, f"/v1/events/{maintain_shared()['amber']}/cancel", {"reason": "wrong week"})
        restart = str(done(other, "/v1/machines/amber_0/restart")["id"])
        done(other, f"/v1/events/{restart}/cancel", {"reason": "amber is fine"})
        done(other, "/v1/machines/amber_0/restart")
        done(admin, "/v1/hosts/dune/degrade", {"note": "a fan"})
        for groups in (["web"], ["amber"], ["web", "amber"]):
            request = {"type": "Reboot", "groups": groups, "notice": 3600}
            done(admin, "/v1/rollouts", {**request, "allow_overlap": True})
        session.settle()
        done(admin, "/v1/halts", {"groups": ["web", "amber"]})
        done(admin, "/v1/halts", {"groups": ["amber"], "note": "amber only"})
        done(admin, "/v1/halts", {"label": "tier=vault"})
        admin.call("PUT", "/v1/maintenance/nights", {"windows": ["20:00-04:00"], "label": "!x"})
        now = maintain_shared()  # and one that waits
        postponed_and_approved(now)
        # A file contradicts where amber_2 is: it may be on a host that is otherwise web's.
        done(admin, "/v1/machines/amber_2/moved", {"host": "dune"})
        claimed = FLEET.replace("name: amber_2, host: other", "name: amber_2, host: spare")
        assert not isinstance(session.run(session.node.fleet_apply.text(claimed, by="x")), Refused)
        assert admin.get("/v1/machines/amber_2").json()["disputed"]
        ids_of_other = {
            event["id"]
            for event in admin.get("/v1/events?past=true").json()
            if event["group"] == "amber"
        }
        assert len(ids_of_other) >= 6
        limited = {
            role: api_with_token(service, f"team-{role.value}", role, groups=("web",))
            for role in (Role.VIEWER, Role.TENANT, Role.OPERATOR)
        }
        yield Scene(service, admin, OTHERS | ids_of_other, limited)


def own_things(api: Api) -> dict[str, list[str]]:
    """What the lists name, for the paths of single things; of hosts, all that exist."""
    return {
        "machines": [machine["name"] for machine in api.get("/v1/machines").json()],
        "groups": ["web"],
        "hosts": ["granite", "shared", "spare"],
        "events": [event["id"] for event in api.get("/v1/events?past=true").json()],
        "rollouts": [rollout["id"] for rollout in api.get("/v1/rollouts").json()],
        "halts": [halt["id"] for halt in api.get("/v1/halts").json()],
    }


FILTERS = {
    "GET /v1/events": "?past=true",
    "GET /v1/history": "?limit=1000",
    "GET /v1/changes": "?after=0&limit=1000",
}


def targets(api: Api) -> Iterator[str]:
    """Every address of a GET that a limited token can use, with everything that is its own."""
    own = own_things(api)
    assert all(own.values())
    for name in OPERATIONS:
        method, path = name.split()
        if method != "GET" or path in ("/v1/feed", "/docs", "/schema/openapi.json"):
            continue
        kind = re.match(r"/v1/(\w+)/\{", path)
        for thing in own.get(kind[1], []) if kind else [""]:
            yield re.sub(r"\{[^}]*\}", thing, path) + FILTERS.get(name, "")
    for thing in own["events"]:
        yield f"/v1/history?event={thing}"
    for thing in own["machines"]:
        yield f"/v1/history?machine={thing}"
    for path in ("events?past=true&", "history?", "machines?", "calendar.ics?", "tonight?"):
        yield from (f"/v1/{path}host={host}" for host in own["hosts"])


@pytest.mark.parametrize("role", [Role.VIEWER, Role.TENANT, Role.OPERATOR])
def test_no_answer_to_a_tenant_names_the_other_tenant(scene: Scene, role: Role) -> None:
    api = scene.limited[role]
    shown = {target: api.get(target) for target in targets(api)}
    readable = {target: answer for target, answer in shown.items() if answer.status == 200}
    assert len(readable) > 40
    assert {answer.status for answer in shown.values()} <= {200, 403, 404, 409}
    leaks = {
        (target, word)
        for target, answer in shown.items()
        for word in scene.words
        if word in answer.body.decode() + str(answer.headers)
    }
    assert leaks == set()


def test_the_feed_names_the_other_tenant_only_to_operators(scene: Scene) -> None:
    newest = scene.admin.get("/v1/changes").json()["next"]
    for api, found in ((scene.limited[Role.TENANT], False), (scene.admin, True)):
        connection = api.connection()
        headers = {"Authorization": f"Bearer {api.token}"}
        connection.request("GET", "/v1/feed?after=0", headers=headers)
        stream, lines = connection.getresponse(), list[bytes]()
        while not lines or lines[-1] != b"id: %d\n" % newest:
            lines.append(stream.readline())
        connection.close()
        text = b"".join(lines).decode()
        assert any(word in text for word in scene.words) is found


def test_changes_of_a_tenant_on_a_shared_host_do_not_name_the_other_tenant(scene: Scene) -> None:
    api = scene.limited[Role.TENANT]
    waiting = api.get("/v1/events?status=Scheduled&type=Freeze").json()
    [own] = (event["id"] for event in waiting if event["host"] == "shared")
    for verb, body in (("postpone", {"by": 600}), ("ready", {"machine": "web_1"}), ("approve", {})):
        answer = api.post(f"/v1/events/{own}/{verb}", body or None)
        assert answer.status == 200, answer
        assert not [word for word in scene.words if word in answer.body.decode()]
