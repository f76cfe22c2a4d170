"""A token that is limited to a group sees and moves that group, and learns nothing of the others:
every call there is, asked about what is outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from forewarn.core import Refused
from forewarn.core.access import Role
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Key
from forewarn.testing import Service
from helpers.token_api import FLEET, Answer, Api, api_with_token

ROLLOUT = {"type": "Reboot", "groups": ["amber"]}

# What is sent to calls that want a body: all of it could be carried out, were it allowed.
BODIES: dict[str, object] = {
    "POST /v1/events": {"type": "Reboot", "machines": ["amber_1"]},
    "POST /v1/events/{id}/ready": {"machine": "amber_0"},
    "POST /v1/events/{id}/postpone": {"by": 600},
    "PUT /v1/maintenance/{name}": {"windows": ["22:00-04:00"]},
    "POST /v1/events/cancel": {"ids": ["AFFE"]},
    "POST /v1/events/{id}/finish": {"reason": "so"},
    "POST /v1/events/{id}/abandon": {"reason": "so"},
    "POST /v1/machines/{name}/fail": {"type": "Redeploy"},
    "POST /v1/machines/{name}/moved": {"host": "dune"},
    "POST /v1/batch/restart": {"machines": ["amber_1"]},
    "POST /v1/batch/redeploy": {"machines": ["amber_1"]},
    "POST /v1/batch/evict": {"machines": ["amber_1"]},
    "POST /v1/batch/delete": {"machines": ["amber_1"]},
    "POST /v1/groups/{name}/scale-in": {"count": 1},
    "PATCH /v1/groups/{name}/policy": {"user_event_limit": 3},
    "POST /v1/hosts/{name}/maintain": {"mode": "Freeze"},
    "POST /v1/hosts/{name}/degrade": {},
    "POST /v1/hosts/{name}/fail": {},
    "POST /v1/hosts/{name}/cordon": {},
    "POST /v1/hosts/{name}/drain": {},
    "POST /v1/halts": {},
    "POST /v1/halts/{id}/release": {},
    "POST /v1/rollouts": ROLLOUT,
    "POST /v1/rollouts/plan": ROLLOUT,
    "POST /v1/rollouts/{id}/pause": {},
    "POST /v1/rollouts/{id}/skip": {"steps": [1]},
    "POST /v1/rollouts/{id}/abort": {},
    "POST /v1/clock/advance": {"by": 60},
    "POST /v1/clock/play": {"by": 60},
    "POST /v1/clock/resume": {"speed": 60},
    "POST /v1/tokens": {"name": "more", "role": "admin"},
    "POST /v1/tokens/{id}/revoke": {"force": True},
    "POST /v1/faults": {"kind": "gone", "machines": ["amber_0"]},
    "PUT /v1/fleet": {"groups": []},
    "PUT /v1/groups/{name}": {"name": "amber", "kind": "scale-set", "machines": []},
    "PUT /v1/hosts/{name}": {"name": "dune"},
    "PUT /v1/machines/{name}": {"host": "dune"},
    "PATCH /v1/machines/{name}": {"host": "dune"},
}
# Calls that name nothing, and answer with what the caller may see, or what is the same for all.
OPEN = {
    "GET /healthz",
    "GET /readyz",
    "GET /leaderz",
    "GET /v1/clock",
    "GET /v1/feed",
    *("GET /v1/session", "POST /v1/session", "DELETE /v1/session"),
}
# A scale set that is called otherwise than its groups, and what is nobody else's business.
SETS = """
groups:
  - name: near
    kind: scale-set
    scale_set: fleet
    labels: {team: a}
    machines: [{name: fleet_0, spot: true}, {name: fleet_1, spot: true}]
  - {name: fleets, kind: standalone, labels: {team: b}, machines: [{name: fleets}]}
  - {name: fleet-2, kind: standalone, labels: {team: b}, machines: [{name: fleet-2}]}
