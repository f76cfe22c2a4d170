"""Numbers with their nouns, as text for people."""

from __future__ import annotations

import pytest

from forewarn.support.text import counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 machines"), (1, "1 machine"), (1200, "1,200 machines")]
)
def test_a_number_agrees_with_its_noun(number: int, words: str) -> None:
    assert counted(number, "machine") == words
