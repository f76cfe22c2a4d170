"""Selecting by labels: what a selector says, whom it means, and what may be a label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import Group, Machine
from forewarn.core.labels import (
    MAX_LABEL_NAME,
    MAX_LABEL_VALUE,
    MAX_LABELS,
    MAX_TERMS,
    SelectorError,
    Term,
    labels_of,
    labels_problem,
    matches,
    parse,
)

LABELS = {"tier": "web", "ring": "canary", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", True),
        ("tier=web", True),
        ("tier=db", False),
        ("tier!=db", True),
        ("tier!=web", False),
        ("zone!=1", True),
        ("ring", True),
        ("zone", False),
        ("!zone", True),
        ("!ring", False),
        ("empty", True),
        ("empty=", True),
        ("zone=", False),
        ("empty!=", False),
        ("tier=web,ring=canary", True),
        ("tier=web,ring=late", False),
        (" tier = web , !zone ", True),
    ],
)
def test_a_selector_matches_labels_for_which_all_its_terms_hold(selector: str, found: bool) -> None:
    assert matches(parse(selector), LABELS) is found


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ("tier=web,", "has an empty term"),
        ("=web", "is not a valid label name"),
        ("!", "is not a valid label name"),
        ("tier==web", "is not a valid label value"),
        ("a b", "is not a valid label name"),
        ("a" * (MAX_LABEL_NAME + 1), "1 to 63 letters"),
        (",".join(["a"] * (MAX_TERMS + 1)), "at most 32 terms"),
    ],
)
def test_an_invalid_selector_is_refused_with_what_would_be_valid(selector: str, says: str) -> None:
    with pytest.raises(SelectorError, match=says):
        parse(selector)


_words = st.from_regex(r"[a-z0-9](?:[a-z0-9._/-]{0,10}[a-z0-9])?", fullmatch=True)
_terms = st.builds(Term, _words, st.none() | _words, st.booleans())


@given(st.lists(_terms, max_size=5), st.dictionaries(_words, _words, max_size=5))
def test_a_selector_written_as_text_reads_back_the_same(
    terms: list[Term], labels: dict[str, str]
) -> None:
    again = parse(",".join(map(str, terms)))
    assert again == tuple(terms)
    assert matches(again, labels) == all(matches((term,), labels) for term in terms)


@given(_terms, st.dictionaries(_words, _words, max_size=5))
def test_a_term_and_its_opposite_never_both_hold(term: Term, labels: dict[str, str]) -> None:
    opposite = Term(term.name, term.value, not term.negated)
    assert matches((term,), labels) != matches((opposite,), labels)


def test_a_machine_has_its_groups_labels_overlaid_with_its_own() -> None:
    own = Machine(name="m", labels={"ring": "canary", "tier": "db"})
    group = Group(name="g", labels={"tier": "web", "site": "north"}, machines=(own,))
    assert labels_of(group, own) == {"tier": "db", "ring": "canary", "site": "north"}
    assert labels_of(group, Machine(name="n")) == group.labels
    assert labels_of(Group(name="h"), own) == own.labels


def test_labels_have_limits() -> None:
    assert labels_problem({"a/b.c-d_e": "x" * MAX_LABEL_VALUE, "n": ""}) is None
    assert labels_problem({str(n): "" for n in range(MAX_LABELS + 1)}) == (
        "",
        "there are 65 labels; at most 64 are allowed",
    )
    for labels in ({"": "x"}, {"-a": "x"}, {"a": "-"}, {"a": "x" * 64}, {"a": "b,c"}, {"a=b": ""}):
        assert labels_problem(labels) is not None
