"""Tokens, and requests with a key of the caller's: what every engine keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from forewarn.core.access import Limit, Role, Token
from forewarn.core.history import RecordKind
from forewarn.core.labels import parse
from forewarn.core.registry import TokenPut, TokenRemoved
from forewarn.core.time import DAY
from forewarn.store import Batch, Store, StoreFailed
from forewarn.store.port import HistoryQuery, Key, PollSightings, States
from helpers.engines import ENGINES, live, state

AT = 1_700_000_000_000_000
KEY = Key("alice", "restart-1", "digest of the request")
TOKEN = Token(
    id="a1b2",
    name="alice",
    role=Role.OPERATOR,
    digest="00" * 32,
    created_at=AT,
    created_by="operator",
    limit=Limit(groups=("web",), labels=parse("tier=web")),
    expires_at=AT + DAY,
)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same state again each time it is called."""
    return state(request.param, tmp_path)


async def commit(store: Store, batch: Batch) -> None:
    def work(_states: States) -> Batch:
        return batch

    await store.transact(work)


def test_a_request_with_a_key_is_known_by_it_as_soon_as_it_is_committed(
    engine: Callable[[], Store],
) -> None:
    async def asked(store: Store) -> None:
        assert await store.keyed_request("alice", "restart-1") is None
        await commit(store, Batch(AT, key=KEY, notes=("a note",)))

    async def asked_again(store: Store) -> None:
        kept = await store.keyed_request("alice", "restart-1")
        assert kept is not None
        assert (kept.key, kept.at, kept.status) == (KEY, AT, None)
        assert await store.keyed_request("bob", "restart-1") is None
        commits = [commit async for commit in store.commits(kept.seq - 1)]
        assert (commits[0].key, commits[0].notes) == (KEY, ("a note",))

    live(engine, asked, asked_again)


def test_the_answer_of_a_request_is_kept_with_its_key(engine: Callable[[], Store]) -> None:
    async def answered(store: Store) -> None:
        await commit(store, Batch(AT, key=KEY))
        await store.save_answer(KEY, 201, b"the answer")

    async def asked_again(store: Store) -> None:
        kept = await store.keyed_request("alice", "restart-1")
        assert kept is not None
        assert (kept.status, kept.answer) == (201, b"the answer")

    live(engine, answered, asked_again)


def test_no_answer_is_kept_for_what_was_not_carried_out(engine: Callable[[], Store]) -> None:
    async def answered(store: Store) -> None:
        with pytest.raises(StoreFailed, match="restart-1"):
            await store.save_answer(KEY, 201, b"the answer")
        await commit(store, Batch(AT, key=KEY))
        other = msgspec.structs.replace(KEY, digest="of something else")
        with pytest.raises(StoreFailed, match="restart-1"):
            await store.save_answer(other, 201, b"the answer")

    live(engine, answered)


def test_a_key_is_forgotten_with_its_commit(engine: Callable[[], Store]) -> None:
    async def pruned(store: Store) -> None:
        await commit(store, Batch(AT, key=KEY))
        later = Key("alice", "restart-2", "digest")
        await commit(store, Batch(AT + 2 * DAY, key=later))
        await store.prune(AT + DAY, lambda _event: False)
        assert await store.keyed_request("alice", "restart-1") is None
        assert await store.keyed_request("alice", "restart-2") is not None

    live(engine, pruned)


def test_a_token_is_kept_until_it_is_removed(engine: Callable[[], Store]) -> None:
    async def created(store: Store) -> None:
        await commit(store, Batch(AT, puts=(TokenPut(TOKEN, "created", "operator"),)))

    async def revoked(store: Store) -> None:
        assert dict(store.registry.tokens) == {"a1b2": TOKEN}
        gone = msgspec.structs.replace(TOKEN, revoked_at=AT, revoked_by="bob")
        await commit(store, Batch(AT, puts=(TokenPut(gone, "revoked", "bob"),)))
        assert not store.registry.tokens["a1b2"].valid(AT)

    async def removed(store: Store) -> None:
        assert store.registry.tokens["a1b2"].revoked_by == "bob"
        await commit(store, Batch(AT, puts=(TokenRemoved("a1b2"),)))

    async def looked(store: Store) -> None:
        assert not store.registry.tokens
        records = await store.history(HistoryQuery())
        assert [(r.what, r.by, r.cause, r.note) for r in records] == [
            (RecordKind.TOKEN_CREATED, "operator", "a1b2", "alice (operator)"),
            (RecordKind.TOKEN_REVOKED, "bob", "a1b2", "alice (operator)"),
        ]

    live(engine, created, revoked, removed, looked)


def test_when_a_token_was_last_used_is_saved_now_and_then(engine: Callable[[], Store]) -> None:
    async def used(store: Store) -> None:
        await store.save(PollSightings(seen={}, used={"a1b2": AT, "c3d4": AT}))
        await store.save(PollSightings(seen={}, used={"a1b2": AT + 1}))

    async def looked(store: Store) -> None:
        assert (await store.sightings()).used == {"a1b2": AT + 1, "c3d4": AT}

    live(engine, used, looked)


@pytest.mark.parametrize(
    ("role", "may"),
    [(Role.VIEWER, [Role.VIEWER]), (Role.OPERATOR, [*Role][:3]), (Role.ADMIN, Role)],
)
def test_each_role_may_what_those_before_it_may(role: Role, may: list[Role]) -> None:
    assert [other for other in Role if role.includes(other)] == list(may)


def test_a_limit_allows_what_its_groups_or_its_labels_say() -> None:
    limit = TOKEN.limit
    assert limit.allows("web", {})
    assert limit.allows("front", {"tier": "web"})
    assert not limit.allows("sql", {"tier": "data"})
    assert Limit().allows("sql", {})
    assert not Limit(groups=("web",)).allows("sql", {"tier": "web"})
