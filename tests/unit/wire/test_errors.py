"""Answers that are not a success: their bytes, letter by letter."""

from __future__ import annotations

import json
import re

import pytest

from forewarn.wire import errors
from forewarn.wire.errors import Problem, bad_version, method_not_allowed

ALL = [value for value in vars(errors).values() if isinstance(value, Problem)]


@pytest.mark.parametrize(
    ("problem", "status", "body"),
    [
        (errors.NOT_FOUND, 404, b'{ "error": "Not found" }'),
        (
            errors.NO_METADATA_HEADER,
            400,
            b'{ "error": "Bad request: . Required metadata header not specified" }',
        ),
        (errors.LEAF_WITHOUT_TEXT, 400, b'{ "error": "Bad request" }'),
        (errors.THROTTLED, 429, b"Throttle Result: Too Many Requests"),
    ],
)
def test_every_error_has_its_exact_body(problem: Problem, status: int, body: bytes) -> None:
    assert (problem.status, problem.body) == (status, body)


def test_a_wrong_version_is_answered_with_the_newest_three() -> None:
    response = bad_version(["2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"])
    assert response == Problem(
        400,
        b'{"error":"Bad request. api-version is invalid or was not specified in the request.'
        b' For more information refer to aka.ms/azureimds",'
        b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}',
    )


def test_fewer_than_three_versions_are_all_listed() -> None:
    assert json.loads(bad_version(["a", "b"]).body)["newest-versions"] == ["b", "a"]


def test_a_wrong_method_is_answered_with_the_allowed_ones() -> None:
    response = method_not_allowed("GET, POST")
    assert (response.status, response.allow) == (405, "GET, POST")
    assert isinstance(json.loads(response.body)["error"], str)


@pytest.mark.parametrize(
    "problem",
    [
        errors.FORWARDED,
        errors.DUPLICATE_PARAMETER,
        errors.MALFORMED,
        errors.NOT_JSON,
        errors.NO_START_REQUESTS,
        errors.NO_EVENT_ID,
        errors.UNKNOWN_EVENT,
        errors.TOO_MANY_EVENTS,
    ],
)
def test_a_bad_request_has_its_reason(problem: Problem) -> None:
    assert problem.status == 400
    assert re.fullmatch(rb'\{"error":"Bad request\. [^"\\]+"\}', problem.body)


@pytest.mark.parametrize("problem", ALL)
def test_every_body_except_that_of_429_is_json_with_an_error(problem: Problem) -> None:
    if problem.status == 429:
        return
    assert isinstance(json.loads(problem.body)["error"], str)
    assert not problem.body.endswith(b"\n")


def test_a_connection_that_cannot_be_trusted_any_more_is_closed() -> None:
    closing = [problem.status for problem in ALL if problem.close]
    assert sorted(closing) == [400, 408, 413, 429, 500, 503]
    assert errors.MALFORMED.close
