"""The settings of `forewarn serve`.

`model` declares them, `sources` collects them from file, environment and flags, and `validate`
turns them into the configuration of a node.
"""

from forewarn.node.settings.model import (
    OTHER_VARIABLES,
    LoadedSettings,
    Origin,
    Settings,
    SettingsError,
    Source,
)
from forewarn.node.settings.sources import gather, read
from forewarn.node.settings.validate import config, load
from forewarn.node.settings.values import gates

__all__ = [
    "OTHER_VARIABLES",
    "LoadedSettings",
    "Origin",
    "Settings",
    "SettingsError",
    "Source",
    "config",
    "gates",
    "gather",
    "load",
    "read",
]
