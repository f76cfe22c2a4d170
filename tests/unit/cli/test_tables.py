"""Tables show every value in full, whatever the width of the terminal."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.cli.tables import cell_width, table_lines

ID = "5C535842-BEE4-41DD-951F-CA5464BCFC2E"
TIME = "2026-11-16 15:40:56Z"
COLUMNS = ("EVENT", "GROUP", "TYPE", "STATUS", "MACHINES", "NOT BEFORE")
ROW = (ID, "web", "Reboot", "Scheduled", "web_0, web_2", TIME)
MINOR = ("GROUP", "STATUS", "MACHINES", "TYPE")


def test_without_a_width_every_row_is_one_line() -> None:
    head, line = table_lines(COLUMNS, [ROW])
    assert head.split() == ["EVENT", "GROUP", "TYPE", "STATUS", "MACHINES", "NOT", "BEFORE"]
    assert line == f"{ID}  web    Reboot  Scheduled  web_0, web_2  {TIME}"


def test_a_table_that_fits_is_shown_as_it_is_with_a_rule() -> None:
    head, rule, line = table_lines(COLUMNS, [ROW], 120, MINOR, rule="-")
    assert rule == "-" * len(line)
    assert line.endswith(TIME)
    assert head.index("NOT BEFORE") == line.index(TIME)


def test_at_80_columns_minor_columns_are_shown_below_each_row() -> None:
    assert table_lines(COLUMNS, [ROW], 80, MINOR) == [
        "EVENT                                 TYPE    MACHINES      NOT BEFORE",
        f"{ID}  Reboot  web_0, web_2  {TIME}",
        "  group: web  status: Scheduled",
    ]


def test_at_60_columns_ids_and_times_are_whole() -> None:
    assert table_lines(COLUMNS, [ROW], 60, MINOR) == [
        "EVENT                                 NOT BEFORE",
        f"{ID}  {TIME}",
        "  group: web  type: Reboot  status: Scheduled",
        "  machines: web_0, web_2",
    ]


def test_an_empty_value_is_not_shown_below_a_row() -> None:
    lines = table_lines(("EVENT", "GROUP", "NOTE"), [(ID, "", "short")], 38, ("NOTE", "GROUP"))
    assert lines == ["EVENT", ID, "  note: short"]


def test_a_text_in_the_last_column_is_wrapped_between_words() -> None:
    about = "A machine is paused for a few seconds while it moves to another host."
    assert table_lines(("SCENARIO", "ABOUT"), [("live-migration", about)], 60) == [
        "SCENARIO        ABOUT",
        "live-migration  A machine is paused for a few seconds while",
        "                it moves to another host.",
    ]


def test_wide_characters_take_two_columns() -> None:
    head, line = table_lines(("NOTE", "EVENT"), [("保守", ID)], 80)
    assert cell_width(line[: line.index(ID)]) == head.index("EVENT")


WORDS = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=12)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.lists(st.tuples(*[CELLS] * count), min_size=1, max_size=4)
    ),
    st.integers(1, 120),
)
@example([("aaaaaaa aaaaaaaaaaa aaaaaaaaaaaa aaaaaaaaaaaaaa aaaaaaaaaaaaaa",)], 61)
def test_no_word_is_lost_or_cut_at_any_width(rows: list[tuple[str, ...]], width: int) -> None:
    columns = [f"COLUMN{i}" for i in range(len(rows[0]))]
    lines = table_lines(columns, rows, width)
    shown = " ".join(lines).split()
    for row in rows:
        for cell in row:
            assert all(word in shown for word in cell.split())
    longest = max([len(word) for line in lines for word in line.split()])
    if longest + len("column0: ") + 4 <= width and width > 60:
        assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [0, 1, 5])
def test_an_impossible_width_still_shows_everything(width: int) -> None:
    text = "\n".join(table_lines(COLUMNS, [ROW], width, MINOR))
    assert ID in text
    assert "Scheduled" in text