"""
LISTS = {
    *("GET /v1/machines", "GET /v1/groups", "GET /v1/hosts", "GET /v1/events"),
    *("GET /v1/rollouts", "GET /v1/status", "GET /v1/history", "GET /v1/history/export"),
    *("GET /v1/changes", "GET /v1/verdict", "GET /v1/halts", "GET /v1/notify"),
    *("GET /v1/calendar.ics", "GET /v1/overview", "GET /v1/search", "GET /v1/tonight"),
}


class Scene(msgspec.Struct):
    service: Service
    admin: Api
    theirs: dict[str, str]  # things outside, by kind
    words: set[str]  # that nobody limited may read

    @property
    def seq(self) -> int:
        return self.service._session.node.store.seq


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A lot is going on in the group that is nobody's business."""
    ids = (f"AAAA{n:04X}-0000-4000-8000-000000000000" for n in count())
    state = tmp_path_factory.mktemp("limited") / "state.db"
    with Service(FLEET, sockets=True, state=state, new_id=lambda: next(ids)) as service:
        admin = api_with_token(service, "alice", Role.ADMIN)
        for machine in ("web_0", "amber_0"):
            service.document(machine)
        event = admin.post("/v1/machines/amber_0/restart").json()["id"]
        over = admin.post("/v1/machines/amber_1/restart").json()["id"]
        admin.post(f"/v1/events/{over}/cancel")
        joint = admin.post("/v1/hosts/shared/maintain", {"mode": "Freeze"}).json()["events"]
        started = admin.post("/v1/rollouts", {**ROLLOUT, "notice": 3600})
        rollout = started.json()["id"]
        admin.post("/v1/hosts/dune/degrade", {"note": "the fan of obsidian"})
        theirs = {"group": "amber", "machine": "amber_0", "host": "dune", "rollout": rollout}
        theirs |= {"event": event, "token": "alice"}
        words = {"amber", "dune", "vault", "obsidian", event, over, rollout}
        words |= {one["id"] for one in joint if one["group"] == "amber"}
        words |= {one["id"] for one in admin.get("/v1/events").json() if one["group"] == "amber"}
        yield Scene(service=service, admin=admin, theirs=theirs, words=words)


def calls(scene: Scene) -> list[tuple[str, str]]:
    paths = scene.admin.get("/schema/openapi.json").json()["paths"]
    return [
        (method.upper(), path)
        for path, item in paths.items()
        for method in item
        if method in ("get", "post", "put", "patch", "delete")
    ]


def filled(scene: Scene, path: str, *, exists: bool = True) -> str:
    """The path with something outside in it, or something that is nowhere but nearly so called."""
    for kind in ("machine", "group", "host", "event", "rollout", "token"):
        if path.startswith(f"/v1/{kind}s/"):
            name = scene.theirs[kind]
            near = name[:-1] + ("7" if name[-1] != "7" else "8")
            return re.sub(r"\{\w+\}", name if exists else near, path)
    return path


def leaks(scene: Scene, answer: Answer, asked: str) -> set[str]:
    """What it tells that was not in the question."""
    text = answer.body.decode() + str(answer.headers)
    for word in asked.replace("?", "/").replace("=", "/").split("/"):
        text = text.replace(f"'{word}'", "")
    return {word for word in scene.words if word in text}


BY_NAME: dict[str, Any] = {"groups": ("web",)}
BY_LABEL: dict[str, Any] = {"label": "tier=web"}


@pytest.mark.parametrize(
    ("role", "limit"),
    [(Role.VIEWER, BY_LABEL), (Role.TENANT, BY_NAME), (Role.OPERATOR, BY_LABEL)],
    ids=["viewer", "tenant", "operator"],
)
def test_no_call_shows_or_changes_what_is_outside_of_the_limit(
    scene: Scene, role: Role, limit: dict[str, Any]
) -> None:
    api = api_with_token(scene.service, f"{role.value}-{'-'.join(limit)}", role, **limit)
    before = scene.seq
    walked = 0
    for method, path in calls(scene):
        name = f"{method} {path}"
        if name in OPEN:
            continue
        body = BODIES.get(name, {} if method in ("PUT", "PATCH") else None)
        target = filled(scene, path)
        if name == "GET /v1/changes":
            target += "?after=0"
        answer = api.call(method, target, body)
        response = "/".join(re.findall(r"\w+", str(body)))
        assert leaks(scene, answer, f"{target}/{response}") == set(), name
        if name in LISTS:
            assert answer.status == 200, name
        else:
            assert answer.status == 403, (name, answer)
        # What is not there at all is refused in the same words.
        near = filled(scene, path, exists=False)
        if "{" in path:
            other = api.call(method, near, body)
            assert other.status == answer.status, name
            ends = [target.split("/")[3], near.split("/")[3]]
            assert other.detail.replace(ends[1], "X") == answer.detail.replace(ends[0], "X"), name
        walked += 1
    assert walked > 50
    assert scene.seq == before


