"""Findings about a setting, with the place at which it is set."""

from __future__ import annotations

from forewarn.node.settings import LoadedSettings
from forewarn.support.finding import Finding, note, problem


def fatal(loaded: LoadedSettings, key: str, message: str) -> Finding:
    """What keeps the service from starting."""
    return problem(loaded.origin(key).prefix(key), message)


def warning(loaded: LoadedSettings, key: str, message: str) -> Finding:
    """What may be intended."""
    return note(loaded.origin(key).prefix(key), message)
