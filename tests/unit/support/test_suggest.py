"""Which known name was meant, also among very many: found by looking closely at few."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import pytest

from forewarn.support.suggest import MAX_COMPARED, instead_of, nearest

MANY = {f"web-{number % 7}-{number:06d}": "" for number in range(20_000)}


@pytest.mark.parametrize(
    ("output", "meant"),
    [
        ("web-1-000001x", "web-1-000001"),
        ("wbe-1-000001", "web-1-000001"),
        ("eb-1-000001", "web-1-000001"),
        ("WEB-1-000001", "web-1-000001"),
        ("web-1000001", "web-1-000001"),
    ],
)
def test_a_typo_is_found_among_very_many_names(output: str, meant: str) -> None:
    assert nearest(output, MANY) == meant
    assert nearest(output, list(MANY)) == meant


def test_two_typos_are_found_if_the_beginning_matches() -> None:
    found = nearest("web-1-0x0y01", MANY)
    assert found is not None
    assert found.startswith("web-1-")


def test_the_number_of_comparisons_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    closest = difflib.get_close_matches

    def counted(word: str, among: Iterable[str], **rest: Any) -> list[str]:
        listed = list(among)
        compared.append(len(listed))
        return closest(word, listed, **rest)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    for output in ("nope", "web-1-00x0y01", "web-1-000001x", "w", "", "x" * 80, "x" * 10_000):
        instead_of(output, MANY)
    assert compared
    assert max(compared) <= MAX_COMPARED


def test_a_name_without_a_similar_one_gets_the_first_few() -> None:
    shown = instead_of("zzz", MANY)
    first = ", ".join(sorted(MANY)[:10])
    assert shown == f"there are {first} and 19990 more"
    assert instead_of("zzz", ["b", "a"]) == "there are a, b"
    assert instead_of("zzz", ["a"]) == "there is only a"
    assert instead_of("zzz", []) == "there is none"


def test_numbered_names_are_listed_for_the_name_without_a_number() -> None:
    assert instead_of("web", ["web_10", "web_2", "db"]) == "there are web_2, web_10"
    assert instead_of("web", ["web_2", "db"]) == "did you mean 'web_2'?"
