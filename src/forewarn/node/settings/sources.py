"""Reading the settings: what nobody says is the default, over that goes the file, over that the
environment, over that the flags. Everything that is wrong is told at once, each with its place.

Only the shape is looked at here; whether a value can be used is `validate.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from forewarn.node.settings.model import (
    BELOW,
    OTHER_VARIABLES,
    PATHS,
    PREFIX,
    TABLES,
    CommandTable,
    LoadedSettings,
    Origin,
    Settings,
    SettingsError,
    Source,
)
from forewarn.node.settings.toml_lines import lines
from forewarn.support.suggest import complaint, instead_of

MAX_SETTINGS_BYTES = 1024 * 1024  # of a settings file

_TOP: dict[str, Any] = {f.name: f.type for f in msgspec.structs.fields(Settings)}
_COMMAND: dict[str, Any] = {f.name: f.type for f in msgspec.structs.fields(CommandTable)}
_GATE: Any = list[str]

Layer = dict[str, tuple[Any, Origin]]  # by the whole key; a table as such has no entry


def read(path: Path) -> Settings:
    """What a file says, alone."""
    return gather(path).settings


def gather(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """All that is said, by everybody. Raises SettingsError with all that is wrong.

    A flag is named as its setting is: `no_front` is the one that has another name."""
    problems: list[str] = []
    layer = _file(path, problems)
    layer |= _environment(environment or {}, problems, layer)
    layer |= _flags(flags or {})
    said = _assembled(layer, problems)
    if problems:
        raise SettingsError(*problems, usable=said)
    return said


def _file(path: Path | None, problems: list[str]) -> Layer:
    if path is None:
        return {}
    try:
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            problems.append(f"{path}: a settings file has at most {MAX_SETTINGS_BYTES:,} bytes")
            return {}
        text = path.read_text("utf-8")
        raw = tomllib.loads(text)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.append(_placed(path, str(error)))
        return {}
    where = lines(text)
    layer: Layer = {}
    for steps, value in _leaves(raw):
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(one, str) and "\0" in one for one in texts):
            place = f"{path}:{where.get(steps, 0)}: {'.'.join(steps)}"
            problems.append(f"{place}: contains a NUL character, which no path or program can have")
            continue
        layer[".".join(steps)] = value, Origin(Source.FILE, str(path), where.get(steps, 0))
    for key, (value, origin) in layer.items():
        layer[key] = _seen_from(path.parent, key, value), origin
    return layer


def _placed(path: Path, says: str) -> str:
    """A complaint of the library that reads TOML, with the line where it belongs."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", says, re.DOTALL)
    return f"{path}:{found[2]}: {found[1]} (column {found[3]})" if found else f"{path}: {says}"


def _leaves(raw: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in raw.items():
        if key in TABLES and isinstance(value, dict):
            yield from (((key, below), one) for below, one in value.items())
            if not value and key == "command":
                yield (key,), value
        else:
            yield (key,), value


def _seen_from(directory: Path, key: str, value: Any) -> Any:
    """Paths in a file are as seen from it, wherever one stands. A bare name of a program is
    looked for in PATH."""
    if key in PATHS and isinstance(value, str) and value:
        return str(directory / value)
    if key == "command.program" or key.startswith("gates."):
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first, str) and "/" in first:
            return [str((directory / first).absolute()), *value[1:]]
    return value


def _environment(environment: Mapping[str, str], problems: list[str], below: Layer) -> Layer:
    layer: Layer = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        key = _key_of(name)
        if key is None:
            problems.append(f"{name}: no such setting; {instead_of(name, _variables())}")
            continue
        origin = Origin(Source.ENVIRONMENT, name)
        try:
            value = _parsed(_kind(key), environment[name], key)
        except ValueError as error:
            problems.append(origin.before(str(error)))
            continue
        if key in TABLES and isinstance(value, dict):  # all of it: nothing of the file's is left
            for old in [old for old in below if old.startswith(f"{key}.")]:
                del below[old]
            layer |= {f"{key}.{one}": (what, origin) for one, what in value.items()}
        else:
            layer[key] = value, origin
    return layer


