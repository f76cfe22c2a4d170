"""Stores in PostgreSQL with one thing broken each. What honest ones pass (test_leadership.py) must
catch every one of them, for the reason given here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest
import sqlalchemy as sa

from forewarn.store.postgres import engine, lease, session
from forewarn.store.postgres.engine import PostgresStore
from forewarn.store.postgres.session import Watchdog
from forewarn.support import guard
from helpers import postgres
from helpers.leadership import claimed_at, commit_in_doubt, commit_without_standby, run

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]

MOST_STATEMENTS = 20  # of a commit
NO_FENCE = "SELECT 1, (SELECT coalesce(max(seq), 0) FROM commits), 0, 9e18 WHERE %s > 0"
OVER = "a commit of a term that was over is in the log, and was acknowledged"


@pytest.fixture
def url() -> str:
    postgres.needed()
    return postgres.shared_server().new_state()


def has_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "FENCE", NO_FENCE)


def has_a_fence_that_locks_nothing(patch: pytest.MonkeyPatch) -> None:
    assert "FOR KEY SHARE" in lease.FENCE
    patch.setattr(engine, "FENCE", lease.FENCE.replace("FOR KEY SHARE", ""))


def proves_its_term_in_a_transaction_before(patch: pytest.MonkeyPatch) -> None:
    in_term = PostgresStore._in_term

    @contextlib.contextmanager
    def fenced_before(self: PostgresStore, *settings: Any, **named: Any) -> Iterator[sa.Connection]:
        with in_term(self):
            pass
        with pytest.MonkeyPatch.context() as unfenced:
            has_no_fence(unfenced)
            with in_term(self, *settings, **named) as connection:
                yield connection

    patch.setattr(PostgresStore, "_in_term", fenced_before)


@pytest.mark.parametrize(
    "broken",
    [has_no_fence, has_a_fence_that_locks_nothing, proves_its_term_in_a_transaction_before],
)
def test_a_broken_store_is_caught_by_a_claim(
    broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.needed()
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=OVER):
        all(run(claimed_at(statement)) for statement in range(MOST_STATEMENTS))


def takes_it_as_not_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PostgresStore, "_has_happened", lambda *_: False)


def takes_it_as_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PostgresStore, "_has_happened", lambda *_: True)


@pytest.mark.parametrize(
    ("broken", "happened", "reason"),
    [
        (takes_it_as_not_happened, True, "acknowledged [1], and in the log are [1, 1002]"),
        (takes_it_as_happened, False, "acknowledged [1, 1002], and in the log are [1]"),
    ],
    ids=["takes it as not happened", "takes it as happened"],
)
def test_a_broken_store_is_caught_by_a_commit_in_doubt(
    broken: Break, happened: bool, reason: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=re.escape(reason)):
        run(commit_in_doubt(url, happened, monkeypatch))


class Cancelling:
    """In the place of a socket that is shut when the time of its session is over."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def shutdown(self, _how: int) -> None:
        psycopg.Connection.cancel(self._connection)


def cancels_what_takes_too_long(patch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def limit(self: Any, connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
        cancelling = Cancelling(connection)
        with self._lock:
            self._limits[id(cancelling)] = guard.monotonic() + seconds, cancelling
        try:
            yield
        finally:
            with self._lock:
                del self._limits[id(cancelling)]

    patch.setattr(Watchdog, "limit", limit)


def cancels_and_takes_it_for_success(patch: pytest.MonkeyPatch) -> None:
    cancels_what_takes_too_long(patch)
    patch.setattr(engine, "waited_for_standby", contextlib.nullcontext)


def ends_sessions_that_wait_for_the_standby(patch: pytest.MonkeyPatch) -> None:
    ended, _, condition = session._END.rpartition("AND")
    assert "SyncRep" in condition
    patch.setattr(session, "_END", ended)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (cancels_what_takes_too_long, "what is on one disk only can be read"),
        (cancels_and_takes_it_for_success, "what is on one disk only was acknowledged"),
        (ends_sessions_that_wait_for_the_standby, "what is on one disk only can be read"),
    ],
    ids=[
        "cancels what takes too long",
        "cancels and takes it for success",
        "ends sessions that wait for it",
    ],
)
def test_a_broken_store_is_caught_by_an_absent_standby(
    broken: Break, reason: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=reason):
        run(commit_without_standby(url, True, monkeypatch))