@pytest.mark.parametrize(
    "target",
    [
        "/v1/machines?group=amber",
        "/v1/machines?host=dune",
        "/v1/events?group=amber",
        "/v1/events?machine=amber_0",
        "/v1/events?host=dune",
        "/v1/history?group=amber",
        "/v1/history?machine=amber_0",
        "/v1/history?host=dune",
        "/v1/history/export?group=amber",
        "/v1/history/export?machine=amber_0",
    ],
)
def test_no_filter_reveals_what_is_outside_of_the_limit(scene: Scene, target: str) -> None:
    api = api_with_token(scene.service, f"f{abs(hash(target))}", Role.VIEWER, groups=("web",))
    answer = api.get(target)
    assert answer.status == 403
    assert leaks(scene, answer, target) == set()
    near = target[:-1] + "7"
    assert api.get(near).detail.replace(near.split("=")[1], "X") == answer.detail.replace(
        target.split("=")[1], "X"
    )


def test_events_of_others_are_not_found_by_their_id_either(scene: Scene) -> None:
    api = api_with_token(scene.service, "finder", Role.OPERATOR, groups=("web",))
    before = scene.seq
    for word in (scene.theirs["event"], scene.theirs["event"][:8], "AAAA", "0"):
        for target in (f"/v1/events/{word}", f"/v1/history?event={word}"):
            answer = api.get(target)
            assert (answer.status, leaks(scene, answer, target)) == (403, set())
        assert api.post(f"/v1/events/{word}/cancel").status == 403
    assert scene.seq == before


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "Idempotency-Key"])
def test_conditions_and_keys_reveal_nothing_outside_of_the_limit(scene: Scene, header: str) -> None:
    api = api_with_token(scene.service, f"h-{header}", Role.OPERATOR, groups=("web",))
    for exists in (True, False):
        for path in ("/v1/machines/{name}/restart", "/v1/groups/{name}/disable"):
            target = filled(scene, path, exists=exists)
            value = '"x"' if header != "Idempotency-Key" else f"k{exists}{len(path)}"
            answer = api.call("POST", target, headers={header: value})
            assert answer.status in (400, 403), answer
            assert leaks(scene, answer, target) == set()
        tag = scene.admin.get("/v1/machines/amber_0").headers.get("etag", '"x"')
        answer = api.call("GET", "/v1/machines/amber_0", headers={"If-None-Match": tag})
        assert answer.status == 403


def test_everything_inside_of_the_limit_can_be_read_and_changed(scene: Scene) -> None:
    api = api_with_token(scene.service, "owner", Role.OPERATOR, groups=("web",))
    assert [one["name"] for one in api.get("/v1/groups").json()] == ["web"]
    assert [m["name"] for m in api.get("/v1/machines").json()] == ["web_0", "web_1", "web_2"]
    assert {host["name"] for host in api.get("/v1/hosts").json()} == {"granite", "shared"}
    status = api.get("/v1/status").json()
    assert (status["groups"], status["machines"]) == (1, 3)
    wanted = {"type": "Reboot", "machines": ["web_0"], "source": "User"}
    made = api.post("/v1/events", wanted)
    assert made.status == 201
    id = made.json()["id"]
    assert id in [event["id"] for event in api.get("/v1/events").json()]
    assert api.get(f"/v1/events/{id[:12]}").json()["id"] == id
    assert api.get(f"/v1/events/{id}/explain").status == 200
    assert api.post(f"/v1/events/{id}/cancel").status == 200
    assert id in [event["id"] for event in api.get("/v1/events?past=true").json()]
    page = api.get(f"/v1/history?event={id}").json()["records"]
    assert [(one["what"], one["by"]) for one in page] == [
        ("withdrawn", "owner"),
        ("raised", "owner"),
    ]
    groups = {record["group"] for record in api.get("/v1/history?limit=1000").json()["records"]}
    assert groups == {"web"}
    deleted = api.post("/v1/machines/web_1/delete").json()["id"]
    assert api.post(f"/v1/events/{deleted}/cancel").status == 200  # its own, though the platform's


