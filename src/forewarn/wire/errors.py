"""The error responses of the metadata endpoint, with their exact bodies.

Odd spaces and the odd `: .` are those of the real service; some clients compare them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

JSON = "application/json; charset=utf-8"


class Problem(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    allow: str = ""  # for 405
    close: bool = False  # close the connection after the response


NOT_FOUND = Problem(404, b'{ "error": "Not found" }')
NO_METADATA_HEADER = Problem(
    400, b'{ "error": "Bad request: . Required metadata header not specified" }'
)
# Clients that look for a managed identity ask again for half a minute after a 404.
NO_IDENTITY = Problem(400, b'{"error":"invalid_request","error_description":"Identity not found"}')
NO_RESOURCE = Problem(
    400,
    b'{"error":"invalid_request","error_description":"Required query variable resource is missing'
    b' or too long"}',
)
NAMED_HOST = Problem(
    400,
    b'{"error":"invalid_request","error_description":"Host must be the address of this service"}',
)
LEAF_WITHOUT_TEXT = Problem(400, b'{ "error": "Bad request" }')
FORWARDED = Problem(400, b'{"error":"Bad request. X-Forwarded-For is not allowed"}')
DUPLICATE_PARAMETER = Problem(
    400, b'{"error":"Bad request. A query parameter is given more than once"}'
)
MALFORMED = Problem(400, b'{"error":"Bad request. The request is not valid HTTP"}', close=True)
NOT_JSON = Problem(400, b'{"error":"Bad request. The body is not valid JSON"}')
NO_START_REQUESTS = Problem(
    400, b'{"error":"Bad request. StartRequests must be a list of at least one event"}'
)
NO_EVENT_ID = Problem(
    400, b'{"error":"Bad request. Every entry of StartRequests needs an EventId"}'
)
BAD_TIMEOUT = Problem(
    400, b'{"error":"Bad request. timeout must be a number of seconds or a duration such as 30s"}'
)
BAD_READINESS = Problem(
    400,
    b'{"error":"Bad request. The body must be empty, or an object in which'
    b' ready is true or false and note is a string"}',
)
BAD_POSTPONEMENT = Problem(
    400,
    b'{"error":"Bad request. The body must be an object in which until is a time'
    b' such as 2030-01-31T18:00:00Z"}',
)
UNKNOWN_EVENT = Problem(400, b'{"error":"Bad request. An EventId is not known"}')
MAX_PAST_EVENTS = 256  # of one approval: they have to be looked up
TOO_MANY_EVENTS = Problem(
    400,
    b'{"error":"Bad request. At most %d events may be named that are not in the document"}'
    % MAX_PAST_EVENTS,
)
TOO_LARGE = Problem(413, b'{"error":"Request body is too large"}', close=True)
TOO_SLOW = Problem(408, b'{"error":"Request body did not arrive in time"}', close=True)
THROTTLED = Problem(429, b"Throttle Result: Too Many Requests")
TOO_MANY_CONNECTIONS = Problem(429, THROTTLED.body, close=True)
BUSY = Problem(503, b'{"error":"The service has too many connections. Try again"}', close=True)
STOPPING = Problem(500, b'{"error":"The service is stopping. Try again"}', close=True)
NOT_CARRIED_OUT = Problem(500, b'{"error":"The request could not be carried out. Try again"}')


def method_not_allowed(allow: str) -> Problem:
    return Problem(405, b'{ "error": "Method not allowed" }', allow)


def note_too_long(limit: int) -> Problem:
    message = f"Bad request. The note must not be longer than {limit} characters"
    return Problem(400, json.dumps({"error": message}, separators=(",", ":")).encode())


def not_postponed(reason: str) -> Problem:
    return Problem(409, json.dumps({"error": reason}, separators=(",", ":")).encode())


def changed_too_often(limit: int) -> Problem:
    message = f"Too many changes. A machine may change its readiness for one event {limit} times"
    return Problem(429, json.dumps({"error": message}, separators=(",", ":")).encode())


def bad_version(supported: Sequence[str]) -> Problem:
    """Return the error for a wrong api-version, with the newest three of the supported ones, which
    are in ascending order."""
    body = {
        "error": "Bad request. api-version is invalid or was not specified in the request."
        " For more information refer to aka.ms/azureimds",
        "newest-versions": list(reversed(supported[-3:])),
    }
    return Problem(400, json.dumps(body, separators=(",", ":")).encode())
