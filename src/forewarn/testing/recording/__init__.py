"""Recordings: made by polling an endpoint, or read from traces and from documents as JSON.

`recorder` polls, `file` writes, and `reader` turns the contents of a file into trace lines.
`event_lives`, `answer_faults` and `fleets` say what a recording shows, from which
`scenarios.from_recording` writes a scenario. Names are imported when they are first used; recording
and reading need no server package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.recording.reader import NotARecordingError, Recording, read, read_text

_MODULES = {
    "NotARecordingError": "reader",
    "Recording": "reader",
    "read": "reader",
    "read_text": "reader",
}
__all__ = ["NotARecordingError", "Recording", "read", "read_text"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
