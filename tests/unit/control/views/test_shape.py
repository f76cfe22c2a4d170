"""Types of the control API made from values of the core."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest

from forewarn.control.schema.types import Moment, doc
from forewarn.control.views.shape import view


class _Color(enum.Enum):
    RED = "red"


class _Part(msgspec.Struct, frozen=True):
    since: int
    color: _Color


class _Whole(msgspec.Struct, frozen=True):
    at: int | None
    colors: tuple[_Color, ...]
    parts: tuple[_Part, ...]
    note: str


class _PartView(msgspec.Struct, kw_only=True):
    since: Moment
    color: str


class _WholeView(msgspec.Struct, kw_only=True):
    at: Annotated[Moment | None, doc("When.")] = None
    colors: Annotated[list[str], doc("Which.")] = []
    parts: list[_PartView]
    color: str = ""
    note: str = ""


PART = _Part(10**6, _Color.RED)
SECOND_OF_1970 = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_attributes_of_the_same_name_are_converted_to_the_types_of_the_fields() -> None:
    whole = _Whole(10**6, (_Color.RED,), (PART,), "fans")
    assert view(_WholeView, whole, color="blue") == _WholeView(
        at=SECOND_OF_1970,
        colors=["red"],
        parts=[_PartView(since=SECOND_OF_1970, color="red")],
        color="blue",
        note="fans",
    )
    assert view(_WholeView, msgspec.structs.replace(whole, at=None), color="").at is None


def test_the_first_value_that_has_an_attribute_counts() -> None:
    whole = _Whole(None, (), (), "fans")
    assert view(_WholeView, whole, PART).color == "red"
    assert view(_WholeView, PART, whole, note="disk").note == "disk"


def test_a_field_that_nothing_says_is_an_error_even_if_it_has_a_default() -> None:
    with pytest.raises(TypeError, match="'color'"):
        view(_WholeView, _Whole(None, (), (), ""))
