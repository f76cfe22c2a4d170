"""Options that are made from the request of an operation, and from its parameters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from forewarn.cli.options import Fields
from forewarn.cli.plain import takes
from forewarn.control.operations.operation import Operation
from forewarn.control.schema.types import Moment, doc, documented


class _Request(msgspec.Struct, kw_only=True):
    type: Annotated[str, documented(enum="Conflicts"), doc("What to do.")]
    groups: Annotated[list[str], doc("Names of groups.")] = []
    waves: Annotated[list[str], doc("How many at a time.")] = []
    notice: Annotated[float | None, doc("Seconds before it; null: 60.")] = None
    lasts: Annotated[
        float | msgspec.UnsetType | None, doc("Seconds until it ends; null: never.")
    ] = msgspec.UNSET
    at_once: Annotated[int, doc("How many of `groups`.")] = 1
    deadline: Annotated[Moment | None, doc("The end.")] = None
    ready: Annotated[bool | None, doc("Is it?")] = None
    plan: Annotated[bool, doc("Only plan.")] = False
    note: str = ""


POST = Operation(
    "POST /v1/things",
    "Make a thing",
    list[str],
    takes=_Request,
    options={"waves": "waves", "notice": "from"},
)


class _Query(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    group: Annotated[str | None, doc("Only of this group.")] = None
    not_back: Annotated[bool | None, doc("Only those that are not back; false: others.")] = None
    past: Annotated[bool, doc("Also those that are over.")] = False
    hours: Annotated[int, doc("How long.")] = 24
    from_: Annotated[str | None, doc("Since when.")] = None
    after: Annotated[str | None, doc("Cursor.")] = None


LIST = Operation(
    "GET /v1/things",
    "List things",
    list[str],
    query=_Query,
    options={"group": "of", "not_back": "not_back/back"},
)


def _given(operation: Operation[Any], *words: str, **defaults: str) -> Fields:
    found: list[Fields] = []
    app = typer.Typer()

    @app.command()
    @takes(operation, without=("note",), **defaults)
    def do(fields: Fields) -> None:
        found.append(fields)

    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return found[0]


def test_what_is_not_given_keeps_the_default_of_the_request() -> None:
    assert _given(POST, "--type", "skip") == {"type": "skip", "at_once": 1, "plan": False}
    assert _given(POST, type="split")["type"] == "split"
    assert _given(LIST) == {"past": False}


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("--group", "a", "--group", "b"), "groups", ["a", "b"]),
        (("--waves", "1,50%"), "waves", ["1", "50%"]),
        (("--from", "1m30s"), "notice", 90.0),
        (("--lasts", "2m"), "lasts", 120.0),
        (("--lasts", "none"), "lasts", None),
        (("--at-once", "3"), "at_once", 3),
        (("--deadline", "2030-01-31T18:00:00Z"), "deadline", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        (("--ready",), "ready", True),
        (("--no-ready",), "ready", False),
        (("--plan",), "plan", True),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_field(
    words: tuple[str, ...], field: str, value: object
) -> None:
    fields = _given(POST, *words, type="skip")
    assert fields[field] == value
    _Request(**fields)


def test_a_parameter_is_a_text_a_number_or_a_flag() -> None:
    words = ("--of", "web", "--back", "--past", "--hours", "2", "--from", "1h")
    given = {"group": "web", "not_back": False, "past": True, "hours": 2, "from": "1h"}
    assert _given(LIST, *words) == given


def test_help_texts_name_options_and_values_as_they_are_typed() -> None:
    app = typer.Typer()

    @app.command()
    @takes(POST)
    def do(fields: Fields) -> None:
        """Do it."""

    help = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for text in (
        "What to do (refuse, split, skip or evacuate).",
        "How many of --group.",
        "Time before it; default: 60.",
        "'none': never.",
    ):
        assert text in help