@pytest.mark.parametrize("role", [Role.TENANT, Role.OPERATOR])
def test_platform_events_are_not_raised_or_cancelled_with_a_limited_token(
    scene: Scene, role: Role
) -> None:
    """All of it is about the group that the token is limited to."""
    api = api_with_token(scene.service, f"of-web-{role.value}", role, groups=("web",))
    events = [
        scene.admin.post(path, body)
        for path, body in (
            ("/v1/events", {"type": "Freeze", "machines": ["web_0"], "notice": 7200}),
            ("/v1/machines/web_0/evict", None),
            ("/v1/machines/web_1/delete", None),
        )
    ]
    maintained = scene.admin.post("/v1/hosts/granite/maintain", {"mode": "Freeze", "notice": 9000})
    ids = [event.json()["id"] for event in events]
    ids += [event["id"] for event in maintained.json()["events"]]
    rollout = scene.admin.post("/v1/rollouts", {"type": "Reboot", "groups": ["web"]}).json()["id"]
    for id in ids:
        explained = api.get(f"/v1/events/{id}/explain")
        assert explained.json()["operations"] == ["approveEvent", "reportReady"]
        for verb, body in (("cancel", None), ("retry", None), ("finish", {"reason": "so"})):
            refused = api.post(f"/v1/events/{id}/{verb}", body)
            assert refused.status == 403, verb
            if verb == "cancel":
                assert f"event {id} is the platform's" in refused.detail
    wanted: list[tuple[str, object]] = [
        ("/v1/events", {"type": "Reboot", "machines": ["web_2"]}),
        ("/v1/machines/web_0/evict", None),
        ("/v1/machines/web_2/fail", {"type": "Reboot"}),
        ("/v1/groups/web/evict", None),
        *((f"/v1/hosts/granite/{verb}", {}) for verb in ("maintain", "degrade", "fail", "repair")),
        *((f"/v1/hosts/granite/{verb}", {}) for verb in ("cordon", "uncordon", "drain", "return")),
        ("/v1/hosts/granite/without-node", {}),
        ("/v1/hosts/granite/revoke", {}),
        ("/v1/enrollments", {"host": "granite"}),
        ("/v1/rollouts", {"type": "Reboot", "groups": ["web"]}),
        *((f"/v1/rollouts/{rollout}/{verb}", {}) for verb in ("pause", "resume", "abort")),
    ]
    for path, content in wanted:
        assert api.post(path, content).status == 403, path
    records = scene.admin.get("/v1/history?limit=1000").json()["records"]
    assert f"of-web-{role.value}" not in {record["by"] for record in records}
    for id in ids:
        scene.admin.post(f"/v1/events/{id}/cancel")
    scene.admin.post(f"/v1/rollouts/{rollout}/abort", {})


def test_a_tenant_restarts_approves_and_reports_ready(scene: Scene) -> None:
    with Service(FLEET, sockets=True) as service:
        admin = api_with_token(service, "root", Role.ADMIN)
        tenant = api_with_token(service, "web-team", Role.TENANT, groups=("web",))
        service.document("web_0")
        restart = tenant.post("/v1/machines/web_0/restart").json()["id"]
        redeploy = tenant.post("/v1/machines/web_2/redeploy").json()["id"]
        explained = tenant.get(f"/v1/events/{redeploy}/explain").json()
        assert explained["operations"] == ["approveEvent", "reportReady", "cancelEvent"]
        assert tenant.post(f"/v1/events/{redeploy}/cancel").json()["status"] == "Withdrawn"
        freeze = {"mode": "Freeze"}
        joint = admin.post("/v1/hosts/shared/maintain", freeze).json()["events"]
        (own,) = (event["id"] for event in joint if event["group"] == "web")
        report = tenant.post(f"/v1/events/{own}/ready", {"machine": "web_2", "note": "drained"})
        assert report.json()["ready"] == ["web_2"]
        assert tenant.post(f"/v1/events/{own}/approve").json()["approved"]["by"] == "web-team"
        refused = tenant.post(f"/v1/events/{own}/ready", {"machine": "amber_2"})
        assert (refused.status, "in group 'web'" in refused.detail) == (404, True)
        assert tenant.post(f"/v1/events/{restart}/approve").json()["status"] == "Started"
        records = tenant.get(f"/v1/history?event={own}&what=ready").json()["records"]
        assert [r["by"] for r in records] == ["web-team"]
        assert re.match("web_2 .*: drained", records[0]["note"])
        for path in ("machines/web_1/delete", "machines/web_1/restore", "groups/web/disable"):
            assert tenant.post(f"/v1/{path}").status == 403
        for path in ("groups/web/policy", "groups/web/scale-in", "events"):
            method = "PATCH" if path.endswith("policy") else "POST"
            refused = tenant.call(method, f"/v1/{path}", {})
            assert (refused.status, "needs the role operator" in refused.detail) == (403, True)


