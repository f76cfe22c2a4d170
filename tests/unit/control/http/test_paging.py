"""Pages: the order of names, and where a page ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.control.http.paging import (
    add_next_link,
    format_cursor,
    parse_name_cursor,
    parse_time_cursor,
    take_page,
)
from forewarn.support.text import natural_key

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="~"), max_size=12)


def test_names_are_in_natural_order() -> None:
    names = ["web_10", "web_9", "web_2", "a", "web", "web_2a", "10", "9"]
    assert sorted(names, key=natural_key) == [
        *("9", "10", "a", "web", "web_2", "web_2a", "web_9", "web_10"),
    ]


@given(NAMES, NAMES)
def test_different_names_have_different_positions(one: str, other: str) -> None:
    assert (natural_key(one) == natural_key(other)) == (one == other)
    assert natural_key(one) <= natural_key(other) or natural_key(other) <= natural_key(one)


@given(NAMES, NAMES)
def test_a_page_ends_where_the_next_begins(group: str, machine: str) -> None:
    assert parse_name_cursor(format_cursor((group, machine))) == (group, machine)


@given(
    st.booleans(), st.integers(-(10**17), 10**17), st.from_regex(r"[0-9A-F-]{1,36}", fullmatch=True)
)
def test_pages_by_time_end_where_the_next_begins(over: bool, at: int, id: str) -> None:
    assert parse_time_cursor(format_cursor((over, at, id))) == (over, at, id)


def test_a_page_knows_whether_there_is_more() -> None:
    assert take_page("abc", 3) == (["a", "b", "c"], False)
    assert take_page("abcd", 3) == (["a", "b", "c"], True)


def test_the_link_to_the_next_page_keeps_the_filters() -> None:
    heads: dict[str, str] = {}
    add_next_link(heads, "/v1/machines", b"label=a%3Db&limit=3&after=x~y", ("web", "web_1"))
    assert heads == {"Link": '</v1/machines?label=a%3Db&limit=3&after=web~web_1>; rel="next"'}
