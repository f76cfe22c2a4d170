"""What a check of the machine reports: a message, with the place of the setting it is about."""

from __future__ import annotations

import msgspec

from forewarn.node.settings import LoadedSettings


class Finding(msgspec.Struct, frozen=True):
    """An error, which keeps the service from starting, or a warning, which may be intended."""

    message: str
    fatal: bool = False


def fatal(loaded: LoadedSettings, key: str, message: str) -> Finding:
    return Finding(loaded.origin(key).prefix(f"{key}: {message}"), fatal=True)


def warning(loaded: LoadedSettings, key: str, message: str) -> Finding:
    return Finding(loaded.origin(key).prefix(f"{key}: {message}"))
