"""Conditional requests: what has a name for its state, who has it already is spared it, and nobody
changes what is no longer what they have seen."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.http import preconditions
from forewarn.testing import Service
from helpers.control_api import OPERATIONS, ApiResponse, ask
from helpers.waiting import LIMIT

FLEET = """
hosts: [h1, h2]
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0, host: h1}, {name: web_1, host: h2}]}
  - {name: sql, kind: standalone, machines: [{name: sql-0}]}
"""
MADE_UP = '"00000000000000000000000000000000"'


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def _event(service: Service) -> str:
    return f"/v1/events/{service.schedule('Reboot', 'web_0').id}"


def _rollout(service: Service) -> str:
    made = ask(service, "POST", "/v1/rollouts", {"type": "Reboot", "groups": ["web"]})
    service._session.settle()
    return f"/v1/rollouts/{made.body['id']}"


def at(path: str) -> Callable[[Service], str]:
    return lambda _service: path


THINGS: dict[str, Callable[[Service], str]] = {
    "machine": at("/v1/machines/web_0"),
    "group": at("/v1/groups/web"),
    "host": at("/v1/hosts/h1"),
    "event": _event,
    "rollout": _rollout,
    "fleet": at("/v1/fleet"),
}


def tag(service: Service, path: str) -> str:
    return ask(service, "GET", path).headers["etag"]


@pytest.mark.parametrize("thing", THINGS)
def test_a_resource_that_the_caller_has_is_not_sent_again(service: Service, thing: str) -> None:
    path = THINGS[thing](service)
    first = ask(service, "GET", path)
    etag = first.headers["etag"]
    for response in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        answer = ask(service, "GET", path, if_none_match=response)
        assert (answer.status, answer.raw, answer.headers["etag"]) == (304, b"", etag)
    answer = ask(service, "GET", path, if_none_match=MADE_UP)
    assert (answer.status, answer.raw) == (200, first.raw)


def test_a_tag_covers_what_is_decided_upon_and_not_how_often_a_machine_asks(
    service: Service,
) -> None:
    machine = tag(service, "/v1/machines/web_0")
    service.document("web_0")
    service.clock.advance("1h")  # it listens by then
    service.document("web_0")
    assert tag(service, "/v1/machines/web_0") == machine
    group, host, fleet = (tag(service, p) for p in ("/v1/groups/web", "/v1/hosts/h1", "/v1/fleet"))
    service.schedule("Freeze", "web_0")
    assert tag(service, "/v1/machines/web_0") != machine
    assert tag(service, "/v1/groups/web") != group
    assert tag(service, "/v1/hosts/h1") == host  # it is not about the host
    assert tag(service, "/v1/fleet") == fleet


def test_a_rollout_has_another_tag_with_every_step(service: Service) -> None:
    path = _rollout(service)
    tags = [tag(service, path)]
    while ask(service, "GET", path).body["state"] == "running":
        assert len(tags) < 1_000, tags
        service.clock.advance("10m")
        tags.append(tag(service, path))
    answer = dict.fromkeys(tags)
    assert len(answer) >= 4  # announced, started, the next one, done
    assert tags == sorted(tags, key=list(answer).index)  # and never one it had before


# What changes each thing, as its caller would, and what comes in between.
CHANGES: dict[str, tuple[str, Callable[[Service], str], str, str, object]] = {
    "restart a machine": ("machine", at("/v1/machines/web_0"), "POST", "/restart", None),
    "remove a machine": ("machine", at("/v1/machines/web_1"), "DELETE", "", None),
    "change a policy": ("group", at("/v1/groups/web"), "PATCH", "/policy", {"user_event_limit": 3}),
    "put a group": (
        "group",
        at("/v1/groups/sql"),
        "PUT",
        "",
        {"kind": "standalone", "machines": [{"name": "sql-0"}], "labels": {"a": "b"}},
    ),
    "remove a group": ("group", at("/v1/groups/sql"), "DELETE", "", None),
    "put a host": ("host", at("/v1/hosts/h1"), "PUT", "", {"labels": {"rack": "1"}}),
    "maintain a host": ("host", at("/v1/hosts/h1"), "POST", "/maintain", {"mode": "Freeze"}),
    "degrade a host": ("host", at("/v1/hosts/h1"), "POST", "/degrade", {}),
    "approve an event": ("event", _event, "POST", "/approve", None),
    "cancel an event": ("event", _event, "POST", "/cancel", None),
    "pause a rollout": ("rollout", _rollout, "POST", "/pause", {}),
    "abort a rollout": ("rollout", _rollout, "POST", "/abort", {}),
    "put a fleet": (
        "fleet",
        at("/v1/fleet"),
        "PUT",
        "",
        {"groups": [{"name": "sql", "kind": "standalone", "machines": [{"name": "sql-0"}]}]},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_resource_that_has_changed_meanwhile_is_not_changed(service: Service, what: str) -> None:
    _thing, where, method, verb, body = CHANGES[what]
    path = where(service)
    before, seq = ask(service, "GET", path), service._session.node.store.seq
    for other in (MADE_UP, f"W/{before.headers['etag']}"):  # a weak tag never matches
        answer = ask(service, method, path + verb, body, if_match=other)
        assert (answer.status, answer.body["type"]) == (412, "/docs#problem-stale")
    assert service._session.node.store.seq == seq
    assert ask(service, "GET", path).raw == before.raw
    answer = ask(service, method, path + verb, body, if_match=f'"other", {before.headers["etag"]}')
    assert answer.status == 200, answer.body
    assert service._session.node.store.seq > seq


@pytest.mark.parametrize("what", CHANGES)
def test_one_of_two_changes_with_the_same_tag_succeeds(service: Service, what: str) -> None:
    """Both are let in before either is committed: only inside the transaction can it be answer."""
    _thing, where, method, verb, body = CHANGES[what]
    path = where(service)
    etag = tag(service, path)
    answers: list[ApiResponse] = []
    waiting = threading.Barrier(2)

    def change() -> None:
        waiting.wait(LIMIT)
        answers.append(ask(service, method, path + verb, body, if_match=etag))

    both = [threading.Thread(target=change) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(LIMIT)
    statuses = sorted(answer.status for answer in answers)
    assert statuses[0] == 200
    # The second is too late, unless what it asks for makes no sense any more.
    assert statuses[1] in (412, 404, 409)


def test_the_tag_is_compared_inside_the_transaction(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else is quicker, after all that is done before the commit has been done."""
    etag = tag(service, "/v1/groups/web")
    asked = preconditions.precondition_of

    async def meanwhile(*response: Any) -> Any:
        made = await asked(*response)
        await service._session.node.platform.set_policy(
            "web", lambda policy: type(policy)(user_event_limit=7), "somebody"
        )
        return made

    monkeypatch.setattr(preconditions, "precondition_of", meanwhile)
    answer = ask(service, "PATCH", "/v1/groups/web/policy", {"user_event_limit": 3}, if_match=etag)
    assert answer.status == 412
    assert ask(service, "GET", "/v1/groups/web").body["user_event_limit"] == 7