def _variables() -> list[str]:
    below = [f"{PREFIX}COMMAND{BELOW}{key.upper()}" for key in _COMMAND]
    return [f"{PREFIX}{key.upper()}" for key in _TOP] + below + list(OTHER_VARIABLES)


def _key_of(name: str) -> str | None:
    """The setting that a variable says. Gates are told apart by the case of their letters."""
    table, below, key = name.removeprefix(PREFIX).partition(BELOW)
    table = table.lower()
    if not below:
        return table if table in _TOP else None
    if table == "gates" and key:
        return f"gates.{key}"
    return f"command.{key.lower()}" if table == "command" and key.lower() in _COMMAND else None


def _kind(key: str) -> Any:
    table, dot, below = key.partition(".")
    if not dot:
        return _TOP.get(key)
    return {"gates": _GATE, "command": _COMMAND.get(below)}.get(table)


def _parsed(kind: Any, text: str, key: str) -> Any:
    """A variable is text: what it means depends on what is expected."""
    kinds = {get_origin(one) or one for one in get_args(kind) or (kind,)}
    if get_origin(kind) is list:
        kinds = {list}
    if str in kinds:
        return _one_or_list(text, key) if list in kinds else text
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} is true or false, not '{text}'")
        return text.lower() == "true"
    if int in kinds:
        try:
            return int(text)
        except ValueError as error:
            raise ValueError(f"{key} is a whole number, not '{text}'") from error
    if text.strip()[:1] not in ("[", "{"):
        if list in kinds and (key == "control_names" or "," not in text):
            return _words(text)
        # Without the text: among the words of a program there may be a secret.
        raise ValueError(f"{key} is written as in the file, or as JSON, as a list or table")
    return _structured(text, key)


def _one_or_list(text: str, key: str) -> Any:
    """Read a setting that is a text or a list of texts. (An IPv6 address also begins with a
    bracket, but no quotation mark follows it.)"""
    if re.match(r"""\s*\[\s*["']""", text):
        return _structured(text, key)
    return _words(text) if "," in text else text


def _words(text: str) -> list[str]:
    return [word for one in text.split(",") if (word := one.strip())]


def _structured(text: str, key: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{key} is written as in the file, or as JSON: {error}") from error


def _flags(flags: Mapping[str, Any]) -> Layer:
    layer: Layer = {}
    for key, value in flags.items():
        if key == "no_front":
            if value:
                layer["front"] = False, Origin(Source.FLAG, "--no-front")
        elif value is not None and value != []:
            texts = [str(item) for item in (value if isinstance(value, list) else [value])]
            origin = Origin(Source.FLAG, f"--{key.replace('_', '-')}")
            layer[key] = texts if len(texts) > 1 else texts[0], origin
    return layer


def _assembled(layer: Layer, problems: list[str]) -> LoadedSettings:
    made: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    origins: dict[str, Origin] = {}
    for key, (value, origin) in layer.items():
        table, dot, below = key.partition(".")
        kind = _kind(key)
        if kind is None:
            known = list(_COMMAND) if dot and table == "command" else list(_TOP)
            shown = below if table == "command" and dot else key
            problems.append(origin.before(f"{key}: unknown key; {instead_of(shown, known)}"))
            continue
        try:
            converted = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            says, steps = complaint(str(error), value, kind)
            place = key + "".join(f"[{step}]" for step in steps)
            problems.append(origin.before(f"{place}: {says}"))
            continue
        origins[key] = origin
        if dot:
            tables.setdefault(table, {})[below] = converted
        else:
            made[key] = converted
    if (command := tables.get("command")) is not None:
        if "program" not in command:
            made.pop("driver", None)  # one complaint is enough
            origin = next(o for k, o in origins.items() if k.startswith("command."))
            problems.append(
                origin.before(
                    "command.program is missing: the program that carries events out, for"
                    ' example program = ["/usr/local/lib/forewarn/carry"]'
                )
            )
        else:
            made["command"] = CommandTable(**command)
    if "gates" in tables:
        made["gates"] = tables["gates"]
    return LoadedSettings(Settings(**made), origins)
