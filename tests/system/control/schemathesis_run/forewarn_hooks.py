"""For schemathesis: how to read what is no JSON, and the one thing that must not be done to the
service under test, taking away the token it is tested with."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis

OURS = os.environ["FOREWARN_TEST_TOKEN"].split(",")


@schemathesis.hook
def filter_case(_context: Any, case: Any) -> bool:
    if case.operation.definition.raw.get("operationId") != "revokeToken":
        return True
    return str(case.path_parameters.get("id")) not in OURS


@schemathesis.deserializer("application/x-ndjson")
def lines(_context: Any, response: Any) -> list[Any]:
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.deserializer("application/vnd.sqlite3")
def state(_context: Any, response: Any) -> str:
    assert response.content.startswith(b"SQLite format 3\0")
    return "a database"
