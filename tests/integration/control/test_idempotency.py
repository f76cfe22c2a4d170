"""Idempotency keys: the same request again does nothing more and is answered the same, also after
the service died between doing it and saying so."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.control.client import client
from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.schema import core as s
from forewarn.store.memory import Disk, MemoryStore
from forewarn.store.port import Commit, Key, StoreFailed
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.testing import SAMPLE, Service
from helpers.control_api import OPERATIONS, ApiResponse, ask
from helpers.reachable_hosts import cut_off
from helpers.waiting import LIMIT

SCHEDULE = {"type": "Reboot", "machines": ["web_0"]}
SPOT = "web_2"  # of the sample fleet
ROLLOUT = {"type": "Reboot", "groups": ["sql"]}


def nothing(_service: Service) -> None:
    pass


def _event(service: Service) -> str:
    return service.schedule("Reboot", "web_0").id


def _postponable(service: Service) -> str:
    ask(service, "PATCH", "/v1/groups/web/policy", {"may_postpone": "2h, twice"})
    return _event(service)


def _listed(service: Service) -> str:
    service.document("web_0")
    return _event(service)


def _started(service: Service) -> str:
    event = service.schedule("Reboot", "web_0")
    ask(service, "POST", f"/v1/events/{event.id}/approve")
    return event.id


def _rollout(service: Service) -> str:
    return str(ask(service, "POST", "/v1/rollouts", ROLLOUT).body["id"])


def _paused(service: Service) -> str:
    id = _rollout(service)
    ask(service, "POST", f"/v1/rollouts/{id}/pause", {})
    return id


def _gone(service: Service) -> None:
    ask(service, "POST", f"/v1/machines/{SPOT}/evict")
    service.clock.advance("1h")


def _degraded(service: Service) -> None:
    ask(service, "POST", "/v1/hosts/host-a/degrade", {})


def _cordoned(service: Service) -> None:
    ask(service, "POST", "/v1/hosts/host-a/cordon", {})


def _cut_off(service: Service) -> None:
    cut_off(service, "host-a")


def _enabled(service: Service) -> None:
    service.document("web_0")
    service.clock.advance("1h")


# By call: what there must be before, the path ({} is what that has made), and the body.
CALLS: dict[str, tuple[Callable[[Service], Any], str, object]] = {
    "POST /v1/events": (nothing, "/v1/events", SCHEDULE),
    "POST /v1/machines/{name}/restart": (nothing, "/v1/machines/web_0/restart", None),
    "POST /v1/machines/{name}/redeploy": (nothing, "/v1/machines/web_0/redeploy", None),
    "POST /v1/machines/{name}/evict": (nothing, f"/v1/machines/{SPOT}/evict", None),
    "POST /v1/machines/{name}/delete": (nothing, "/v1/machines/web_1/delete", None),
    "POST /v1/machines/{name}/fail": (nothing, "/v1/machines/web_1/fail", {"type": "Reboot"}),
    "POST /v1/machines/{name}/restore": (_gone, f"/v1/machines/{SPOT}/restore", None),
    "POST /v1/machines/{name}/moved": (nothing, "/v1/machines/web_0/moved", {"host": "host-b"}),
    "POST /v1/batch/restart": (nothing, "/v1/batch/restart", {"machines": ["web_0", "web_1"]}),
    "POST /v1/batch/redeploy": (nothing, "/v1/batch/redeploy", {"machines": ["web_0", "web_1"]}),
    "POST /v1/batch/evict": (nothing, "/v1/batch/evict", {"machines": [SPOT]}),
    "POST /v1/batch/delete": (nothing, "/v1/batch/delete", {"machines": ["web_0", "web_1"]}),
    "POST /v1/groups/{name}/evict": (nothing, "/v1/groups/web/evict", None),
    "POST /v1/groups/{name}/scale-in": (nothing, "/v1/groups/web/scale-in", {"count": 1}),
    "POST /v1/groups/{name}/disable": (_enabled, "/v1/groups/web/disable", None),
    "POST /v1/hosts/{name}/maintain": (nothing, "/v1/hosts/host-a/maintain", {"mode": "Freeze"}),
    "POST /v1/hosts/{name}/degrade": (nothing, "/v1/hosts/host-a/degrade", {"note": "fan"}),
    "POST /v1/hosts/{name}/fail": (nothing, "/v1/hosts/host-a/fail", {"note": "power"}),
    "POST /v1/hosts/{name}/repair": (_degraded, "/v1/hosts/host-a/repair", None),
    "POST /v1/hosts/{name}/cordon": (nothing, "/v1/hosts/host-a/cordon", {"note": "fan"}),
    "POST /v1/hosts/{name}/uncordon": (_cordoned, "/v1/hosts/host-a/uncordon", None),
    "POST /v1/hosts/{name}/drain": (nothing, "/v1/hosts/host-a/drain", {}),
    "POST /v1/hosts/{name}/return": (_cordoned, "/v1/hosts/host-a/return", None),
    "POST /v1/hosts/{name}/without-node": (_cut_off, "/v1/hosts/host-a/without-node", None),
    "POST /v1/hosts/{name}/revoke": (nothing, "/v1/hosts/host-a/revoke", None),
    "POST /v1/events/{id}/approve": (_event, "/v1/events/{}/approve", None),
    "POST /v1/events/{id}/ready": (_listed, "/v1/events/{}/ready", {"machine": "web_0"}),
    "POST /v1/events/{id}/postpone": (_postponable, "/v1/events/{}/postpone", {"by": 600}),
    "POST /v1/events/{id}/cancel": (_event, "/v1/events/{}/cancel", None),
    "POST /v1/events/{id}/retry": (_started, "/v1/events/{}/retry", None),
    "POST /v1/events/{id}/finish": (_started, "/v1/events/{}/finish", {"reason": "by hand"}),
    "POST /v1/events/{id}/abandon": (_started, "/v1/events/{}/abandon", {"reason": "stuck"}),
    "POST /v1/rollouts": (nothing, "/v1/rollouts", ROLLOUT),
    "POST /v1/rollouts/{id}/pause": (_rollout, "/v1/rollouts/{}/pause", {"reason": "noise"}),
    "POST /v1/rollouts/{id}/resume": (_paused, "/v1/rollouts/{}/resume", None),
    "POST /v1/rollouts/{id}/skip": (_rollout, "/v1/rollouts/{}/skip", {"steps": [1]}),
    "POST /v1/rollouts/{id}/abort": (_rollout, "/v1/rollouts/{}/abort", {"reason": "wrong"}),
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


def test_every_call_that_takes_a_key_is_tried() -> None:
    assert set(CALLS) == {name for name, operation in OPERATIONS.items() if operation.keyed}


def keyed_commits(service: Service) -> list[Commit]:
    async def read() -> list[Commit]:
        return [commit async for commit in service._session.node.store.commits(0) if commit.key]

    return service._session.run(read())


@pytest.mark.parametrize("call", CALLS)
def test_the_same_request_again_does_nothing_more_and_is_answered_the_same(
    service: Service, call: str
) -> None:
    prepare, path, body = CALLS[call]
    path = path.format(prepare(service))
    first = ask(service, "POST", path, body, idempotency_key="k")
    assert first.status == OPERATIONS[call].status, first.body
    seq = service._session.node.store.seq
    service._session.settle()
    again = ask(service, "POST", path, body, idempotency_key="k")
    assert (again.status, again.raw) == (first.status, first.raw)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.headers.get("location") == first.headers.get("location")
    assert [commit.key.name for commit in keyed_commits(service) if commit.key] == ["k"]
    assert (
        service._session.node.store.seq >= seq
    )  # what drivers and rollouts go on with is their affair


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_answer_is_made_again_from_the_commit(call: str) -> None:
    prepare, path, body = CALLS[call]
    disk = Disk()
    with Service(SAMPLE, sockets=True, store=_Dying(disk)) as service:
        path = path.format(prepare(service))
        reported = ask(service, "POST", path, body, idempotency_key="k")
    kept = disk.keys["local", "k"]
    assert (kept.status, kept.answer) == (None, b"")  # as a process would leave it that died there
    seq = kept.seq
    with Service(SAMPLE, sockets=True, store=MemoryStore(disk)) as service:
        again = ask(service, "POST", path, body, idempotency_key="k")
        assert again.status == reported.status == OPERATIONS[call].status, again.body
        assert again.headers["idempotency-replayed"] == "true"
        assert _what_was_done(again) == _what_was_done(reported)
        assert again.headers.get("location") == reported.headers.get("location")
        assert [commit.seq for commit in keyed_commits(service)] == [seq]
        third = ask(service, "POST", path, body, idempotency_key="k")
        assert third.raw == again.raw
        assert disk.keys["local", "k"].status == again.status


def test_a_kept_answer_is_read_from_a_file(tmp_path: Path) -> None:
    class Dying(SqliteStore):
        async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
            pass

    path = tmp_path / "state.db"
    with Service(SAMPLE, sockets=True, store=Dying(path)) as service:
        reported = ask(service, "POST", "/v1/hosts/host-a/degrade", {}, idempotency_key="k")
    with Service(SAMPLE, sockets=True, store=SqliteStore(path)) as service:
        again = ask(service, "POST", "/v1/hosts/host-a/degrade", {}, idempotency_key="k")
        assert (again.status, _what_was_done(again)) == (200, _what_was_done(reported))
        assert again.headers["idempotency-replayed"] == "true"


class _Dying(MemoryStore):
    """Keeps no answers."""

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        pass


def _what_was_done(reported: ApiResponse) -> object:
    """What does not change while time goes by."""
    body = reported.body
    if "events" in body and "notes" in body and "group" not in body:
        return [one["id"] for one in body["events"]], body["notes"]
    return body.get("id") or body["name"], body.get("notes")


def test_a_key_belongs_to_one_request(service: Service) -> None:
    assert ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k").status == 201
    other = {**SCHEDULE, "machines": ["web_1"]}
    for path, body in (
        ("/v1/events", other),
        ("/v1/machines/web_0/restart", None),
    ):
        reported = ask(service, "POST", path, body, idempotency_key="k")
        assert (reported.status, reported.body["type"]) == (422, "/docs#problem-key-reused")
    assert len(ask(service, "GET", "/v1/events").body) == 1


def test_a_refusal_is_not_kept(service: Service) -> None:
    path = "/v1/machines/web_0/evict"  # which is not spot
    assert ask(service, "POST", path, idempotency_key="k").status == 409
    assert keyed_commits(service) == []
    assert ask(service, "POST", path, idempotency_key="k").status == 409
    assert ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k").status == 201


def test_the_answer_of_a_request_that_changed_nothing_is_kept_as_well(service: Service) -> None:
    path = "/v1/groups/web/scale-in"
    there = len([m for m in ask(service, "GET", "/v1/machines?group=web").body if not m["gone"]])
    first = ask(service, "POST", path, {"to": there}, idempotency_key="k")
    assert first.body["events"] == []
    ask(service, "POST", path, {"count": 1})
    again = ask(service, "POST", path, {"to": there}, idempotency_key="k")
    assert (again.status, again.raw) == (200, first.raw)


def test_one_of_two_requests_with_the_same_key_is_carried_out() -> None:
    store = _Slow()
    with Service(SAMPLE, sockets=True, store=store) as service:
        store.slow = True
        answers: list[ApiResponse] = []

        def post() -> None:
            answers.append(ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k"))

        one = threading.Thread(target=post)
        one.start()
        assert store.reached.wait(LIMIT)
        reported = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        assert (reported.status, reported.body["type"]) == (409, "/docs#problem-under-way")
        assert reported.headers["retry-after"] == "1"
        other = ask(service, "POST", "/v1/events", {**SCHEDULE, "duration": 3}, idempotency_key="k")
        assert other.status == 422
        service._session.run(store.go())
        one.join(LIMIT)
        assert [answer.status for answer in answers] == [201]
        again = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        assert again.raw == answers[0].raw


class _Slow(MemoryStore):
    """Takes its time to commit, until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.reached = threading.Event()
        self._may = asyncio.Event()

    async def go(self) -> None:
        self._may.set()

    async def _persist(self, *commits: Any) -> None:
        if self.slow:
            self.reached.set()
            await self._may.wait()
        await super()._persist(*commits)


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 201])
def test_an_invalid_key_is_refused(service: Service, key: str) -> None:
    reported = ask(service, "POST", "/v1/events", SCHEDULE, Idempotency_Key=key)
    assert reported.status == 400
    assert "visible ASCII characters" in reported.body["detail"]
    assert ask(service, "GET", "/v1/events").body == []


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("POST", "/v1/tokens", {"name": "a", "role": "viewer"}, "contains a secret"),
        ("POST", "/v1/enrollments", {"host": "host-a"}, "contains a secret"),
        ("POST", "/v1/clock/advance", {"by": 1}, "nothing of it is stored"),
        ("POST", "/v1/rollouts/plan", ROLLOUT, "it changes nothing"),
        ("PATCH", "/v1/groups/web/policy", {}, "it can be repeated safely"),
        ("GET", "/v1/machines", None, "it changes nothing"),
    ],
)
def test_a_key_is_refused_where_it_would_have_no_effect(
    service: Service, method: str, path: str, body: object, why: str
) -> None:
    reported = ask(service, method, path, body, idempotency_key="k")
    assert reported.status == 400
    assert why in reported.body["detail"]