def test_a_call_with_nothing_to_commit_is_refused_with_a_stale_tag_too(service: Service) -> None:
    path, body = "/v1/groups/web/scale-in", {"to": 2}
    etag = tag(service, "/v1/groups/web")
    assert ask(service, "POST", path, body, if_match=etag).status == 200
    answer = ask(service, "POST", path, body, if_match=MADE_UP)
    assert (answer.status, answer.headers["content-type"]) == (412, "application/problem+json")
    fleet = ask(service, "GET", "/v1/fleet")
    etag = fleet.headers["etag"]
    assert ask(service, "PUT", "/v1/fleet?plan=true", raw=fleet.raw, if_match=etag).status == 200
    answer = ask(service, "PUT", "/v1/fleet?plan=true", raw=fleet.raw, if_match=MADE_UP)
    assert answer.status == 412


def test_concurrent_changes_of_different_fields_of_a_policy_all_succeed(service: Service) -> None:
    bodies: list[dict[str, object]] = [
        {"user_event_limit": 3},
        {"all_instances_down": True},
        {"terminate_notice": 300},
    ]
    threads = [
        threading.Thread(target=ask, args=(service, "PATCH", "/v1/groups/web/policy", body))
        for body in bodies
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LIMIT)
    found = ask(service, "GET", "/v1/groups/web").body
    assert {key: found[key] for body in bodies for key in body} == {
        key: value for body in bodies for key, value in body.items()
    }


