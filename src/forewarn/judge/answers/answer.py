"""Judges each answer with its request: status, headers, error bodies.

Everything here is proven by a single exchange, except that request ids and tags are compared with
those of other answers.
"""

import json

from forewarn.judge.dialect import (
    BAD_REQUEST_PREFIX,
    BAD_VERSION,
    CONTENT_TYPE,
    NOT_FOUND,
    THROTTLED,
    read_rfc1123,
)
from forewarn.judge.findings import Findings
from forewarn.judge.reading.fleet import Caller
from forewarn.judge.reading.records import Exchange, Pairs, Trace

from .request import Request, plain_tag

_JSON_STATUSES = frozenset({200, 400, 404, 405, 500})
# What a server may answer to something that is not HTTP.
_MALFORMED_STATUSES = frozenset({400, 408, 413, 414, 431, 501})
_NOT_READ = frozenset({408, 413})  # the request was too slow or too long to be read
# Seconds; a request that took less was not too slow to be read.
REQUEST_TIMEOUT = 1.0


def header(headers: Pairs, name: str) -> str | None:
    return next((value for key, value in headers if key == name), None)


class Answers:
    """Checks answers one by one, in any order."""

    def __init__(self, findings: Findings, trace: Trace) -> None:
        self._findings = findings
        self._trace = trace
        self._ids: dict[str, Exchange] = {}
        self._tag_of: dict[tuple[str, str, bytes], str] = {}
        self._body_of: dict[tuple[str, str, str], bytes] = {}
        # Polls answered 500, which is correct if the group could not be enabled (failed_polls.py).
        self.failed: list[tuple[Exchange, Caller]] = []

    def check(self, exchange: Exchange, request: Request, caller: Caller) -> None:
        headers = exchange.answer_headers
        if headers is not None:
            self._check_headers(exchange, headers, request, caller)
        if request.about_events:
            self._check_status(exchange, request, caller)
            if headers is not None:
                self._check_endpoint_headers(exchange, headers, request, caller)
        elif exchange.status == 200 and request.version is not None:
            if caller.membership == "unknown":
                self._report_unknown_caller(exchange, caller)
            if headers is not None:
                self._check_endpoint_headers(exchange, headers, request, caller)
        elif request.not_found:
            self._check_not_found(exchange, request, caller)
        shows = request.about_events or request.version is not None
        if shows and exchange.method == "GET" and exchange.status == 304:
            self._check_304(exchange, header(headers or (), "etag"), request, caller)

    def _report(self, rule: str, message: str, exchange: Exchange, caller: Caller) -> None:
        self._findings.add(rule, message, t=exchange.t, group=caller.group, machine=caller.machine)

    # Headers that every answer has, on whatever path.

    def _check_headers(
        self, exchange: Exchange, headers: Pairs, request: Request, caller: Caller
    ) -> None:
        values = dict(headers)
        date = values.get("date")
        if date is None:
            self._report("date-header", "An answer has no Date.", exchange, caller)
        elif read_rfc1123(date) is None:
            self._report("date-header", f"Date is {date!r}, not RFC 1123.", exchange, caller)
        server = values.get("server")
        if server is None or not server.startswith("IMDS/"):
            self._report("server-header", f"Server is {server!r}, not IMDS/….", exchange, caller)
        length = values.get("content-length")
        if length is None:
            # On other paths an answer may come in chunks.
            if exchange.status == 200 and (request.about_events or request.version is not None):
                self._report("content-length", "A 200 has no Content-Length.", exchange, caller)
        elif length != str(len(exchange.answer)) and not _may_leave_out_body(exchange):
            message = f"Content-Length is {length}, the body has {len(exchange.answer)} bytes."
            self._report("content-length", message, exchange, caller)
        self._check_request_id(exchange, values.get("x-ms-request-id"), caller)

    def _check_request_id(self, exchange: Exchange, request_id: str | None, caller: Caller) -> None:
        if not request_id:
            self._report("request-id", "An answer has no x-ms-request-id.", exchange, caller)
            return
        first = self._ids.setdefault(request_id, exchange)
        if first is exchange:
            return
        if not self._trace.complete and _same_exchange(first, exchange, self._trace.clock_error):
            return
        message = "An x-ms-request-id was given to two requests."
        self._report("request-id", message, exchange, caller)

    def _report_unknown_caller(self, exchange: Exchange, caller: Caller) -> None:
        message = (
            f"A caller from {exchange.source}, which is not a machine of the fleet, got a 200."
        )
        self._report("unknown-caller", message, exchange, caller)

    def report_failed(self, exchange: Exchange, caller: Caller) -> None:
        message = f"A {exchange.method} was answered {exchange.status}."
        self._report("server-error", message, exchange, caller)

    # What the endpoint itself promises.

    def _check_status(self, exchange: Exchange, request: Request, caller: Caller) -> None:
        status = exchange.status
        assert status is not None
        if request.malformed and status in _MALFORMED_STATUSES:
            return
        if status == 408 and exchange.t - exchange.asked >= REQUEST_TIMEOUT:
            return  # it may have been sent too slowly
        if status == 503 and _closes(exchange):
            return  # the connection was over the limit
        if caller.membership == "unknown":
            if status == 200:
                self._report_unknown_caller(exchange, caller)
            elif status == 500 and exchange.host is not None:
                pass  # the node cannot ask control who it is
            elif status != 404:
                message = f"A caller that is not a machine of the fleet got {status}, not 404."
                self._report("wrong-status", message, exchange, caller)
            else:
                self._check_error_body(exchange, request, caller)
            return
        if exchange.method == "POST" and status in (304, 412):
            message = f"A POST was answered {status}; If-None-Match has no meaning there."
            self._report("post-precondition", message, exchange, caller)
            return
        if status == 500 and exchange.method == "GET":
            self.failed.append((exchange, caller))
            return
        if status >= 500 and not (status == 500 and exchange.method == "POST"):
            self.report_failed(exchange, caller)
            return
        if status in (404, 429):
            if status == 404 and caller.membership == "known":
                self._report("wrong-status", "A machine of the fleet got 404.", exchange, caller)
            else:
                self._check_error_body(exchange, request, caller)
            return
        expected = request.expected
        if expected is None:
            return
        if status not in expected.statuses:
            allowed = " or ".join(
                str(code) for code in sorted(expected.statuses) if code not in (408, 413)
            )
            message = (
                f"A {exchange.method} was answered {status}, not {allowed}: {expected.reason}."
            )
            self._report("wrong-status", message, exchange, caller)
        elif status == 400:
            self._check_error_body(exchange, request, caller)
        elif status == 200 and exchange.method == "POST" and exchange.answer:
            message = (
                f"An accepted approval was answered with {len(exchange.answer)} bytes of body."
            )
            self._report("approval-body", message, exchange, caller)

    def _check_not_found(self, exchange: Exchange, request: Request, caller: Caller) -> None:
        status = exchange.status
        assert status is not None
        if status in (404, 429):
            self._check_error_body(exchange, request, caller)
        elif (
            status not in _NOT_READ
            and status < 500
            and not (request.malformed and status in _MALFORMED_STATUSES)
        ):
            message = (
                f"A {exchange.method} was answered {status}, not 404: the path does not exist."
            )
            self._report("wrong-status", message, exchange, caller)

    def _check_error_body(self, exchange: Exchange, request: Request, caller: Caller) -> None:
        answer = exchange.answer
        if exchange.method == "HEAD":
            return
        if exchange.status == 404:
            matches = answer == NOT_FOUND
        elif exchange.status == 429:
            matches = THROTTLED in answer
        else:
            expected = request.expected
            assert expected is not None
            # The body for a wrong api-version is used for nothing else.
            is_other_error = answer != BAD_VERSION and _is_bad_request(answer)
            matches = answer in expected.errors or (expected.any_error and is_other_error)
        if not matches:
            text = answer[:120].decode("utf-8", "replace")
            self._report(
                "error-body", f"The body of a {exchange.status} is {text!r}.", exchange, caller
            )

    def _check_endpoint_headers(
        self, exchange: Exchange, headers: Pairs, request: Request, caller: Caller
    ) -> None:
        status = exchange.status
        if status in _JSON_STATUSES:
            kind = header(headers, "content-type")
            if kind is None:
                # An empty body needs no type.
                is_wrong = bool(exchange.answer)
            else:
                is_wrong = kind != CONTENT_TYPE and kind.lower() != CONTENT_TYPE
            if is_wrong:
                message = f"A {status} has Content-Type {kind!r}."
                self._report("content-type", message, exchange, caller)
        if status == 405:
            verbs = {verb.strip() for verb in (header(headers, "allow") or "").split(",")}
            if not {"GET", "POST"} <= verbs:
                message = "A 405 does not name GET and POST in Allow."
                self._report("allow-header", message, exchange, caller)
        if exchange.method == "GET" and status == 200 and request.version is not None:
            self._check_tag(exchange, header(headers, "etag"), request, caller)

    def _check_tag(
        self, exchange: Exchange, tag: str | None, request: Request, caller: Caller
    ) -> None:
        if tag is None or len(tag) < 3 or tag[0] != '"' or tag[-1] != '"' or '"' in tag[1:-1]:
            self._report("etag-form", f"A document's ETag is {tag!r}.", exchange, caller)
            return
        if request.tags is not None and tag[1:-1] in request.tags:
            message = "If-None-Match named the tag of the document, but the document was sent."
            self._report("missed-304", message, exchange, caller)
        if caller.key is None:
            return
        assert request.version is not None
        key = (caller.key, request.version.name)
        if self._tag_of.setdefault((*key, exchange.answer), tag) != tag:
            message = "The same document was served under two ETags."
            self._report("etag-mismatch", message, exchange, caller)
        if self._body_of.setdefault((*key, tag[1:-1]), exchange.answer) != exchange.answer:
            message = f"Two documents were served under the ETag {tag}."
            self._report("etag-mismatch", message, exchange, caller)

    def _check_304(
        self, exchange: Exchange, tag: str | None, request: Request, caller: Caller
    ) -> None:
        if exchange.answer:
            self._report("wrong-304", "A 304 has a body.", exchange, caller)
        if request.tags is None:
            self._report("wrong-304", "A 304 answers no If-None-Match.", exchange, caller)
        elif "0" in request.tags and len(request.tags) == 1:
            # What clients send first, before they know any tag; no hash is that short.
            self._report("wrong-304", "A 304 answers If-None-Match: 0.", exchange, caller)
        elif tag is not None and plain_tag(tag) not in request.tags and "*" not in request.tags:
            message = "A 304 carries an ETag that If-None-Match does not name."
            self._report("wrong-304", message, exchange, caller)


def _closes(exchange: Exchange) -> bool:
    connection = header(exchange.answer_headers or (), "connection") or ""
    return "close" in connection.lower()


def _may_leave_out_body(exchange: Exchange) -> bool:
    """Whether Content-Length may name the length of a body that was not sent."""
    return exchange.method == "HEAD" or exchange.status == 304


def _same_exchange(first: Exchange, second: Exchange, clock_error: float) -> bool:
    """Return whether both could be the same exchange, written by two recorders."""
    return (
        first.asked <= second.t + clock_error
        and second.asked <= first.t + clock_error
        and first.target == second.target
        and first.method == second.method
        and first.status == second.status
        and first.answer == second.answer
    )


def _is_bad_request(answer: bytes) -> bool:
    if not answer.startswith(BAD_REQUEST_PREFIX):
        return False
    try:
        value = json.loads(answer)
    except ValueError:
        return False
    return isinstance(value, dict)
