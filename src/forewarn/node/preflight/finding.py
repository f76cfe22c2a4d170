"""One thing that may be wrong with settings that are right in themselves, and where they say it."""

from __future__ import annotations

import msgspec

from forewarn.node.settings import LoadedSettings


class Finding(msgspec.Struct, frozen=True):
    """Fatal: it keeps the service from starting. Else it may be as it is meant to be."""

    says: str
    fatal: bool = False


def fatal(said: LoadedSettings, key: str, says: str) -> Finding:
    return Finding(said.origin(key).before(f"{key}: {says}"), fatal=True)


def warning(said: LoadedSettings, key: str, says: str) -> Finding:
    return Finding(said.origin(key).before(f"{key}: {says}"))
