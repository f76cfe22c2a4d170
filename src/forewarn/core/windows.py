"""Windows: when planned work may begin, in the local time of a place."""

from __future__ import annotations

import msgspec


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Placeholder until the calendar stands."""

    said: str = ""
