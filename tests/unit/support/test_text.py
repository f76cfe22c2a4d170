"""Numbers with their nouns, as text for people; and text that can be stored."""

from __future__ import annotations

import pytest

from forewarn.support.text import counted, storable, unstorable


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 machines"), (1, "1 machine"), (1200, "1,200 machines")]
)
def test_a_number_agrees_with_its_noun(number: int, words: str) -> None:
    assert counted(number, "machine") == words


@pytest.mark.parametrize(
    ("text", "character", "stored"),
    [("a\0b", "U+0000", "a\ufffdb"), ("\udc80", "U+DC80", "\ufffd"), ("\x01\U0010ffff", "", None)],
)
def test_what_not_every_engine_can_store_is_named_and_replaced(
    text: str, character: str, stored: str | None
) -> None:
    assert unstorable(text) == character
    assert storable(text) == (text if stored is None else stored)
