"""Reading the settings: flags override the environment, which overrides the file, which overrides
the defaults. All problems are reported at once, each with its place.

Only types are checked here; whether a value can be used is checked in `validate.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from forewarn.core.access import Role
from forewarn.drivers import registry
from forewarn.node.settings.driver_tables import (
    is_driver_table,
    missing_options,
    option_types,
    options_type,
    with_defaults,
)
from forewarn.node.settings.model import (
    DEFAULT,
    NODE_PREFIX,
    OTHER_VARIABLES,
    PATHS,
    PREFIX,
    SEPARATOR,
    LoadedSettings,
    Origin,
    Settings,
    SettingsError,
    Source,
)
from forewarn.node.settings.toml_lines import lines
from forewarn.notify.config import FILES, MODES, Notify
from forewarn.store.engines import is_url
from forewarn.support.suggest import instead_of, value_problem
from forewarn.support.text import not_utf8

MAX_SETTINGS_BYTES = 1024 * 1024  # of a settings file
COMMAS = (
    "control_names",
    "control_proxies",
    "nodes_addresses",
)  # lists that a variable may have with commas

_TOP: dict[str, Any] = {
    f.name: f.type for f in msgspec.structs.fields(Settings) if f.name != "driver_options"
}
_GATE: Any = list[str]
_CHOICES = {  # allowed values, by key
    "mode": MODES,
    "role": tuple(role.value for role in Role),
}

Layer = dict[str, tuple[Any, Origin]]  # by the whole key; a table as such has no entry


def read(path: Path) -> Settings:
    """Return the settings of a file, regardless of the environment."""
    return gather(path).settings


def gather(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Collect the settings from all sources. Raises SettingsError with everything that is wrong.

    A flag has the name of its setting."""
    problems: list[str] = []
    layer = file_layer(path, problems)
    layer |= _environment(environment or {}, problems, layer)
    layer |= flag_layer(flags or {})
    loaded = assemble(layer, problems)
    if problems:
        raise SettingsError(*problems, usable=loaded)
    return loaded


def file_layer(path: Path | None, problems: list[str], paths: Collection[str] = PATHS) -> Layer:
    """Read a settings file. `paths` are the keys of paths, which are relative to the file."""
    if path is None:
        return {}
    try:
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            problems.append(
                f"{path}: a settings file may have at most {MAX_SETTINGS_BYTES:,} bytes"
            )
            return {}
        text = path.read_text("utf-8")
        raw = tomllib.loads(text)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return {}
    except UnicodeDecodeError as error:
        problems.append(f"{path}: {not_utf8(error)}")
        return {}
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problems.append(_placed(path, str(error)))
        return {}
    where = lines(text)
    layer: Layer = {}
    for steps, value in _leaves(raw):
        if any("\0" in text for text in _texts(value)):
            place = f"{path}:{where.get(steps, 0)}: {'.'.join(steps)}"
            problems.append(f"{place}: contains a NUL character, which no path or program can have")
            continue
        layer[".".join(steps)] = value, Origin(Source.FILE, str(path), where.get(steps, 0))
    for key, (value, origin) in layer.items():
        layer[key] = _relative_to(path.parent, key, value, paths), origin
    return layer


