"""Bringing an older state file up to date, step by step, with Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory

MIGRATIONS = Path(__file__).parent / "migrations"


def run(connection: sa.Connection, target: str) -> None:
    """Apply every step from the schema found up to `target`, in the transaction that is open."""
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
