"""What may go wrong with a database that can be used: what a fail-over could lose, and what lies
between this machine and the database. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from forewarn.store.postgres.lease import look_at_clock
from forewarn.store.postgres.session import through_pooler

_NAMES = "SELECT current_setting('synchronous_standby_names')"
# For a role without the right to see it, the state of a standby is NULL.
_STANDBYS = """
SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(state)
  FROM pg_stat_replication
"""
_MAY_CREATE = "SELECT has_schema_privilege(current_schema(), 'CREATE'), to_regclass('commits')"


def warnings(connection: psycopg.Connection[Any], *, managed: bool) -> Iterator[str]:
    """Yield what an operator should know. If the replication is `managed` by somebody else, it is
    believed to lose nothing."""
    if not managed and (problem := replication_problem(connection)):
        yield problem
    may_create, tables = _row(connection, _MAY_CREATE)
    if not may_create and tables is None:
        yield "the role may not create tables: GRANT CREATE ON SCHEMA … TO …"
    if through_pooler(connection):
        yield (
            "there is a connection pooler in between: control nodes need sessions of their own"
            " (LISTEN, and the end of a session that hangs); connect to the server itself"
        )
    if problem := look_at_clock(connection):
        yield problem


def replication_problem(connection: psycopg.Connection[Any]) -> str:
    """Return why a fail-over could lose commits, or none can be made; empty if all is well."""
    standbys, synchronous, visible = _row(connection, _STANDBYS)
    if not _row(connection, _NAMES)[0]:
        return (
            "no standby is synchronous (synchronous_standby_names is empty): a fail-over may lose"
            ' approvals that were acknowledged. Set it, or replicated = "managed" if the provider'
            " of the database sees to it"
        )
    if not synchronous and visible == standbys:
        return (
            "no synchronous standby is connected (pg_stat_replication): every commit waits for one"
        )
    return ""


def _row(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query).fetchone()