def test_a_tenant_sees_no_more_of_a_host_than_its_name(scene: Scene) -> None:
    tenant = api_with_token(scene.service, "guests", Role.TENANT, groups=("web",))
    assert tenant.get("/v1/machines/web_0").json()["host"] == "granite"
    assert tenant.get("/v1/hosts").json() == []
    nowhere = tenant.get("/v1/hosts/nowhere").detail
    assert tenant.get("/v1/hosts/granite").detail == nowhere.replace("nowhere", "granite")
    assert tenant.get("/v1/hosts/granite/explain").status == 403
    for path in ("machines", "events", "history"):
        assert tenant.get(f"/v1/{path}?host=granite").status == 403
    everything = [tenant.get(f"/v1/{path}") for path in ("status", "events", "changes?after=0")]
    assert all(answer.status == 200 for answer in everything)


def test_a_tenant_does_not_learn_which_other_hosts_machines_could_move_to(
    scene: Scene,
) -> None:
    api = api_with_token(scene.service, "rock", Role.OPERATOR, groups=("web",))
    path = "/v1/hosts/granite/explain"
    assert "cannot move" in scene.admin.get(path).json()["if_drained"]
    explained = api.get(path)
    assert (explained.status, explained.json()["if_drained"]) == (200, "")


def test_machines_of_other_groups_on_a_shared_host_are_not_shown(scene: Scene) -> None:
    api = api_with_token(scene.service, "half", Role.OPERATOR, groups=("web",))
    shown = api.get("/v1/hosts/shared")
    assert (shown.status, shown.json()["machines"]) == (200, ["web_2"])
    assert leaks(scene, shown, "") == set()
    assert api.get("/v1/hosts/shared/explain").status == 403


def test_a_part_of_joint_maintenance_is_shown_without_the_other_groups(scene: Scene) -> None:
    api = api_with_token(scene.service, "partner", Role.OPERATOR, groups=("web",))
    (event,) = (e for e in api.get("/v1/events").json() if e["host"] == "shared")
    explained = api.get(f"/v1/events/{event['id']}/explain")
    assert (explained.status, leaks(scene, explained, "")) == (200, set())
    (hold,) = explained.json()["holds"]
    assert (hold["kind"], hold["until"] is not None) == ("joint", True)
    before = scene.seq
    for verb in ("cancel", "retry"):
        refused = api.post(f"/v1/events/{event['id']}/{verb}")
        assert (refused.status, leaks(scene, refused, "")) == (403, set())
    assert scene.seq == before
    assert "amber" in scene.admin.get(f"/v1/events/{event['id']}/explain").json()["message"]


def test_the_feed_contains_only_groups_inside_of_the_limit(scene: Scene) -> None:
    api = api_with_token(scene.service, "follower", Role.OPERATOR, groups=("web",))
    after = api.get("/v1/changes").json()["next"]
    scene.admin.post("/v1/events", {"type": "Freeze", "machines": ["amber_1"]})
    scene.admin.post("/v1/hosts/dune/repair")
    own = scene.admin.post("/v1/events", {"type": "Freeze", "machines": ["web_1"]}).json()["id"]
    page = api.get(f"/v1/changes?after={after}")
    assert leaks(scene, page, "") == set()
    changes = [one for commit in page.json()["commits"] for one in commit["changes"]]
    assert {one["group"] for one in changes} == {"web"}
    assert own in page.body.decode()


