"""docs/reference/wire.md says what the tables of the wire say."""

from __future__ import annotations

import re

import pytest

from forewarn.core.time import MINUTE, SECOND
from forewarn.wire import errors
from forewarn.wire.errors import Problem
from forewarn.wire.versions import NEWEST, VERSIONS
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "wire.md").read_text("utf-8")
EXTENSIONS = {"BAD_TIMEOUT", "BAD_READINESS", "BAD_POSTPONEMENT"}  # answers on paths of our own
SERVER = {"BUSY", "STOPPING", "NOT_CARRIED_OUT"}  # of the whole server: only the status is listed
PROBLEMS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, Problem) and name not in EXTENSIONS
}


@pytest.mark.parametrize("name", sorted(set(PROBLEMS) - SERVER))
def test_every_error_is_documented_with_its_body(name: str) -> None:
    problem = PROBLEMS[name]
    assert problem.body.decode() in PAGE
    assert str(problem.status) in PAGE


@pytest.mark.parametrize("name", sorted(SERVER))
def test_every_status_of_the_server_is_documented(name: str) -> None:
    assert str(PROBLEMS[name].status) in PAGE


def test_the_answer_to_an_unknown_version_is_documented() -> None:
    body = errors.bad_version([version.name for version in VERSIONS]).body.decode()
    assert body in PAGE


def test_every_version_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\d{4}-\d\d-\d\d)`([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", PAGE, re.M)
    assert [row[0] for row in rows] == [version.name for version in VERSIONS]
    shown: set[str] = set()
    for version, (_, note, adds, types, form) in zip(VERSIONS, rows, strict=True):
        new = set(version.types) - shown
        shown |= new
        named = {type for type in NEWEST.types if type in types}
        assert new <= named or "all five" in types
        assert named <= set(version.types)
        assert ("preview" in note) == version.preview
        assert ("ISO 8601" in form) == version.preview
        assert ("`Description`" in adds) <= version.description
        assert ("`EventSource`" in adds) <= version.event_source
        assert ("`DurationInSeconds`" in adds) <= version.duration
    assert shown == set(NEWEST.types)


def test_every_type_is_in_the_table_with_its_least_notice() -> None:
    from forewarn.core.events import TYPE_TRAITS

    for type, traits in TYPE_TRAITS.items():
        (notice,) = re.findall(rf"^\| {type.value} \| [^|]+ \| (\d+ \w+)", PAGE, re.MULTILINE)
        unit = {"min": MINUTE, "s": SECOND}[notice.split()[1]]
        assert int(notice.split()[0]) * unit == traits.notice
