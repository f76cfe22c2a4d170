"""The control nodes that have the database open: each one writes a row of its own now and then.

Whoever decides is in `lease.py`; these rows are for operators and decide nothing. They are written
without a fence, since a node that follows writes one, too. (What the server knows of its sessions,
pg_stat_activity, has no room for a commit or an address, and needs rights to be read.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from forewarn import __version__
from forewarn.store.port import ControlNode, Member

EVERY = 5.0  # seconds between two reports of a node
AWAY_AFTER = 20  # seconds without a report, after which a node counts as away
_LOCK_PATIENCE = "100ms"
FORGET_AFTER = "1 day"  # without a report

TABLE = """
CREATE TABLE control_nodes (
  name text NOT NULL,
  machine text NOT NULL,
  address text NOT NULL,
  version text NOT NULL,
  lease double precision NOT NULL,
  seq bigint NOT NULL,
  lag bigint NOT NULL,
  started timestamptz NOT NULL,
  seen timestamptz NOT NULL,
  PRIMARY KEY (name, machine)
)
"""
_REPORT = """
INSERT INTO control_nodes VALUES (%(name)s, %(machine)s, %(address)s, %(version)s, %(lease)s,
  %(seq)s,
  greatest(0, (SELECT coalesce(max(seq), 0) FROM commits) - %(seq)s),
  clock_timestamp(), clock_timestamp())
ON CONFLICT (name, machine) DO UPDATE SET address = excluded.address, version = excluded.version,
  lease = excluded.lease, seq = excluded.seq, lag = excluded.lag, seen = excluded.seen,
  started = CASE WHEN %(first)s THEN excluded.started ELSE control_nodes.started END
RETURNING lag
"""
_FORGET = f"DELETE FROM control_nodes WHERE seen < clock_timestamp() - interval '{FORGET_AFTER}'"
_LIST = f"""
SELECT n.name, n.address, n.version, n.lease, n.seq, n.lag,
  (extract(epoch FROM n.started) * 1000000)::bigint, (extract(epoch FROM n.seen) * 1000000)::bigint,
  coalesce(l.until >= clock_timestamp(), false),
  n.seen < clock_timestamp() - interval '{AWAY_AFTER} s'
 FROM control_nodes n LEFT JOIN leader l ON l.name = n.name AND l.machine = n.machine
ORDER BY n.name, n.machine
"""


def report(
    connection: psycopg.Connection[Any], member: Member, lease: float, seq: int, *, first: bool
) -> tuple[int, list[ControlNode]] | None:
    """Write the row of this node. Returns how many commits it is behind, and all nodes. A report
    that would have to wait for a lock is left out, and None returned: the lease is renewed through
    the same connection."""
    values = {
        "name": member.name,
        "machine": member.machine,
        "address": member.address,
        "version": __version__,
        "lease": lease,
        "seq": seq,
        "first": first,
    }
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
            row = connection.execute(_REPORT, values).fetchone()
            if first:
                connection.execute(_FORGET)
            return int(row[0]) if row else 0, read(connection)
    except psycopg.errors.LockNotAvailable:
        return None


def differences(nodes: Sequence[ControlNode]) -> dict[str, str]:
    """Return in what the nodes differ that should be the same for all, by subject."""
    present = [node for node in nodes if not node.away]
    return {"version": _version_problem(present), "lease": _lease_problem(present)}


def _version_problem(nodes: Sequence[ControlNode]) -> str:
    if len({node.version for node in nodes}) <= 1:
        return ""
    return "the control nodes run different versions of forewarn; see 'forewarn control list'"


def _lease_problem(nodes: Sequence[ControlNode]) -> str:
    if len({node.lease for node in nodes}) <= 1:
        return ""
    return "the control nodes have different settings of lease; see 'forewarn control list'"


def read(connection: psycopg.Connection[Any]) -> list[ControlNode]:
    return [
        ControlNode(
            name=name,
            address=address,
            version=version,
            lease=lease,
            commit=seq,
            lag=lag,
            started=started,
            seen=seen,
            leads=leads,
            away=away and not leads,
        )
        for name, address, version, lease, seq, lag, started, seen, leads, away in (
            connection.execute(_LIST)
        )
    ]
