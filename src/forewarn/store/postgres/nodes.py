"""The control nodes that have the database open: each one writes a row of its own now and then.

Whoever decides is in `lease.py`; these rows are for operators and decide nothing. They are written
without a fence, since a node that follows writes one, too. (What the server knows of its sessions,
pg_stat_activity, has no room for a commit or an address, and needs rights to be read.)

A process that is started removes the rows of its name. So if there is another one afterwards, two
processes have that name: one of the machines is a clone, or has the settings of the other. The one
that decides, or else was started first, goes on; the other one is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from forewarn import __version__
from forewarn.store.port import ControlNode, Member
from forewarn.support.text import listing

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
  coalesce(%(started)s, clock_timestamp()), clock_timestamp())
ON CONFLICT (name, machine) DO UPDATE SET address = excluded.address, version = excluded.version,
  lease = excluded.lease, seq = excluded.seq, lag = excluded.lag, seen = excluded.seen
RETURNING lag, started
"""
_FORGET = f"""
DELETE FROM control_nodes WHERE seen < clock_timestamp() - interval '{FORGET_AFTER}'
   OR name = %(name)s AND machine <> %(machine)s
"""
_FORGET_AWAY = f"""
DELETE FROM control_nodes
 WHERE name = %s AND seen < clock_timestamp() - interval '{AWAY_AFTER} s'
"""
_LIST = f"""
SELECT n.name, n.address, n.version, n.lease, n.seq, n.lag,
  (extract(epoch FROM n.started) * 1000000)::bigint, (extract(epoch FROM n.seen) * 1000000)::bigint,
  coalesce(l.until >= clock_timestamp(), false),
  n.seen < clock_timestamp() - interval '{AWAY_AFTER} s', n.machine
 FROM control_nodes n LEFT JOIN leader l ON l.name = n.name AND l.machine = n.machine
ORDER BY n.name, n.started
"""


def report(
    connection: psycopg.Connection[Any],
    member: Member,
    lease: float,
    seq: int,
    started: datetime | None,
) -> tuple[int, datetime, list[ControlNode]] | None:
    """Write the row of this node, which was `started` then, or now if this is its first report.
    Returns how many commits it is behind, when it was started, and all nodes. A report that would
    have to wait for a lock is left out, and None returned: the lease is renewed through the same
    connection."""
    values = {
        "name": member.name,
        "machine": member.place,
        "address": member.address,
        "version": __version__,
        "lease": lease,
        "seq": seq,
        "started": started,
    }
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
            if started is None:
                connection.execute(_FORGET, values)
            row = connection.execute(_REPORT, values).fetchone()
            assert row is not None
            return *row, read(connection)
    except psycopg.errors.LockNotAvailable:
        return None


def forget(connection: psycopg.Connection[Any], name: str) -> None:
    """Remove the rows of this name whose node is away. One that is not gone writes another."""
    connection.execute(_FORGET_AWAY, (name,))


def differences(nodes: Sequence[ControlNode]) -> dict[str, str]:
    """Return in what the nodes differ that should be the same for all, by subject."""
    present = [node for node in nodes if not node.away]
    return {
        "version": _version_problem(present),
        "lease": _lease_problem(present),
        "name": _names_problem(present),
    }


def name_problem(nodes: Sequence[ControlNode], process: str) -> str:
    """Return why this process is refused, if another one has its name; empty if none has."""
    own = next(node for node in nodes if node.process == process)
    for node in nodes:
        before = node.leads or (node.started, node.process) < (own.started, process)
        if node.name == own.name and node is not own and before and not (node.away or own.leads):
            verb = "decides" if node.leads else "was started first"
            return (
                f"another process is the control node '{own.name}', and {verb}; give each control"
                " node a name of its own, and each machine an /etc/machine-id of its own, also if"
                " it is a clone"
            )
    return ""


def _names_problem(nodes: Sequence[ControlNode]) -> str:
    names = sorted(name for name, count in Counter(n.name for n in nodes).items() if count > 1)
    if not names:
        return ""
    return (
        f"more than one control node is called {listing(names)}; only the one that decides, or was"
        " started first, can decide; see 'forewarn control list'"
    )


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
            process=place.rpartition("/")[2],
        )
        for name, address, version, lease, seq, lag, started, seen, leads, away, place in (
            connection.execute(_LIST)
        )
    ]
