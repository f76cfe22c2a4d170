"""Reading a hook: commands for its stages, or one that is ready-made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from forewarn.agent.config import hook_options
from forewarn.agent.config.model import DEFAULT_TIMEOUT, ON_FAILURE, STAGES, Hook, Stage
from forewarn.agent.config.reader import Reader
from forewarn.support.text import SECOND, in_words, listing

MAX_RETRIES = 20
LEAST_TIMEOUT = 1.0  # seconds
MAX_TIMEOUT = 86_400.0

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_SHAPE: dict[str, Any] = {
    "timeout": str | int | float,
    "retries": int,
    "if_it_fails": str,
    **dict.fromkeys(STAGES, str | list[str]),
    **dict.fromkeys(hook_options.kinds(), dict[str, Any]),
}


def hook(reader: Reader, name: str, raw: Any) -> Hook | None:
    place = f"hook.{name}"
    if not _NAME.fullmatch(name):
        reader.wrong(
            place,
            "a hook's name has letters, digits, '_', '.' and '-', begins with a letter, a digit or"
            " '_', and has at most 64 characters",
        )
    if not isinstance(raw, dict):
        reader.wrong(place, "a table is expected, with commands or one that is ready-made")
        return None
    said = reader.typed(place, raw, _SHAPE)
    commands: dict[Stage, tuple[str, ...]] = {
        stage: _command(reader, f"{place}.{stage}", said[stage])
        for stage in STAGES
        if stage in said
    }
    retries = said.get("retries", 0)
    if not 0 <= retries <= MAX_RETRIES:
        reader.wrong(f"{place}.retries", f"{retries} is not from 0 to {MAX_RETRIES}")
    kind, stages = _what(reader, place, raw, said, commands)
    return Hook(
        name=name,
        commands=commands,
        kind=kind,
        options=said.get(kind, {}),
        stages=stages,
        timeout=_timeout(reader, f"{place}.timeout", said.get("timeout")),
        retries=retries,
        if_it_fails=reader.choice(
            f"{place}.if_it_fails", said.get("if_it_fails", ON_FAILURE[0]), ON_FAILURE
        ),
    )


def _what(
    reader: Reader,
    place: str,
    raw: dict[str, Any],
    said: dict[str, Any],
    commands: dict[Stage, tuple[str, ...]],
) -> tuple[str, tuple[Stage, ...]]:
    """Which ready-made one, if it is one, and the stages it has."""
    kinds = [key for key in raw if key in hook_options.kinds()]
    if len(kinds) > 1 or (kinds and commands):
        both = listing([*kinds, *commands])
        reader.wrong(place, f"a hook is one ready-made thing, or commands, not both: {both}")
    elif kinds and kinds[0] in said:
        (kind,) = kinds
        if (wrong := hook_options.problem(kind, said[kind])) is None:
            return kind, hook_options.stages(kind, said[kind])
        path = "".join([f"{place}.{kind}", *map(_step, wrong.steps)])
        reader.wrong(path, wrong.message)
    elif not set(raw) & {*STAGES, *kinds}:
        reader.wrong(
            place,
            f"says nothing to do; give a command for {listing(STAGES)}, or one of"
            f" {listing(sorted(hook_options.kinds()))}",
        )
    elif "undo" in commands and "prepare" not in raw:
        reader.wrong(f"{place}.undo", "there is no prepare that it could undo, so it never runs")
    return "", tuple(commands)


def _command(reader: Reader, place: str, said: str | list[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(said) if isinstance(said, str) else said
    except ValueError as error:
        reader.wrong(place, f"{said!r} cannot be split into words: {error}")
        return ()
    if not words or not words[0] or any("\0" in word for word in words):
        reader.wrong(place, "a command is a program and its arguments; for none, leave it out")
        return ()
    program = words[0]
    if "/" in program and not Path(program).is_absolute():
        program = str(reader.placed(program))
    return (program, *words[1:])


def _timeout(reader: Reader, place: str, said: str | float | None) -> float:
    timeout = reader.duration(place, said)
    if timeout is None:
        return DEFAULT_TIMEOUT
    if not LEAST_TIMEOUT <= timeout <= MAX_TIMEOUT:
        least, most = in_words(int(LEAST_TIMEOUT * SECOND)), in_words(int(MAX_TIMEOUT * SECOND))
        reader.wrong(place, f"'{said}' is not from {least} to {most}")
    return timeout


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"
