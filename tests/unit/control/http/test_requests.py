"""Requests as arguments of what carries them out."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest

from forewarn.control.http.errors import RefusedError
from forewarn.control.http.requests import arguments
from forewarn.control.schema.types import doc
from forewarn.core import Duration, Time
from forewarn.core.labels import Selector, parse
from forewarn.core.windows.model import Window


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Request(msgspec.Struct, kw_only=True):
    name: str = "a"
    colour: str = "Blue"
    notice: Annotated[float | None, doc("Seconds.")] = None
    at: datetime | None = None
    names: list[str] = []
    windows: list[str] = []
    select: str = ""
    limit: int | msgspec.UnsetType | None = msgspec.UNSET


class Wanted(msgspec.Struct, kw_only=True):
    name: str
    colour: Colour
    notice: Duration = 7
    at: Time | None = None
    names: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    select: Selector = ()
    limit: int | None = 3


def test_fields_are_converted_to_what_the_target_declares() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    request = Request(
        notice=1.5, at=at, names=["x"], windows=["sat 22:00-04:00"], select="tier=web", limit=None
    )
    wanted = Wanted(**arguments(request, Wanted))
    assert (wanted.colour, wanted.notice, wanted.at) == (Colour.BLUE, 1_500_000, 1_000_000)
    assert (wanted.names, wanted.select, wanted.limit) == (("x",), parse("tier=web"), None)
    assert [window.text for window in wanted.windows] == ["sat 22:00-04:00"]


def test_what_is_not_set_or_null_without_being_a_value_keeps_its_default() -> None:
    wanted = Wanted(**arguments(Request(), Wanted))
    assert (wanted.notice, wanted.at, wanted.limit) == (7, None, 3)


def test_a_method_is_a_target_as_well() -> None:
    def carry_out(colour: Colour, *, notice: Duration | None = 7) -> tuple[Colour, Duration | None]:
        return colour, notice

    fields = arguments(Request(), carry_out, only=("colour", "notice"))
    assert carry_out(**fields) == (Colour.BLUE, None)


@pytest.mark.parametrize(
    "invalid",
    [
        Request(colour="green"),
        Request(notice=float("inf")),
        Request(windows=["sometimes"]),
        Request(select="=="),
    ],
)
def test_invalid_values_are_refused(invalid: Request) -> None:
    with pytest.raises(RefusedError):
        arguments(invalid, Wanted)


def test_a_field_that_the_target_does_not_have_is_an_error() -> None:
    class More(Request):
        more: str = ""

    with pytest.raises(TypeError):
        arguments(More(), Wanted)
    assert arguments(More(), Wanted, without=("more",)) == arguments(Request(), Wanted)
