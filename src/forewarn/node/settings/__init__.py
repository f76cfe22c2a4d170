"""The settings of `forewarn serve`: one door to the rooms about them.

`settings_shape` says which there are, `settings_reading` gathers them from file, environment and
flags, `settings_checking` makes of them what a node is told.
"""

from forewarn.cli.settings_checking import config, load
from forewarn.cli.settings_reading import gather, read
from forewarn.cli.settings_shape import (
    OTHER_VARIABLES,
    CommandTable,
    Origin,
    Said,
    Settings,
    SettingsError,
    Source,
)
from forewarn.cli.settings_values import gates

__all__ = [
    "OTHER_VARIABLES",
    "CommandTable",
    "Origin",
    "Said",
    "Settings",
    "SettingsError",
    "Source",
    "config",
    "gates",
    "gather",
    "load",
    "read",
]
