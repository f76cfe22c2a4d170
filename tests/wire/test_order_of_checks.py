"""When several things are wrong with a request, which of them answers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import pytest

from forewarn.metadata.endpoint.limits import Limits
from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import (
    BAD_VERSION,
    NO_METADATA_HEADER,
    NOT_FOUND,
    THROTTLED,
    fleet_of,
    known_by_source,
    port_of,
)
from helpers.raw_http import Place, RawResponse, exchange, request

# In the order in which they answer; each spoils an otherwise good request in one way.
WRONG = [
    "malformed",
    "caller",
    "rate",
    "path",
    "verb",
    "forwarded",
    "metadata",
    "duplicate",
    "version",
    "body",
]
REFUSALS = {
    "malformed": (400, b'{"error":"Bad request. The request is not valid HTTP"}'),
    "caller": (404, NOT_FOUND),
    "rate": (429, THROTTLED),
    "path": (404, NOT_FOUND),
    "verb": (405, b'{ "error": "Method not allowed" }'),
    "forwarded": (400, b'{"error":"Bad request. X-Forwarded-For is not allowed"}'),
    "metadata": (400, NO_METADATA_HEADER),
    "duplicate": (400, b'{"error":"Bad request. A query parameter is given more than once"}'),
    "version": (400, BAD_VERSION),
    "body": (400, b'{"error":"Bad request. The body is not valid JSON"}'),
}
NEED_CONTROL = {"caller", "rate"}  # an inventory and a setting
CASES = [(one,) for one in WRONG] + list(itertools.combinations(WRONG, 2)) + [tuple(WRONG)]
CASES += [tuple(wrong for wrong in WRONG if wrong not in NEED_CONTROL)]
PLATFORM = pytest.mark.platform
SOME = [
    pytest.param(case, id="+".join(case), marks=PLATFORM if {*case} & NEED_CONTROL else ())
    for case in CASES
]
COUNT = 20  # groups of four: every case needs a machine that has asked for nothing yet


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Every machine may ask once, and no more: the time by which rates are counted stands still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "monotonic", lambda: 1.0)
        limits = Limits(throttle=1)
        with known_by_source(
            Service(fleet_of(COUNT), sockets=True, front=True, limits=limits)
        ) as service:
            yield service


@pytest.fixture(scope="module")
def machines(service: Service) -> Iterator[str]:
    return iter(service.addresses.values())


def spoiled(wrong: tuple[str, ...]) -> bytes:
    version = "never" if "version" in wrong else "2020-07-01"
    path = "/metadata/nothing" if "path" in wrong else "/metadata/scheduledevents"
    headers = [] if "metadata" in wrong else ["Metadata: true"]
    if "forwarded" in wrong:
        headers.append("X-Forwarded-For: 10.0.0.1")
    if "malformed" in wrong:
        headers.append("no colon in here")
    return request(
        "PUT" if "verb" in wrong else "POST",
        f"{path}?api-version={version}" + ("&x=1&x=1" if "duplicate" in wrong else ""),
        *headers,
        body=b"{" if "body" in wrong else b'{"StartRequests":[{"EventId":"A"}]}',
    )


@pytest.fixture
def ask(request: pytest.FixtureRequest, endpoint: Place | None) -> Callable[..., RawResponse]:
    """Requests of one machine that has asked for nothing yet, or of a stranger."""
    if endpoint is not None:
        return functools.partial(exchange, endpoint)
    port = port_of(request.getfixturevalue("service"))
    own = next(request.getfixturevalue("machines"))

    def ask(data: bytes, *, stranger: bool = False) -> RawResponse:
        return exchange(("127.0.0.1", port), data, source="127.9.9.9" if stranger else own)

    return ask


@pytest.mark.parametrize("wrong", SOME)
def test_of_several_mistakes_the_first_is_answered(
    ask: Callable[..., RawResponse], wrong: tuple[str, ...]
) -> None:
    who = {"stranger": True} if "caller" in wrong else {}
    if "rate" in wrong:
        ask(request("GET", "/metadata/versions", "Metadata: true"), **who)
    answer = ask(spoiled(wrong), **who)
    assert (answer.status, answer.body) == REFUSALS[wrong[0]]
    assert answer.header("content-type") == "application/json; charset=utf-8"


def test_an_oversized_body_is_checked_last(ask: Callable[..., RawResponse]) -> None:
    answer = ask(oversized("never"))
    assert (answer.status, answer.body) == REFUSALS["version"]


def test_an_oversized_body_of_a_valid_request_is_refused(
    ask: Callable[..., RawResponse],
) -> None:
    assert ask(oversized("2020-07-01")).status == 413


def oversized(version: str) -> bytes:
    path = f"/metadata/scheduledevents?api-version={version}"
    return request("POST", path, "Metadata: true", "Content-Length: 9999999")
