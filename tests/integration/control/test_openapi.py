"""The API's document and its page: complete, published as served, and made of nothing that comes
from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
import typer

from forewarn import __version__
from forewarn.cli.app import app as commands
from forewarn.control.routes import docs
from forewarn.core import EventType, GroupKind, Source, Status
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.fleet import Health
from forewarn.core.rollouts.progress import StepState, WaitKind
from forewarn.service.faults.kinds import FaultKind as FaultKind
from forewarn.service.platform.hosts import MAINTENANCE_MODES
from forewarn.support import limits
from forewarn.testing import SAMPLE, Service
from helpers.control_api import OPERATIONS, ask
from helpers.paths import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


@pytest.fixture(scope="module")
def document(service: Service) -> Any:
    return ask(service, "GET", "/schema/openapi.json").body


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def test_every_call_is_described_and_every_description_is_of_a_call(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert {name for name, _ in operations(document)} == set(OPERATIONS)
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in document["tags"]}
    for name, operation in operations(document):
        assert operation["summary"], name
        assert set(operation["tags"]) <= tags
        assert {"4", "5"} & {status[0] for status in operation["responses"]}, name
        for link in _links(operation):
            assert link["operationId"] in ids


def _links(operation: Any) -> Iterator[Any]:
    for answer in operation["responses"].values():
        yield from answer.get("links", {}).values()


def test_the_published_document_is_the_one_that_is_served(document: Any) -> None:
    """To publish it anew: PYTHONPATH=tests python -m helpers.write_openapi"""
    published = (DOCS / "reference" / "openapi.json").read_bytes()
    assert msgspec.json.decode(published) == document
    assert document["info"]["version"] == __version__


def _property(document: Any, shape: str, name: str) -> Any:
    found = document["components"]["schemas"][shape]["properties"][name]
    return next((one for one in found.get("anyOf", ()) if one.get("type") != "null"), found)


def test_names_and_bounds_in_the_document_are_those_of_the_code(document: Any) -> None:
    for shape, name, enum in (
        ("Event", "type", EventType),
        ("Event", "status", Status),
        ("Event", "source", Source),
        ("Group", "kind", GroupKind),
        ("Host", "health", Health),
        ("MaintainRequest", "mode", MAINTENANCE_MODES.values()),
        ("Step", "state", StepState),
        ("Hold", "kind", HoldKind),
        ("Wait", "kind", WaitKind),
        ("Fault", "kind", FaultKind),
    ):
        assert _property(document, shape, name)["enum"] == [member.value for member in enum], enum
    for shape, name, key, limit in (
        ("ScheduleRequest", "description", "maxLength", limits.MAX_DESCRIPTION),
        ("ScheduleRequest", "notice", "maximum", limits.MAX_NOTICE_SECONDS),
        ("ScheduleRequest", "duration", "maximum", limits.MAX_DURATION_SECONDS),
        ("ScheduleRequest", "machines", "maxItems", limits.MAX_EVENT_MACHINES),
        ("RolloutRequest", "groups", "maxItems", limits.MAX_SELECTED),
        ("RolloutRequest", "windows", "maxItems", limits.MAX_WINDOWS),
        ("RolloutRequest", "at_once", "maximum", limits.MAX_AT_ONCE),
        ("RolloutRequest", "bake", "maximum", limits.MAX_BAKE_SECONDS),
        ("RolloutRequest", "gate_timeout", "maximum", limits.MAX_GATE_TIMEOUT_SECONDS),
        ("FaultRequest", "times", "maximum", limits.MAX_FAULT_TIMES),
        ("FaultRequest", "body", "maxLength", limits.MAX_FAULT_BODY),
        ("FaultRequest", "seed", "maximum", limits.MAX_SEED),
        ("FaultRequest", "starts_in", "maximum", limits.MAX_NOTICE_SECONDS),
    ):
        assert _property(document, shape, name)[key] == limit, (shape, name)


def test_every_field_and_parameter_is_explained_where_it_is_declared(document: Any) -> None:
    fields = {
        f"{shape}.{name}": field
        for shape, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
    }
    assert [name for name, field in fields.items() if not field.get("description")] == []
    parameters = [
        f"{name}: {parameter['name']}"
        for name, operation in operations(document)
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert parameters == []
    # The same name says what it means where it stands.
    described = {fields[f"{shape}.group"]["description"] for shape in ("Machine", "Event")}
    assert len(described) == 2


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} ")
        else:
            yield before + name, command


def _asks_the_service(command: Any) -> bool:
    """Does it take the address of one?"""
    return any("--url" in parameter.opts for parameter in command.params)


def test_every_command_that_asks_the_service_is_calls_that_anyone_can_make() -> None:
    known = {name for operation in OPERATIONS.values() for name in operation.commands}
    every = dict(_commands(typer.main.get_command(commands)))
    asking = {name for name, command in every.items() if _asks_the_service(command)}
    assert len(asking) > 30
    assert asking <= known, asking - known
    assert known <= set(every), known - set(every)


class _Page(HTMLParser):
    """What of a page points somewhere, and whether its tags are closed as they were opened."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self._open.append(tag)
        for name, value in attrs:
            assert name not in ("style", "src")
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(service: Service, document: Any) -> None:
    reported = ask(service, "GET", "/docs")
    assert reported.headers["content-type"].startswith("text/html")
    policy = reported.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    docs = _Page()
    docs.feed(reported.raw.decode())
    assert not {"script", "link", "img", "iframe", "form"} & docs.tags
    assert len(docs.ids) == len(set(docs.ids))
    inside = {link[1:] for link in docs.links if link.startswith("#") and len(link) > 1}
    assert inside <= set(docs.ids)
    assert {link for link in docs.links if not link.startswith("#")} == {"/schema/openapi.json"}
    for _, operation in operations(document):
        assert operation["operationId"] in docs.ids
    for shape in document["components"]["schemas"]:
        assert f"type-{shape}" in docs.ids


