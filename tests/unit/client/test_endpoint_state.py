"""What a client knows about its endpoint: the kind of its current problem is one of a few."""

from __future__ import annotations

import pytest

from forewarn.client.endpoint_state import FAILURE_KINDS, NONE_FOUND, EndpointState, failure_kind
from forewarn.client.steps import FAILURES, Location, Response

HERE = Location("127.0.0.1", 8169)


def response(status: int | None, body: bytes = b"", failure: str = "") -> Response:
    return Response(status=status, body=body, failure=failure, sent_at=0.0, received_at=0.0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        *((response(None, failure=failure), failure) for failure in FAILURES),
        (response(404), "4xx"),
        (response(503), "5xx"),
        (response(200, b"something that is no document"), "not-a-document"),
    ],
)
def test_a_kind_of_failure_is_one_of_a_few_whatever_was_answered(
    answer: Response, kind: str
) -> None:
    assert failure_kind(answer) == kind
    assert kind in FAILURE_KINDS
    state = EndpointState(HERE, long_poll=True, clock=lambda: 0.0)
    state.failed(HERE, answer)
    assert (state.status.problem_kind, state.status.failures_by_kind) == (kind, {kind: 1})
    state.succeeded(HERE)
    assert (state.status.problem, state.status.problem_kind) == ("", "")


def test_a_missing_endpoint_is_a_kind_of_failure_of_its_own() -> None:
    state = EndpointState(None, long_poll=True, clock=lambda: 0.0)
    state.record_problem("no endpoint answers: …")
    assert state.status.problem_kind == NONE_FOUND
    assert NONE_FOUND in FAILURE_KINDS
