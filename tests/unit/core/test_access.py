"""Who may: what a role includes, what a limit allows, and which tokens may be forgotten."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.access import Limit, Role, Token, forgettable
from forewarn.core.labels import parse

NOW = 1_000_000


def token(id: str = "a", **rest: int | None) -> Token:
    made = Token(id=id, name=id, role=Role.VIEWER, digest="d", created_at=0, created_by="operator")
    return msgspec.structs.replace(made, **rest)


def test_each_role_includes_those_before_it() -> None:
    order = [Role.VIEWER, Role.TENANT, Role.OPERATOR, Role.ADMIN]
    for n, one in enumerate(order):
        assert [one.includes(other) for other in order] == [n >= m for m in range(len(order))]


@pytest.mark.parametrize(
    ("limit", "group", "labels", "allowed"),
    [
        (Limit(), "web", {}, True),
        (Limit(groups=("web",)), "web", {}, True),
        (Limit(groups=("web",)), "sql", {}, False),
        (Limit(groups=("web",)), "we", {}, False),
        (Limit(labels=parse("tier=web")), "any", {"tier": "web"}, True),
        (Limit(labels=parse("tier=web")), "any", {"tier": "sql"}, False),
        (Limit(labels=parse("tier=web")), "any", {}, False),
        (Limit(labels=parse("tier=web,!canary")), "any", {"tier": "web", "canary": ""}, False),
        (Limit(groups=("web",), labels=parse("tier=web")), "web", {}, True),
        (Limit(groups=("web",), labels=parse("tier=web")), "api", {"tier": "web"}, True),
        (Limit(groups=("web",), labels=parse("tier=web")), "sql", {"tier": "sql"}, False),
    ],
)
def test_a_limit_allows_what_it_names_or_selects(
    limit: Limit, group: str, labels: dict[str, str], allowed: bool
) -> None:
    assert limit.allows(group, labels) is allowed


def test_only_an_empty_limit_is_none() -> None:
    assert Limit().none
    assert not Limit(groups=("web",)).none
    assert not Limit(labels=parse("a")).none


@pytest.mark.parametrize(
    ("one", "valid", "since"),
    [
        (token(), True, None),
        (token(expires_at=NOW + 1), True, None),
        (token(expires_at=NOW), False, NOW),
        (token(revoked_at=NOW), False, NOW),
        (token(revoked_at=5, expires_at=NOW), False, 5),
        (token(revoked_at=5, expires_at=3), False, 3),
        (token(revoked_at=5, expires_at=NOW + 9), False, 5),
    ],
)
def test_a_token_is_valid_until_it_expires_or_is_revoked(
    one: Token, valid: bool, since: int | None
) -> None:
    assert one.valid(NOW) is valid
    assert one.invalid_since(NOW) == since


TOKENS = st.lists(
    st.builds(
        token,
        st.uuids().map(str),
        expires_at=st.none() | st.integers(0, 2 * NOW),
        revoked_at=st.none() | st.integers(0, NOW),
    ),
    max_size=8,
)


@given(TOKENS)
def test_tokens_to_forget_are_invalid_and_never_all_of_them(tokens: list[Token]) -> None:
    found = forgettable(tokens, NOW)
    assert [since for since, _ in found] == sorted(since for since, _ in found)
    assert all(one.invalid_since(NOW) == since for since, one in found)
    assert len(found) < len(tokens) or not tokens
    kept = {one.id for one in tokens} - {one.id for _, one in found}
    over = [one for one in tokens if not one.valid(NOW) and one.id in kept]
    assert len(over) <= 1  # the one that stays because it would be the last
