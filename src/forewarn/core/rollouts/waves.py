"""Waves: lanes that all have to be complete before the lanes of the next wave begin.

The first wave may be a canary: named lanes, or a number of them. Further waves are given by how
many lanes are complete after them, as a number or a share of all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from forewarn.core.refusal import Refused, invalid, unknown
from forewarn.core.rollouts.model import Lane
from forewarn.support.limits import MAX_WAVES
from forewarn.support.suggest import instead_of
from forewarn.support.text import counted

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(%?)")


def in_waves(
    lanes: Sequence[Lane], canary: Sequence[str], waves: Sequence[str]
) -> tuple[Lane, ...] | Refused:
    """Return the lanes in the order of their waves, the canary first."""
    first = _canary(lanes, canary)
    if isinstance(first, Refused):
        return first
    if len(waves) > MAX_WAVES:
        return invalid(f"a rollout can have at most {MAX_WAVES} waves")
    chosen = {lane.name for lane in first}
    ordered = [*first, *(lane for lane in lanes if lane.name not in chosen)]
    ends = [len(first)] if first else []
    previous = 0
    for text in waves:
        size = _size(text, len(ordered))
        if isinstance(size, Refused):
            return size
        if size < previous:
            return invalid(
                f"wave '{text}' is smaller than the wave before it; give waves in ascending order,"
                " for example 1, 5%, 25%, 100%"
            )
        previous = size
        if size > (ends[-1] if ends else 0):  # a share of few lanes may be no more than before
            ends.append(size)
    numbers = [sum(end <= position for end in ends) for position in range(len(ordered))]
    return tuple(
        msgspec.structs.replace(lane, wave=number)
        for lane, number in zip(ordered, numbers, strict=True)
    )


def _canary(lanes: Sequence[Lane], canary: Sequence[str]) -> list[Lane] | Refused:
    chosen: dict[str, Lane] = {}
    for name in canary:
        matching = [lane for lane in lanes if lane.name == name or fnmatchcase(lane.name, name)]
        if not matching and name.isdigit():
            if not 0 < int(name) <= len(lanes):
                return invalid(
                    f"a canary of {name} is not possible: the rollout has"
                    f" {counted(len(lanes), 'lane')}"
                )
            matching = list(lanes[: int(name)])
        if not matching:
            names = [lane.name for lane in lanes]
            return unknown(
                f"canary '{name}' is not one of this rollout's groups or hosts;"
                f" {instead_of(name, names)}"
            )
        chosen |= {lane.name: lane for lane in matching}
    return list(chosen.values())


def _size(text: str, total: int) -> int | Refused:
    match = _SIZE.fullmatch(text.strip())
    number, share = (float(match[1]), bool(match[2])) if match else (0.0, False)
    if number <= 0 or (number > 100 if share else not number.is_integer()):
        return invalid(
            f"'{text[:40]}' is not the size of a wave; give a number of groups or hosts, or a share"
            " such as 5%"
        )
    return min(total, math.ceil(total * number / 100) if share else int(number))
