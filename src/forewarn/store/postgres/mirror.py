"""What a control node that does not decide does: it reads the log, and waits for its turn.

The log is read when a commit is announced (NOTIFY), and twice a second in any case, when it is also
looked at who decides. Every time, the last commit that is known must still be there, byte by byte:
a database that has lost commits, or has others in their place, went back to an earlier state, and
nobody decides with it until an operator says so.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import psycopg

from forewarn.store.port import Commit

PAGE = 256  # commits that are read at a time

WENT_BACK = "went-back"  # in the table `service`: the last commit that was known before
_NEWS = "SELECT seq, body FROM commits WHERE seq >= %s ORDER BY seq LIMIT %s"
_MARK = """
INSERT INTO service (key, value) VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET value = greatest(service.value, excluded.value)
"""
_MARKED = "SELECT value FROM service WHERE key = %s"
_LAST = "SELECT coalesce(max(seq), 0) FROM commits"

_commit = msgspec.json.Decoder(Commit)


class Position(msgspec.Struct, frozen=True):
    """A commit that is known: its number, and a digest of what is stored of it."""

    seq: int = 0
    digest: bytes = b""


class WentBack(Exception):
    """The database has lost commits, or has others in their place."""


class TooFarBehind(Exception):
    """Commits that were not read have been pruned."""


def digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def position(connection: psycopg.Connection[Any]) -> Position:
    """Return the last commit in the log."""
    row = connection.execute("SELECT seq, body FROM commits ORDER BY seq DESC LIMIT 1").fetchone()
    return Position(row[0], digest(row[1])) if row else Position()


def news(connection: psycopg.Connection[Any], known: Position) -> tuple[list[Commit], Position]:
    """Return some of the commits after those that are known, and what is known then."""
    rows = connection.execute(_NEWS, (known.seq, PAGE + 1)).fetchall()
    if known.seq:
        if not rows:
            raise WentBack
        first, body = rows.pop(0)
        if first != known.seq:
            raise TooFarBehind
        if digest(body) != known.digest:
            raise WentBack
    elif rows and rows[0][0] != 1:
        raise TooFarBehind  # a state was moved here since
    if not rows:
        return [], known
    return [_commit.decode(body) for _, body in rows], Position(rows[-1][0], digest(rows[-1][1]))


def last(connection: psycopg.Connection[Any]) -> int:
    """Return the number of the last commit; 0 if there is none."""
    row = connection.execute(_LAST).fetchone()
    return row[0] if row else 0


def mark_went_back(connection: psycopg.Connection[Any], known: int) -> None:
    """Write into the database up to which commit it was known, for all nodes to see."""
    connection.execute(_MARK, (WENT_BACK, known))


def went_back(connection: psycopg.Connection[Any]) -> str:
    """Return what is wrong with a database that has lost commits; empty if it has not."""
    row = connection.execute(_MARKED, (WENT_BACK,)).fetchone()
    if row is None:
        return ""
    end = last(connection)
    lost = f"commits {end + 1} to {row[0]}" if end < row[0] else "commits"
    return (
        f"the database has lost {lost}, which a control node knew; nobody decides until"
        " `forewarn restored` says that its state is to be used"
    )
