"""Where things lie in this repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
HELPERS = TESTS / "helpers"
PUBLISHED_CLIENTS = TESTS / "system/clients/drivers"
STORED_SCHEMAS = TESTS / "unit/store/sqlite/schemas"  # a state file of each schema
