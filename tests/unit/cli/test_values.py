"""Values of options and arguments are converted to the types of a command's parameters."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pytest
import typer
import typer.main

from forewarn.cli.usage import name_values


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


Call: TypeAlias = Callable[..., dict[str, Any]]


@pytest.fixture
def call() -> Call:
    """Calls a command that has a parameter of each type, and returns what it was called with."""
    app = typer.Typer()

    @app.command()
    def command(
        files: Annotated[list[Path] | None, typer.Argument()] = None,
        text: str | None = None,
        count: Annotated[int, typer.Option(min=1, max=3)] = 2,
        factor: float | None = None,
        colour: Colour = Colour.RED,
        on: bool | None = None,
        step: Annotated[list[int] | None, typer.Option(min=1)] = None,
    ) -> dict[str, Any]:
        return dict(locals())

    converted = typer.main.get_command(app)
    name_values(converted)

    def result_of(*words: str) -> dict[str, Any]:
        result: dict[str, Any] = converted.main(list(words), standalone_mode=False)
        return result

    return result_of


def test_each_value_has_the_type_of_its_parameter(call: Call) -> None:
    options = "--text 7 --count 3 --factor 1.5 --colour blue --no-on --step 1 --step 2"
    assert call("a", "b/c", *options.split()) == {
        "files": [Path("a"), Path("b/c")],
        "text": "7",
        "count": 3,
        "factor": 1.5,
        "colour": Colour.BLUE,
        "on": False,
        "step": [1, 2],
    }


def test_what_is_not_given_has_its_default(call: Call) -> None:
    assert call() == {
        "files": None,
        "text": None,
        "count": 2,
        "factor": None,
        "colour": Colour.RED,
        "on": None,
        "step": None,
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--count 1.5", "'1.5' is not a whole number"),
        ("--count 0", "0 is too small; the minimum is 1"),
        ("--count 4", "4 is too large; the maximum is 3"),
        ("--step 1 --step x", "'x' is not a whole number"),
        ("--step 1 --step 0", "0 is too small; the minimum is 1"),
        ("--factor x", "'x' is not a number"),
        ("--colour Red", "'Red' is not one of 'red', 'blue'"),
    ],
)
def test_a_wrong_value_is_named(call: Call, words: str, problem: str) -> None:
    with pytest.raises(typer.BadParameter) as refusal:
        call(*words.split())
    assert refusal.value.message == problem
    assert refusal.value.param is not None
    assert refusal.value.param.opts == [words.split()[0]]


def test_a_file_that_cannot_be_read_is_refused(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.touch()
    monkeypatch.setattr(os, "access", lambda _, mode: mode == os.F_OK)  # as if not root
    with pytest.raises(typer.BadParameter, match="secret' is not"):
        call(str(file))


def test_text_that_is_not_utf8_is_refused(call: Call) -> None:
    with pytest.raises(typer.BadParameter, match=r"'web\\udcff'"):
        call("--text", os.fsdecode(b"web\xff"))


def test_a_path_may_be_any_bytes(call: Call) -> None:
    name = os.fsdecode(b"fleet\xff")
    assert call(name)["files"] == [Path(name)]