def test_keys_of_different_callers_are_independent(service: Service) -> None:
    made = [
        ask(service, "POST", "/v1/tokens", {"name": "alice", "role": "admin"}).body,
    ]
    alice = f"Bearer {made[0]['token']}"
    bob = ask(
        service, "POST", "/v1/tokens", {"name": "bob", "role": "operator"}, authorization=alice
    ).body
    ids = []
    for token in (made[0]["token"], bob["token"]):
        reported = ask(
            service,
            *("POST", "/v1/events", SCHEDULE),
            authorization=f"Bearer {token}",
            idempotency_key="k",
        )
        ids.append(reported.body["id"])
    assert len(set(ids)) == 2


def test_an_answer_is_kept_before_it_is_sent(tmp_path: Path) -> None:
    """Not beside it: whoever has been answered finds the answer there."""
    with Service(SAMPLE, sockets=True, state=tmp_path / "state.db") as service:
        reported = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        kept = service._session.run(service._session.node.store.keyed_request("local", "k"))
        assert kept is not None
        assert (kept.status, kept.answer) == (reported.status, reported.raw)
    with Service(SAMPLE, sockets=True, state=tmp_path / "state.db") as service:
        again = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        assert (again.status, again.raw) == (reported.status, reported.raw)


def test_a_command_whose_answer_is_lost_asks_again_and_nothing_happens_twice(
    service: Service,
) -> None:
    """Through a proxy that passes the request on and then hangs up, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = service.control_url.rpartition(":")[2]

        def relay() -> None:
            for lose in (True, False):
                client, _ = listener.accept()
                with client, socket.create_connection(("127.0.0.1", int(port))) as there:
                    asked = client.recv(65_536)
                    while b"\r\n\r\n" not in asked or not asked.rstrip().endswith(b"}"):
                        block = client.recv(65_536)
                        assert block, asked
                        asked += block
                    there.sendall(asked)
                    answer = there.recv(65_536)
                    while not answer.endswith(b"}"):
                        block = there.recv(65_536)
                        assert block, answer
                        answer += block
                    if not lose:
                        client.sendall(answer)

        passing = threading.Thread(target=relay)
        passing.start()
        client = ControlClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
        made = client.schedule(s.ScheduleRequest(type="Reboot", machines=["web_0"]))
        passing.join(LIMIT)
    events = ask(service, "GET", "/v1/events").body
    assert [event["id"] for event in events] == [made.id]
    assert json.loads(msgspec.json.encode(made))["machines"] == ["web_0"]


JOINT = """
hosts: [shared]
groups:
  - {name: one, kind: standalone, machines: [{name: one, host: shared}]}
  - {name: two, kind: standalone, machines: [{name: two, host: shared}]}
