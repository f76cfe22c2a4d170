"""Reading the options of a ready-made hook: what is wrong with them, and which stages it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from forewarn.agent.config.model import STAGES, Stage
from forewarn.agent.hooks import KINDS, stages_of
from forewarn.support.suggest import ValueProblem, value_problem


def kinds() -> tuple[str, ...]:
    return tuple(KINDS)


def problem(kind: str, raw: dict[str, Any]) -> ValueProblem | None:
    """What is wrong with its options, and at which steps into them; None if nothing is."""
    shape = KINDS[kind].options
    try:
        msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        said = str(error)
        if isinstance(error.__cause__, ValueError):
            said = str(error.__cause__)
        return value_problem(said, raw, shape, dict(_choices(shape)))
    return None


def stages(kind: str, raw: dict[str, Any]) -> tuple[Stage, ...]:
    """Of options that have been found good, in their order."""
    had = stages_of(kind, msgspec.convert(raw, KINDS[kind].options))
    return tuple(stage for stage in STAGES if stage in had)


def _choices(shape: type[msgspec.Struct]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field in msgspec.structs.fields(shape):
        inner = (field.type, *get_args(field.type))
        for one in inner:
            if get_origin(one) is Literal:
                yield field.name, get_args(one)
