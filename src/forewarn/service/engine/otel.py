"""OpenTelemetry traces; off unless a collector is configured.

While it is off, nothing is imported and spans do nothing. A request to the control API, the commit
it led to and the driver's attempt that followed are one trace: the trace of an attempt is found by
the id of its event.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from forewarn import __version__
from forewarn.core import Event, Refused
from forewarn.core.changes import Change, EventMoved
from forewarn.store.port import Commit
from forewarn.support.log_throttle import LogThrottle

MAX_EVENTS = 10_000  # events whose trace is remembered
EXPORT_TIMEOUT = 5  # seconds for one delivery
EXPORT_EVERY = 1_000  # milliseconds between two
FINAL_EXPORT_TIMEOUT = 3.0  # seconds for the last delivery when the service stops

_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")

MAX_NAMED = 20  # events and groups that a commit names

TRACE_HEADERS = ("traceparent", "tracestate")  # headers that say which trace a request belongs to


class TracesUnusable(Exception):
    """Traces are configured and cannot be sent; the message says why."""


class _Tracing:
    """The tracer while tracing is on. `api` is the module `opentelemetry.trace`."""

    def __init__(self, provider: Any, api: Any, propagator: Any, no_context: Any) -> None:
        self.provider = provider
        self.api = api
        self.propagator = propagator
        self.tracer = provider.get_tracer("forewarn", __version__)
        self.no_context = no_context
        self.events: OrderedDict[str, tuple[Any, Any]] = OrderedDict()

    @contextlib.contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Any], context: Any = None, links: Any = ()
    ) -> Iterator[Any]:
        given = {key: value for key, value in attributes.items() if value not in ("", None)}
        with self.tracer.start_as_current_span(
            name, context=context, attributes=given, links=links, record_exception=False
        ) as span:
            yield span

    def remember(self, span: Any, ids: Iterable[str]) -> None:
        current = span.get_span_context()
        for id in ids:
            first, _ = self.events.pop(id, (current, None))
            self.events[id] = first, current
            if len(self.events) > MAX_EVENTS:
                self.events.popitem(last=False)


_on: _Tracing | None = None  # one for the whole process
_OFF: AbstractContextManager[None] = contextlib.nullcontext()


def installed() -> bool:
    """Whether the packages that sending needs are there."""
    try:
        return all(importlib.util.find_spec(name) for name in _PACKAGES)
    except ModuleNotFoundError:  # of a package in which one of them would be
        return False


def start(url: str) -> None:
    """Send traces from now on to the collector at this address, by OTLP over HTTP."""
    global _on
    if not url.startswith(("http://", "https://")):
        raise TracesUnusable(f"traces = {url}: must be a URL such as http://127.0.0.1:4318")
    try:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise TracesUnusable(
            f"traces = {url}: this needs OpenTelemetry's packages: pip install 'forewarn[otel]'"
        ) from error
    resource = Resource.create({"service.name": "forewarn", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=_endpoint(url), timeout=EXPORT_TIMEOUT)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=EXPORT_EVERY))
    _throttle_exporter_log()
    _on = _Tracing(provider, trace, TraceContextTextMapPropagator(), Context())


def stop() -> None:
    """Deliver what is left. Blocks for up to FINAL_EXPORT_TIMEOUT seconds."""
    global _on
    on, _on = _on, None
    if on is not None:
        last = threading.Thread(target=on.provider.shutdown, name="last traces", daemon=True)
        last.start()
        last.join(FINAL_EXPORT_TIMEOUT)


@contextlib.contextmanager
def sent_to(url: str) -> Iterator[None]:
    """Send traces to a collector in the meantime; to none if the address is empty."""
    if not url:
        yield
        return
    start(url)
    try:
        yield
    finally:
        stop()


def active() -> bool:
    return _on is not None


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    """Open a span within the current one."""
    return _OFF if _on is None else _on.span(name, attributes)


def call(name: str, headers: Mapping[str, str], **attributes: Any) -> AbstractContextManager[Any]:
    """Open a span for a request, within the trace that its headers name."""
    if _on is None:
        return _OFF
    carrier = {key: headers[key] for key in TRACE_HEADERS if key in headers}
    return _on.span(name, attributes, _on.propagator.extract(carrier, _on.no_context))


def attempt(event: Event) -> AbstractContextManager[Any]:
    """Open a span for a driver's attempt, in the trace of the commit that recorded it. It is linked
    to the commit that raised the event if that is another."""
    if _on is None:
        return _OFF
    first, last = _on.events.get(event.id, (None, None))
    context, links = _on.no_context, []
    if last is not None:
        context = _on.api.set_span_in_context(_on.api.NonRecordingSpan(last), context)
        if first is not last:
            links = [_on.api.Link(first)]
    return _on.span(
        "driver attempt",
        {
            "forewarn.event_id": event.id,
            "forewarn.event_type": event.type.value,
            "forewarn.group": event.group,
            "forewarn.attempt": event.attempt.number if event.attempt else 0,
        },
        context,
        links,
    )


def remember(span: Any, changes: Mapping[str, Iterable[Change]]) -> None:
    """Let later attempts at these events belong to the trace of this span."""
    if _on is not None and span is not None:
        moved = (item for items in changes.values() for item in items)
        _on.remember(span, [item.event.id for item in moved if isinstance(item, EventMoved)])


def committed(span: Any, commit: Commit | None, refusal: Sequence[Refused]) -> None:
    """Note the result of a commit in its span."""
    if span is None:
        return
    if refusal:
        note(span, refused=refusal[0].reason.value)
    if commit is None:
        return
    items = (item for entry in commit.entries for item in entry.items)
    ids = dict.fromkeys(item.event.id for item in items if isinstance(item, EventMoved))
    groups = [entry.group for entry in commit.entries]
    note(span, commit=commit.seq, event_ids=list(ids)[:MAX_NAMED], groups=groups[:MAX_NAMED])


def note(span: Any, **attributes: Any) -> None:
    """Add attributes to a span that are only known at its end."""
    if span is not None:
        given = {f"forewarn.{key}": value for key, value in attributes.items() if value != ""}
        span.set_attributes(given)


def answered(span: Any, status: int, by: str, route: str) -> None:
    """Note the response in the span of a request."""
    if span is None or _on is None:
        return
    span.update_name(route)
    span.set_attribute("http.response.status_code", status)
    note(span, by=by)
    if status >= 500:
        span.set_status(_on.api.StatusCode.ERROR)


def _endpoint(url: str) -> str:
    """Add the path for traces to a collector's address, which usually comes without."""
    return url if url.rstrip("/").endswith("/v1/traces") else url.rstrip("/") + "/v1/traces"


class _ThrottledExporterLog(logging.Filter):
    """Log the failures of an exporter at most once a minute, whatever they are."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._throttle.record():
            return False
        # As a warning, and without the traceback: the service works without its traces.
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = None
        return True


def _throttle_exporter_log() -> None:
    throttled = _ThrottledExporterLog()
    for name in (
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "opentelemetry.sdk._shared_internal",
        "opentelemetry.sdk.trace.export",
        "opentelemetry.sdk.trace",
        "urllib3.connectionpool",
    ):
        logging.getLogger(name).addFilter(throttled)