"""


@pytest.mark.parametrize("verb", ["approve", "cancel"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_repeated_request_returns_the_named_event_of_a_joint_maintenance(
    verb: str, which: int
) -> None:
    disk = Disk()
    with Service(JOINT, sockets=True, store=_Dying(disk)) as service:
        made = ask(service, "POST", "/v1/hosts/shared/maintain", {"mode": "Reboot"}).body["events"]
        path = f"/v1/events/{made[which]['id']}/{verb}"
        reported = ask(service, "POST", path, idempotency_key="k")
        assert reported.body["id"] == made[which]["id"]
    with Service(JOINT, sockets=True, store=MemoryStore(disk)) as service:
        again = ask(service, "POST", path, idempotency_key="k")
        assert (again.status, again.headers["idempotency-replayed"]) == (200, "true")
        assert (again.body["id"], again.body["group"]) == (
            reported.body["id"],
            reported.body["group"],
        )


class _Full(MemoryStore):
    """Commits, but keeps no answer, and says so."""

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        raise StoreFailed("the disk is full")


def test_an_answer_that_cannot_be_stored_is_sent_nevertheless() -> None:
    with Service(SAMPLE, sockets=True, store=_Full()) as service:
        first = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        again = ask(service, "POST", "/v1/events", SCHEDULE, idempotency_key="k")
        assert (first.status, again.status) == (201, 201)
        assert again.body["id"] == first.body["id"]
        assert len(ask(service, "GET", "/v1/events").body) == 1


def test_a_repeated_command_waits_for_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks while the service is still at it: asking again is told so."""
    monkeypatch.setattr(client, "UNDER_WAY_PAUSE", 0.01)
    store = _Slow()
    with Service(SAMPLE, sockets=True, store=store) as service:
        store.slow = True
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(service.control_url.rpartition(":")[2])
            here = listener.getsockname()[1]
            waited = threading.Event()

            def relay() -> None:
                rest: list[socket.socket] = []
                while not waited.is_set():
                    caller, _ = listener.accept()
                    there = socket.create_connection(("127.0.0.1", port))
                    asked = caller.recv(65_536)
                    while b"\r\n\r\n" not in asked or not asked.rstrip().endswith(b"}"):
                        block = caller.recv(65_536)
                        assert block, asked
                        asked += block
                    there.sendall(asked.replace(str(here).encode(), str(port).encode()))
                    if not rest:  # the first: hang up while it is under way
                        assert store.reached.wait(LIMIT)
                        rest.append(there)
                        caller.close()
                        continue
                    answer = there.recv(65_536)
                    while not answer.endswith(b"}"):
                        block = there.recv(65_536)
                        assert block, answer
                        answer += block
                    if b"under-way" in answer:
                        service._session.run(store.go())
                    else:
                        waited.set()
                    caller.sendall(answer)
                    caller.close()
                    there.close()
                rest[0].close()

            thread = threading.Thread(target=relay, daemon=True)
            thread.start()
            asking = ControlClient(f"http://127.0.0.1:{here}")
            made = asking.schedule(s.ScheduleRequest(type="Reboot", machines=["web_0"]))
            thread.join(LIMIT)
        assert [one["id"] for one in ask(service, "GET", "/v1/events").body] == [made.id]


def test_only_an_unanswered_change_is_reported_as_of_unknown_outcome() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asking = ControlClient(f"http://127.0.0.1:{silent.getsockname()[1]}")
        asking.timeout = 0.2
        with pytest.raises(Unreachable, match="it is unknown"):
            asking.schedule(s.ScheduleRequest(type="Reboot", machines=["web_0"]))
        with pytest.raises(Unreachable, match="no service answers") as raised:
            asking.machines()
        assert "it is unknown" not in str(raised.value)
