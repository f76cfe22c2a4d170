"""Scenarios: a fleet, what happens to it and when, and what is expected of the clients in it.

`file` reads one from YAML, `shipped_list` has those that come with the package, `from_recording`
writes one from a recording, `runner` plays one on a running service, and `result` is the outcome.
Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.scenarios.file.json_schema import schema, schema_text
    from forewarn.testing.scenarios.file.read import ScenarioError, load, parse
    from forewarn.testing.scenarios.from_recording import NoScenarioError, scenario_text
    from forewarn.testing.scenarios.model import Scenario
    from forewarn.testing.scenarios.result import Result
    from forewarn.testing.scenarios.runner import play
    from forewarn.testing.scenarios.shipped_list import find, names

_MODULES = {
    "NoScenarioError": "from_recording",
    "Result": "result",
    "Scenario": "model",
    "ScenarioError": "file.read",
    "find": "shipped_list",
    "load": "file.read",
    "names": "shipped_list",
    "parse": "file.read",
    "play": "runner",
    "scenario_text": "from_recording",
    "schema": "file.json_schema",
    "schema_text": "file.json_schema",
}
__all__ = [
    "NoScenarioError",
    "Result",
    "Scenario",
    "ScenarioError",
    "find",
    "load",
    "names",
    "parse",
    "play",
    "scenario_text",
    "schema",
    "schema_text",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
