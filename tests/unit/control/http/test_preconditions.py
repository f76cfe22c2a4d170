"""Tags: which of them match, and how a place in a body is pointed at."""

from __future__ import annotations

import pytest

from forewarn.control.http.preconditions import bytes_tag, matching
from forewarn.control.http.problems import BY_NAME, from_refusal, pointer, problem_of
from forewarn.core.refusal import Hint, invalid, unknown_name

TAG = bytes_tag(b"it")


@pytest.mark.parametrize(
    ("response", "strongly", "weakly"),
    [
        (TAG, True, True),
        ("*", True, True),
        (f'"x", {TAG}', True, True),
        (f'{TAG},"x"', True, True),
        (f"W/{TAG}", False, True),
        (TAG.strip('"'), False, False),
        ('"x"', False, False),
        ("", False, False),
        ("nonsense", False, False),
    ],
)
def test_an_etag_matches(response: str, strongly: bool, weakly: bool) -> None:
    assert matching(response, TAG) is strongly
    assert matching(response, TAG, weakly=True) is weakly


@pytest.mark.parametrize(
    ("place", "points"),
    [(".type", "/type"), (".machines[2]", "/machines/2"), (".a.b[0].c", "/a/b/0/c"), ("", "")],
)
def test_a_place_in_a_body_has_a_json_pointer(place: str, points: str) -> None:
    assert pointer(place) == points


def test_a_problem_has_the_values_of_its_refusal() -> None:
    refused = unknown_name("machine", "aa", ["aaa"])
    made = from_refusal(BY_NAME["unknown"], refused)
    assert (made.did_you_mean, made.line, made.errors) == ("aaa", None, [])
    refused = invalid("unknown key", line=12, field="x", hint=Hint.FORCE)
    made = from_refusal(BY_NAME["invalid"], refused)
    assert (made.line, made.detail) == (12, "x: unknown key")
    assert made.hint is not None
    assert made.hint.kind == "force"
    assert "force to true" in made.hint.detail
    made = problem_of(BY_NAME["invalid"], "Expected `int`, got `str` - at `$.duration`")
    assert [error.pointer for error in made.errors] == ["/duration"]