def test_a_plan_names_the_fleet_it_was_made_for(service: Service) -> None:
    text = FLEET.replace("name: sql-0", "name: sql-0, host: h1").encode()
    plan = ask(service, "PUT", "/v1/fleet?plan=true", raw=text).body
    assert plan["etag"] == tag(service, "/v1/fleet")
    ask(service, "PATCH", "/v1/groups/web/policy", {"user_event_limit": 1})
    answer = ask(service, "PUT", "/v1/fleet", raw=text, if_match=plan["etag"])
    assert answer.status == 412
    plan = ask(service, "PUT", "/v1/fleet?plan=true", raw=text).body
    assert ask(service, "PUT", "/v1/fleet", raw=text, if_match=plan["etag"]).status == 200


def test_the_command_applies_a_plan_to_the_fleet_it_was_made_for(
    service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.replace("name: sql-0", "name: sql-0, host: h1"))

    def apply(*words: str) -> Any:
        return CliRunner().invoke(app, ["apply", str(file), *words, "--url", service.control_url])

    (named,) = re.findall(r"--if-match ([0-9a-f]{32})$", apply("--plan").output, re.MULTILINE)
    ask(service, "PATCH", "/v1/groups/web/policy", {"user_event_limit": 1})
    late = apply("--if-match", named)
    assert (late.exit_code, "has changed: If-Match" in late.output) == (1, True)
    (named,) = re.findall(r"--if-match ([0-9a-f]{32})$", apply("--plan").output, re.MULTILINE)
    done = apply("--if-match", named)
    assert (done.exit_code, "1 machine changed" in done.output) == (0, True)


def test_if_match_is_refused_where_there_is_no_tag(service: Service) -> None:
    body = {"type": "Reboot", "machines": ["web_0"]}
    answer = ask(service, "POST", "/v1/events", body, if_match="*")
    assert (answer.status, ask(service, "GET", "/v1/events").body) == (400, [])
    assert "takes no If-Match" in answer.body["detail"]


def test_every_resource_that_can_be_changed_has_a_tag() -> None:
    tagged = {name.split()[1] for name, one in OPERATIONS.items() if one.tagged}
    for name, operation in OPERATIONS.items():
        if operation.conditional:
            path = "/".join(name.split()[1].split("/")[:4])
            assert path in tagged, name


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/groups/new", {"kind": "standalone", "machines": [{"name": "new"}]}),
        ("/v1/hosts/h9", {"labels": {"rack": "r1"}}),
    ],
)
def test_if_none_match_creates_and_does_not_replace(
    service: Service, path: str, body: dict[str, Any]
) -> None:
    first = ask(service, "PUT", path, body, if_none_match="*")
    assert first.status == 200, first.body
    seq = service._session.node.store.seq
    again = ask(service, "PUT", path, {**body, "labels": {"rack": "r2"}}, if_none_match="*")
    assert (again.status, again.body["type"]) == (412, "/docs#problem-stale")
    assert "already exists" in again.body["detail"]
    known = ask(service, "PUT", path, body, if_none_match=tag(service, path))
    assert known.status == 412
    assert service._session.node.store.seq == seq
    assert ask(service, "PUT", path, body, if_none_match=MADE_UP).status == 200