def test_the_document_and_the_page_need_no_token(service: Service) -> None:
    with Service(SAMPLE, sockets=True) as closed:
        ask(closed, "POST", "/v1/tokens", {"name": "a", "role": "admin"})
        assert ask(closed, "GET", "/v1/machines").status == 401
        assert ask(closed, "GET", "/docs").status == 200
        assert ask(closed, "GET", "/schema/openapi.json").status == 200


def test_only_authenticated_callers_learn_that_the_clock_is_virtual(service: Service) -> None:
    clock = msgspec.json.decode(ask(service, "GET", "/v1/machines").headers["forewarn-clock"])
    assert clock == {"now": "2027-01-15T08:00:00Z", "virtual": True, "speed": 1.0}
    with Service(SAMPLE, sockets=True, real_time=True) as real:
        assert "forewarn-clock" not in ask(real, "GET", "/v1/machines").headers
    with Service(SAMPLE, sockets=True) as closed:
        ask(closed, "POST", "/v1/tokens", {"name": "a", "role": "admin"})
        refused = ask(closed, "GET", "/v1/machines")
        assert refused.status == 401
        assert "forewarn-clock" not in refused.headers
        assert "forewarn-clock" not in ask(closed, "GET", "/healthz").headers


@pytest.mark.parametrize("path", ["/docs", "/schema/openapi.json"])
def test_the_document_for_anonymous_callers_is_made_once(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    first = ask(service, "GET", path)

    def never(*_: object) -> str:
        raise AssertionError("made anew")

    monkeypatch.setattr(docs, "render", never)
    monkeypatch.setattr(docs, "document", never)
    again = ask(service, "GET", path)
    assert (again.status, again.raw) == (200, first.raw)
    assert again.headers["etag"] == first.headers["etag"]
    spared = ask(service, "GET", path, if_none_match=first.headers["etag"])
    assert (spared.status, spared.raw) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/docs", "/schema/openapi.json", "/healthz", "/readyz", "/leaderz", "/metrics", "/"]
)
def test_the_head_of_a_page_can_be_asked_for_alone(service: Service, path: str) -> None:
    whole, head = ask(service, "GET", path), ask(service, "HEAD", path)
    assert (head.status, head.raw) == (whole.status, b"")
    names = whole.headers.keys() - {"x-request-id", "content-length"}
    assert {name: head.headers[name] for name in names} == {n: whole.headers[n] for n in names}
