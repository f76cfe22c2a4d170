"""Bringing an older state file up to date, step by step, with Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory

from forewarn.store.port import StoreUnusable
from forewarn.store.schema import SCHEMA_VERSION

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: sa.Connection, path: Path, found: str, *, allowed: bool) -> None:
    scripts = _scripts()
    if found not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreUnusable(
            f"{path} has schema {found}, which this version does not know"
            f" (it knows up to {SCHEMA_VERSION}); use a newer forewarn"
        )
    if not allowed:
        raise StoreUnusable(f"{path} has schema {found} and must be upgraded to {SCHEMA_VERSION}")
    run(connection, SCHEMA_VERSION)


def run(connection: sa.Connection, target: str) -> None:
    """Apply every step from the schema found up to `target`."""
    scripts = _scripts()

    def steps(revision: tuple[str, ...], _context: object) -> object:
        return scripts._upgrade_revs(target, revision)  # type: ignore[arg-type]

    with EnvironmentContext(scripts.env_config, scripts, fn=steps) as environment:  # type: ignore[attr-defined]
        environment.configure(connection=connection)
        environment.run_migrations()


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    scripts.env_config = config  # type: ignore[attr-defined]
    return scripts
