"""What a control node that does not decide does: it reads the log, and waits for its turn.

The log is read when a commit is announced (NOTIFY), and twice a second in any case, when it is also
looked at who decides. Every time, the last commit that is known must still be there (`_PREFIX`):
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
# Bytes of a commit by which it is known, with its length: one that has applied a fleet may have
# hundreds of megabytes, and is looked at twice a second until there is another.
_PREFIX = 4096
_LAST_BODY = f"""
SELECT seq, octet_length(body), substr(body, 1, {_PREFIX}) FROM commits ORDER BY seq DESC LIMIT 1
"""
_NEWS = f"""
SELECT seq, octet_length(body),
  CASE WHEN seq = %(known)s THEN substr(body, 1, {_PREFIX}) ELSE body END
 FROM commits WHERE seq >= %(known)s ORDER BY seq LIMIT %(limit)s
"""
_MARK = """
INSERT INTO service (key, value) VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET value = greatest(service.value, excluded.value)
"""
_MARKED = "SELECT value FROM service WHERE key = %s"
_LAST = "SELECT coalesce(max(seq), 0) FROM commits"

_commit = msgspec.json.Decoder(Commit)


class Position(msgspec.Struct, frozen=True):
    """A commit that is known: its number, and a digest of what is stored of it (`_PREFIX`)."""

    seq: int = 0
    digest: bytes = b""


class WentBack(Exception):
    """The database has lost commits, or has others in their place."""


class TooFarBehind(Exception):
    """Commits that were not read have been pruned."""


def _position(seq: int, length: int, body: bytes) -> Position:
    digest = hashlib.blake2b(b"%d " % length + body[:_PREFIX], digest_size=16).digest()
    return Position(seq, digest)


def position(connection: psycopg.Connection[Any]) -> Position:
    """Return the last commit in the log."""
    row = connection.execute(_LAST_BODY).fetchone()
    return _position(*row) if row else Position()


def news(connection: psycopg.Connection[Any], known: Position) -> tuple[list[Commit], Position]:
    """Return some of the commits after those that are known, and what is known then."""
    rows = connection.execute(_NEWS, {"known": known.seq, "limit": PAGE + 1}).fetchall()
    if known.seq:
        if not rows:
            raise WentBack
        first = _position(*rows.pop(0))
        if first.seq != known.seq:
            raise TooFarBehind
        if first != known:
            raise WentBack
    elif rows and rows[0][0] != 1:
        raise TooFarBehind  # a state was moved here since
    if not rows:
        return [], known
    return [_commit.decode(body) for _, _, body in rows], _position(*rows[-1])


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