def test_the_labels_that_count_are_those_of_the_moment(scene: Scene) -> None:
    with Service(FLEET, sockets=True) as service:
        api_with_token(service, "root", Role.ADMIN)
        api = api_with_token(service, "bot", Role.VIEWER, label="tier=web")
        assert api.get("/v1/machines/amber_0").status == 403
        relabelled = FLEET.replace("tier: vault", "tier: web")
        done = service._session.run(service._session.node.fleet_apply.text(relabelled, by="test"))
        assert not isinstance(done, Refused)
        assert api.get("/v1/machines/amber_0").status == 200
        service._session.run(service._session.node.fleet_apply.text(FLEET, by="test"))
        assert api.get("/v1/machines/amber_0").status == 403


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/groups/fleet", None),
        ("GET", "/v1/machines?group=fleet", None),
        ("GET", "/v1/events?group=fleet", None),
        ("GET", "/v1/history?group=fleet", None),
        ("POST", "/v1/groups/fleet/disable", None),
        ("PATCH", "/v1/groups/fleet/policy", {"user_event_limit": 3}),
    ],
)
def test_a_scale_sets_name_leads_to_no_suggestion_of_others(
    method: str, target: str, body: object
) -> None:
    with Service(SETS, sockets=True) as service:
        api_with_token(service, "root", Role.ADMIN)
        api = api_with_token(service, "bot", Role.OPERATOR, label="team=a")
        refused = api.call(method, target, body)
        assert refused.status == 403
        assert "fleets" not in refused.body.decode()
        assert "fleet-2" not in refused.body.decode()
        # It is the name of all its groups for the verbs that take it.
        assert len(api.post("/v1/groups/fleet/scale-in", {"to": 0}).json()["events"]) == 2


def test_a_scale_set_is_not_scaled_in_with_a_token_for_one_of_its_groups() -> None:
    other = "{name: far, kind: scale-set, scale_set: fleet, machines: [{name: fleet_2}]}"
    with Service(f"{SETS}  - {other}\n", sockets=True) as service:
        api_with_token(service, "root", Role.ADMIN)
        api = api_with_token(service, "bot", Role.OPERATOR, label="team=a")
        for body in ({"to": 0}, {"count": 1}):
            assert api.post("/v1/groups/fleet/scale-in", body).status == 403
        assert service.events == []
        assert all(service[f"fleet_{n}"].alive for n in range(3))


def test_when_events_of_other_groups_are_due_is_not_shown(scene: Scene) -> None:
    api = api_with_token(scene.service, "hurried", Role.VIEWER, groups=("web",))
    assert scene.admin.get("/v1/clock").json()["next_due"] is not None
    assert api.get("/v1/clock").json()["next_due"] is None
    assert api.get("/v1/status").json()["clock"]["next_due"] is None


class _Forgets(MemoryStore):
    """Keeps no answers for as long as it is told not to."""

    forgets = False

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        if not self.forgets:
            await super().save_answer(key, status, answer)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/v1/events", {"type": "Reboot", "machines": ["web_0"], "source": "User"}),
        ("/v1/machines/web_0/restart", None),
        ("/v1/groups/web/scale-in", {"count": 1}),
        ("/v1/groups/web/scale-in", {"to": 3}),
        ("/v1/groups/web/disable", None),
    ],
)
def test_an_answer_about_a_machine_that_left_the_limit_is_not_repeated(
    kept: bool, target: str, body: object
) -> None:
    store = _Forgets()
    with Service(FLEET, sockets=True, store=store) as service:
        api_with_token(service, "root", Role.ADMIN)
        service.document("web_0")
        api = api_with_token(service, "bot", Role.OPERATOR, label="tier=web")
        store.forgets = not kept
        key = {"Idempotency-Key": "k"}
        first = api.call("POST", target, body, key)
        assert first.status in (200, 201), first
        again = api.call("POST", target, body, key)
        assert again.headers["idempotency-replayed"] == "true"
        moved = FLEET.replace("tier: web", "tier: other")
        assert not isinstance(
            service._session.run(service._session.node.fleet_apply.text(moved, by="test")), Refused
        )
        refused = api.call("POST", target, body, key)
        assert refused.status == 403, refused
        assert "idempotency-replayed" not in refused.headers
