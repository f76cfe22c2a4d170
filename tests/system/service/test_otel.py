"""Traces as a collector gets them: what belongs together, what is in them, and what is not."""

from __future__ import annotations

import http.client
import http.server
import json
import logging
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.rollouts import RolloutRequest
from forewarn.core.access import Role
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.service.engine import otel
from forewarn.testing import SAMPLE, Service
from helpers.serve_process import environment, write_settings
from helpers.waiting import LIMIT, until

ERROR = 2  # of a span's status


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP, as protobuf."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.raw: list[bytes] = []
        self.resources: list[dict[str, str]] = []
        self.answers = 200
        super().__init__(("127.0.0.1", 0), _Taking)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]


class _Taking(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        if self.server.answers == 200:
            self.server.raw.append(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                output = {a.key: a.value.string_value for a in resource.resource.attributes}
                self.server.resources.append(output)
                for scope in resource.scope_spans:
                    self.server.spans.extend(scope.spans)
        self.send_response(self.server.answers)
        self.end_headers()

    def log_message(self, *output: object) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


@pytest.fixture
def traced(collector: Collector) -> Iterator[Collector]:
    with otel.sent_to(collector.url):
        yield collector


def attributes(span: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in span.attributes:
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        if kind == "array_value":
            value = [one.string_value for one in value.values]
        found[attribute.key] = value
    return found


def post(service: Service, path: str, body: object, **headers: str) -> int:
    """Without a body where there is none to send."""
    request = urllib.request.Request(
        service.control_url + path,
        b"" if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return int(answer.status)


def test_a_call_its_commit_and_the_drivers_attempt_are_one_trace(collector: Collector) -> None:
    with otel.sent_to(collector.url), Service(SAMPLE, sockets=True) as service:
        service.get("web_0")
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        wanted = {"type": "Reboot", "machines": ["web_0"]}
        post(service, "/v1/events", wanted, traceparent=parent)
        (event,) = service._session.node.platform.active()
        post(service, f"/v1/events/{event.id}/approve", None)
        service._session.settle()
    (raising,) = collector.named("POST /v1/events")
    assert raising.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"  # its caller's
    assert raising.parent_span_id.hex() == "b7ad6b7169203331"
    output = attributes(raising)
    assert output["http.request.method"] == "POST"
    assert output["http.response.status_code"] == 201
    assert output["forewarn.by"] == "operator"
    commits = {span.span_id: span for span in collector.named("commit")}
    (raised,) = [span for span in commits.values() if span.parent_span_id == raising.span_id]
    assert raised.trace_id == raising.trace_id
    assert attributes(raised)["forewarn.event_ids"] == [event.id]
    approving = next(s for s in collector.spans if s.name.endswith("/approve"))
    assert event.id not in approving.name  # the route, not the id
    (approved,) = [s for s in commits.values() if s.parent_span_id == approving.span_id]
    (attempt,) = collector.named("driver attempt")
    assert attempt.parent_span_id == approved.span_id
    assert attempt.trace_id == approving.trace_id
    assert [link.span_id for link in attempt.links] == [raised.span_id]
    output = attributes(attempt)
    assert (output["forewarn.event_id"], output["forewarn.event_type"]) == (event.id, "Reboot")
    assert (output["forewarn.group"], output["forewarn.attempt"]) == ("web", 1)
    assert output["forewarn.result"] in ("again", "done")
    # Its answer is stored within it.
    assert any(span.parent_span_id == attempt.span_id for span in commits.values())
    assert collector.resources[0]["service.name"] == "forewarn"


def test_actions_of_a_deadline_have_a_trace_of_their_own(collector: Collector) -> None:
    with otel.sent_to(collector.url), Service(SAMPLE, sockets=True) as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        service.clock.advance("15m")
    commits = {span.span_id: span for span in collector.named("commit")}
    (attempt, *_) = collector.named("driver attempt")
    started = commits[attempt.parent_span_id]
    assert started.parent_span_id == b""
    assert attributes(started)["forewarn.event_ids"] == [event.id]
    (raised,) = [commits[link.span_id] for link in attempt.links]
    assert raised.trace_id != attempt.trace_id


def test_announcements_of_a_rollout_are_traced(collector: Collector) -> None:
    with otel.sent_to(collector.url), Service(SAMPLE, sockets=True) as service:
        client = ControlClient(service.control_url)
        rollout = client.start_rollout(RolloutRequest(type="Reboot", groups=["web"]))
        service._session.settle()
    (announce, *_) = collector.named("rollout announce")
    assert attributes(announce)["forewarn.rollout"] == rollout.id
    commits = collector.named("commit")
    assert any(span.parent_span_id == announce.span_id for span in commits)


def test_traces_have_refusals_and_faults_but_no_secrets_or_bodies(collector: Collector) -> None:
    with otel.sent_to(collector.url), Service(SAMPLE, sockets=True) as service:
        token = service._session.run(
            service._session.node.tokens.create(NewToken(name="root", role=Role.ADMIN), "test")
        )
        assert isinstance(token, CreatedToken)
        bearer = {"Authorization": f"Bearer {token.secret.text}"}
        body = {"type": "Reboot", "machines": ["web_0"], "description": "not for others"}
        post(service, "/v1/events", body, **bearer)
        with pytest.raises(ControlError):
            ControlClient(service.control_url).evict_machine("web_2")
    (call,) = collector.named("POST /v1/events")
    assert attributes(call)["forewarn.by"] == "root"
    refused = [s for s in collector.spans if attributes(s).get("http.response.status_code") == 401]
    assert len(refused) == 1
    everything = b"".join(collector.raw)
    for word in (
        token.secret.text,
        token.secret.text[-10:],
        "not for others",
        "127.0.0.1",
    ):
        assert word.encode() not in everything


def test_guests_polls_are_not_traced(collector: Collector) -> None:
    with otel.sent_to(collector.url), Service(SAMPLE, sockets=True) as service:
        service.get("web_0")
        for _ in range(20):
            service.get("web_0")
    assert {span.name for span in collector.spans} <= {"commit"}


def test_a_failing_collector_stops_nothing_and_is_logged_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answers = 503
    with caplog.at_level(logging.DEBUG), Service(SAMPLE, sockets=True) as service:
        with otel.sent_to(collector.url):
            for _ in range(30):
                service.cancel(service.schedule("Freeze", "web_0"))
        assert service.get("web_0").status == 200
    reported = [r for r in caplog.records if r.name.startswith("opentelemetry")]
    assert len(reported) <= 1
    assert all(record.exc_info is None for record in reported)


def test_opentelemetry_is_not_imported_while_it_is_off() -> None:
    """The names that Litestar looks up for itself left aside."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from forewarn.testing import SAMPLE, Service\n"
            "with Service(SAMPLE, sockets=True) as service:\n"
            "    assert service.control_url\n"
            "    service.schedule('Reboot', 'web_0')\n"
            "print([n for n in sys.modules if n.startswith('opentelemetry.sdk')])",
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout == "[]\n", done.stderr


def test_without_the_packages_serve_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    settings = write_settings(tmp_path, 'traces = "http://127.0.0.1:4318"\n')
    result = CliRunner().invoke(app, ["serve", "--config", str(settings)])
    assert result.exit_code == 1
    line = result.stderr.splitlines()[-1]
    assert line.startswith("forewarn: traces = http://127.0.0.1:4318: ")
    assert line.endswith("'forewarn[otel]'")


def test_an_address_of_traces_that_is_no_url_is_refused() -> None:
    with pytest.raises(otel.TracesUnusable, match="such as http"):
        otel.start("collector:4318")
    assert not otel.active()


def test_the_service_sends_its_remaining_traces_when_it_stops(
    tmp_path: Path, collector: Collector
) -> None:
    from helpers.serve_process import running_service

    settings = write_settings(tmp_path, f'traces = "{collector.url}"\n')
    with running_service(tmp_path, settings) as service:
        connection = http.client.HTTPConnection(service.control.removeprefix("http://"))
        connection.request("POST", "/v1/machines/web-0/restart")
        assert connection.getresponse().status < 300
        connection.close()
    until(lambda: bool(collector.named("commit")))
