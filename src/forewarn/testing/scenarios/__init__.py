"""Scenarios: a fleet, what happens to it and when, and what is expected of whoever lives in it.

`reading` makes one from YAML, `shelf` has those that come with the package, `engine` plays one on a
real service, and `result` says what came of it. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.scenarios.engine import play, run
    from forewarn.testing.scenarios.model import Scenario
    from forewarn.testing.scenarios.published import schema, schema_text
    from forewarn.testing.scenarios.reading import ScenarioError, load, parse
    from forewarn.testing.scenarios.result import Result
    from forewarn.testing.scenarios.shelf import find, names

_ROOMS = {
    "Result": "result",
    "Scenario": "model",
    "ScenarioError": "reading",
    "find": "shelf",
    "load": "reading",
    "names": "shelf",
    "parse": "reading",
    "play": "engine",
    "run": "engine",
    "schema": "published",
    "schema_text": "published",
}
__all__ = [
    "Result",
    "Scenario",
    "ScenarioError",
    "find",
    "load",
    "names",
    "parse",
    "play",
    "run",
    "schema",
    "schema_text",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