def _placed(path: Path, message: str) -> str:
    """Return an error of the TOML parser with its line in front."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    return f"{path}:{match[2]}: {match[1]} (column {match[3]})" if match else f"{path}: {message}"


def _leaves(raw: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in raw.items():
        if isinstance(value, dict) and _is_table(key):
            yield from (((key, option), inner) for option, inner in value.items())
            if not value and key != "gates":
                yield (key,), value
        elif key == "notify" and isinstance(value, list):
            yield from (((key, str(number)), table) for number, table in enumerate(value))
        else:
            yield (key,), value


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _is_table(key: str) -> bool:
    return key == "gates" or is_driver_table(key)


def _relative_to(directory: Path, key: str, value: Any, paths_of_keys: Collection[str]) -> Any:
    """Return a value with its path relative to the settings file. The name of a program without a
    slash is left as it is, to be searched in PATH."""
    table, dot, option = key.partition(".")
    options = options_type(table) if dot and is_driver_table(table) else None
    paths, programs = (options.paths, options.programs) if options else ((), ())
    if table == "notify" and isinstance(value, dict):
        return _notify_files(directory, value)
    if key == "oidc" and isinstance(value, dict):
        paths_in = {name: value.get(name) for name in ("ca", "client_secret_file")}
        named = {name: path for name, path in paths_in.items() if isinstance(path, str) and path}
        return {**value, **{name: str(directory / path) for name, path in named.items()}}
    is_path = key in paths_of_keys or option in paths
    if is_path and isinstance(value, str) and value and not (key == "state" and is_url(value)):
        return str(directory / value)
    if option in programs or key.startswith("gates."):
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first, str) and "/" in first:
            return [str((directory / first).absolute()), *value[1:]]
    return value


def _notify_files(directory: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table [[notify]] with the paths of its files relative to the settings file."""
    return {
        key: _notify_files(directory, value)
        if isinstance(value, dict)
        else str(directory / value)
        if key in FILES and isinstance(value, str) and value
        else value
        for key, value in table.items()
    }


def _environment(environment: Mapping[str, str], problems: list[str], file: Layer) -> Layer:
    layer: Layer = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        if name.startswith(NODE_PREFIX):
            continue
        key = _key_of(name)
        if key is None:
            problems.append(f"{name}: no such setting; {instead_of(name, _variables())}")
            continue
        origin = Origin(Source.ENVIRONMENT, name)
        try:
            value = parse(_type(key), environment[name], key)
        except ValueError as error:
            problems.append(origin.prefix(str(error)))
            continue
        if isinstance(value, dict) and _is_table(key):  # replaces the table of the file
            for old in [old for old in file if old.startswith(f"{key}.")]:
                del file[old]
            layer |= {f"{key}.{option}": (inner, origin) for option, inner in value.items()}
        else:
            layer[key] = value, origin
    return layer


def _variables() -> list[str]:
    options = [
        f"{PREFIX}{driver.upper()}{SEPARATOR}{key.upper()}"
        for driver in registry.names()
        for key in option_types(driver)
    ]
    return [f"{PREFIX}{key.upper()}" for key in _TOP] + options + list(OTHER_VARIABLES)


def _key_of(name: str) -> str | None:
    """Return the setting that a variable sets. The names of gates are case-sensitive."""
    table, separator, key = name.removeprefix(PREFIX).partition(SEPARATOR)
    table = table.lower()
    if not separator:
        return table if table in _TOP or is_driver_table(table) else None
    if table == "gates" and key:
        return f"gates.{key}"
    known = is_driver_table(table) and key.lower() in option_types(table)
    return f"{table}.{key.lower()}" if known else None


def _type(key: str) -> Any:
    """Return the type of a setting, or of a whole table; None if there is no such key."""
    table, dot, option = key.partition(".")
    if table == "gates" and dot:
        return _GATE
    if table == "notify" and dot:
        return Notify
    if is_driver_table(table):
        return option_types(table).get(option) if dot else options_type(table)
    return None if dot else _TOP.get(key)


def parse(kind: Any, text: str, key: str) -> Any:
    """Return the value that a variable's text stands for, which depends on the setting's type."""
    kinds = {get_origin(member) or member for member in get_args(kind) or (kind,)}
    if get_origin(kind) is list:
        kinds = {list}
    if str in kinds:
        return _one_or_list(text, key) if list in kinds else text
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, not '{text}'")
        return text.lower() == "true"
    if int in kinds:
        try:
            return int(text)
        except ValueError as error:
            raise ValueError(f"{key} must be a whole number, not '{text}'") from error
    if text.strip()[:1] not in ("[", "{"):
        if list in kinds and (key in COMMAS or "," not in text):
            return _words(text)
        # Without the text: among the words of a program there may be a secret.
        raise ValueError(f"{key} must be a list or table, written as in the file or as JSON")
    return _structured(text, key)


