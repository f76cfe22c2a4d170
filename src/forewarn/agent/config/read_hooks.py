"""Reads a hook: commands for its stages, or a built-in hook with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from forewarn.agent.config.model import DEFAULT_TIMEOUT, ON_FAILURE, STAGES, Hook, Stage
from forewarn.agent.config.reader import Reader
from forewarn.agent.hooks import KINDS, stages_of
from forewarn.support.suggest import ValueProblem, value_problem
from forewarn.support.text import SECOND, in_words, listing

MAX_RETRIES = 20
LEAST_TIMEOUT = 1.0  # seconds
MAX_TIMEOUT = 86_400.0

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TYPES: dict[str, Any] = {
    "timeout": str | int | float,
    "retries": int,
    "if_it_fails": str,
    **dict.fromkeys(STAGES, str | list[str]),
    **dict.fromkeys(KINDS, dict[str, Any]),
}


def hook(reader: Reader, name: str, raw: Any) -> Hook | None:
    place = f"hook.{name}"
    if not _NAME.fullmatch(name):
        reader.add_problem(
            place,
            "a hook's name must consist of letters, digits, '_', '.' and '-', begin with a letter,"
            " a digit or '_', and have at most 64 characters",
        )
    if not isinstance(raw, dict):
        reader.add_problem(place, "a table is expected, with commands or a built-in hook")
        return None
    table = reader.table(place, raw, _TYPES)
    commands: dict[Stage, tuple[str, ...]] = {
        stage: _command(reader, f"{place}.{stage}", table[stage])
        for stage in STAGES
        if stage in table
    }
    retries = table.get("retries", 0)
    if not 0 <= retries <= MAX_RETRIES:
        reader.add_problem(f"{place}.retries", f"{retries} is not from 0 to {MAX_RETRIES}")
    kind, stages = _kind_and_stages(reader, place, raw, table, commands)
    return Hook(
        name=name,
        commands=commands,
        kind=kind,
        options=table.get(kind, {}),
        stages=stages,
        timeout=_timeout(reader, f"{place}.timeout", table.get("timeout")),
        retries=retries,
        if_it_fails=reader.choice(
            f"{place}.if_it_fails", table.get("if_it_fails", ON_FAILURE[0]), ON_FAILURE
        ),
    )


def _kind_and_stages(
    reader: Reader,
    place: str,
    raw: dict[str, Any],
    table: dict[str, Any],
    commands: dict[Stage, tuple[str, ...]],
) -> tuple[str, tuple[Stage, ...]]:
    """Return the kind of a built-in hook, or nothing, and the stages that the hook has."""
    kinds = [key for key in raw if key in KINDS]
    if len(kinds) > 1 or (kinds and commands):
        both = listing([*kinds, *commands])
        reader.add_problem(place, f"a hook has either commands or one built-in hook, not {both}")
    elif kinds and kinds[0] in table:
        (kind,) = kinds
        if (problem := _options_problem(kind, table[kind])) is None:
            return kind, _stages(kind, table[kind])
        path = "".join([f"{place}.{kind}", *map(_step, problem.steps)])
        reader.add_problem(path, problem.message)
    elif not set(raw) & {*STAGES, *kinds}:
        reader.add_problem(
            place,
            f"does nothing; add a command for {listing(STAGES)}, or one of"
            f" {listing(sorted(KINDS))}",
        )
    elif "undo" in commands and not {"announced", "prepare"} & set(raw):
        reader.add_problem(f"{place}.undo", "there is no prepare to undo, so it never runs")
    return "", tuple(commands)


def _options_problem(kind: str, raw: dict[str, Any]) -> ValueProblem | None:
    """Return what is wrong with the options of a built-in hook; None if they are valid."""
    options = KINDS[kind].options
    try:
        msgspec.convert(raw, options)
    except msgspec.ValidationError as error:
        message = str(error)
        if isinstance(error.__cause__, ValueError):
            message = str(error.__cause__)
        return value_problem(message, raw, options, dict(_choices(options)))
    return None


def _stages(kind: str, raw: dict[str, Any]) -> tuple[Stage, ...]:
    stages = stages_of(kind, msgspec.convert(raw, KINDS[kind].options))
    return tuple(stage for stage in STAGES if stage in stages)


def _choices(options: type[msgspec.Struct]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field in msgspec.structs.fields(options):
        for type in (field.type, *get_args(field.type)):
            if get_origin(type) is Literal:
                yield field.name, get_args(type)


def _command(reader: Reader, place: str, value: str | list[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        reader.add_problem(place, f"{value!r} cannot be split into words: {error}")
        return ()
    if not words or not words[0] or any("\0" in word for word in words):
        reader.add_problem(place, "a program and its arguments are expected; omit it for none")
        return ()
    program = words[0]
    if "/" in program and not Path(program).is_absolute():
        program = str(reader.absolute(program))
    return (program, *words[1:])


def _timeout(reader: Reader, place: str, value: str | float | None) -> float:
    timeout = reader.duration(place, value)
    if timeout is None:
        return DEFAULT_TIMEOUT
    if not LEAST_TIMEOUT <= timeout <= MAX_TIMEOUT:
        least, most = in_words(int(LEAST_TIMEOUT * SECOND)), in_words(int(MAX_TIMEOUT * SECOND))
        reader.add_problem(place, f"'{value}' is not from {least} to {most}")
    return timeout


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"
