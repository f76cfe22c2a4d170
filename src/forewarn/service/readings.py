"""What the parts of a service tell about themselves in numbers, for whoever watches it."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec


class Kind(enum.Enum):
    COUNTER = "counter"  # only grows
    GAUGE = "gauge"  # as it is now


class Reading(msgspec.Struct, frozen=True):
    """One number, or one for each value of its labels."""

    name: str
    says: str
    kind: Kind
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]