def _one_or_list(text: str, key: str) -> Any:
    """Read a setting that is a text or a list of texts. (An IPv6 address also begins with a
    bracket, but no quotation mark follows it.)"""
    if re.match(r"""\s*\[\s*["']""", text):
        return _structured(text, key)
    return _words(text) if "," in text else text


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _structured(text: str, key: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{key} must be written as in the file, or as JSON: {error}") from error


def typed(
    layer: Layer, types: Mapping[str, Any], problems: list[str]
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Return the values of a layer whose keys have these types, and where they come from."""
    given: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for key, (value, origin) in layer.items():
        if key not in types:
            message = f"{key}: unknown key; {instead_of(key, list(types))}"
            problems.append(origin.prefix(message))
            continue
        try:
            given[key] = msgspec.convert(value, types[key])
            origins[key] = origin
        except msgspec.ValidationError as error:
            message, _, _ = value_problem(str(error), value, types[key], {})
            problems.append(origin.prefix(f"{key}: {message}"))
    return given, origins


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    layer: Layer = {}
    for key, value in flags.items():
        if value is not None and value != []:
            texts = [str(item) for item in (value if isinstance(value, list) else [value])]
            origin = Origin(Source.FLAG, f"--{key.replace('_', '-')}")
            layer[key] = texts if len(texts) > 1 else texts[0], origin
    return layer


def _place(key: str, steps: tuple[str | int, ...]) -> str:
    """Return the path to a value, for example `metadata[1]` or `notify[0].webhook.url`."""
    table, _, number = key.partition(".")
    if table == "notify" and number:
        key = f"notify[{number}]"
    return key + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def assemble(layer: Layer, problems: list[str]) -> LoadedSettings:
    """Return the settings of a layer whose values have the right types."""
    settings: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    origins: dict[str, Origin] = {}
    of_wrong_type: set[str] = set()
    for key, (value, origin) in layer.items():
        table, dot, option = key.partition(".")
        of_driver = is_driver_table(table)
        if of_driver and options_type(table) is None:
            continue  # the driver cannot be loaded
        kind = _type(key)
        if kind is None:
            known = list(option_types(table)) if of_driver and dot else list(_TOP)
            shown = option if of_driver and dot else key
            problems.append(origin.prefix(f"{key}: unknown key; {instead_of(shown, known)}"))
            continue
        try:
            converted = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message, steps, _ = value_problem(str(error), value, kind, _CHOICES)
            place = _place(key, steps)
            problems.append(origin.prefix(f"{place}: {message}"))
            of_wrong_type.add(key)
            if of_driver:
                tables.setdefault(table, {})
            continue
        origins[key] = origin
        if dot:
            tables.setdefault(table, {})[option] = converted
        elif of_driver:
            tables.setdefault(table, {})
        else:
            settings[key] = converted
    settings["gates"] = tables.pop("gates", None)
    if (notify := tables.pop("notify", None)) and "notify" not in settings:
        settings["notify"] = list(notify.values())
        of_usable = [origins.pop(f"notify.{number}") for number in notify]
        origins |= {f"notify.{index}": origin for index, origin in enumerate(of_usable)}
    options: dict[str, dict[str, Any]] = {}
    for driver, table_values in tables.items():
        missing = missing_options(driver, table_values)
        for key, explanation in missing.items():
            if of_wrong_type & {driver, f"{driver}.{key}"}:
                continue
            of_table = (o for k, o in origins.items() if k.startswith(f"{driver}."))
            origin = next(of_table, DEFAULT)
            problems.append(origin.prefix(f"{driver}.{key} is missing: {explanation}"))
        if missing:
            settings.pop("driver", None)  # one message is enough
        else:
            options[driver] = with_defaults(driver, table_values)
    return LoadedSettings(Settings(**settings, driver_options=options), origins)
