"""The log of `forewarn dev` about refused requests."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from forewarn.cli.commands.dev_requests import RefusedRequestLog
from forewarn.testing import Service

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def test_a_refusal_is_logged_once_and_then_with_a_count() -> None:
    structlog.reset_defaults()
    with Service() as service, capture_logs() as logged:
        web = service.scale_set("web", 1)[0]
        trace = service._session.node.trace
        assert trace is not None
        service._session.call(trace.add_sink, RefusedRequestLog().add)
        for _ in range(30):
            web.request("GET", EVENTS)
        web.get()
        web.request("GET", "/nowhere", {"Metadata": "true"})
        service.faults.add("gone", times=1)
        web.get()
    refused = [
        (line["request"], line["status"], line.get("times"), line.get("fault")) for line in logged
    ]
    assert refused == [
        ("GET /metadata/scheduledevents", 400, None, None),
        ("GET /metadata/scheduledevents", 400, 10, None),
        ("GET /nowhere", 404, None, None),
        ("GET /metadata/scheduledevents", 410, None, "gone"),
    ]
    assert logged[0]["machine"] == "web_0"
    assert "metadata header" in logged[0]["answer"]
