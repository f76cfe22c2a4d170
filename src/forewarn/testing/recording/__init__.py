"""Recordings: made by polling an endpoint, read from traces and from pasted text, and turned into
scenarios.

`recorder` polls and writes, `reader` makes trace lines of whatever a file holds, `event_lives` says
what became of each event in them, and `scenario` writes that down as something that can be played.
Names are imported when they are first used; recording and reading need no server package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.recording.reader import NotARecording, Recording, read, read_text
    from forewarn.testing.recording.scenario import scenario_text

_ROOMS = {
    "NotARecording": "reader",
    "Recording": "reader",
    "read": "reader",
    "read_text": "reader",
    "scenario_text": "scenario",
}
__all__ = ["NotARecording", "Recording", "read", "read_text", "scenario_text"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
