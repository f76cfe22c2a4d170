"""The tables of settings that belong to drivers: each has the name of its driver, as [command]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec

from forewarn.drivers import registry
from forewarn.drivers.port import DriverOptions
from forewarn.drivers.registry import DriverConfig
from forewarn.node.settings.model import DEFAULT, LoadedSettings, Origin, Settings

_SETTINGS = frozenset(field.name for field in msgspec.structs.fields(Settings))


def is_driver_table(name: str) -> bool:
    return name not in _SETTINGS and registry.exists(name)


def name_problem(driver: str) -> str:
    """Return why a driver of this name cannot have a table, or ""."""
    return f"a driver cannot have the name of a setting ({driver})" if driver in _SETTINGS else ""


def options_type(driver: str) -> type[DriverOptions] | None:
    """Return the type of a driver's options; None if the driver cannot be loaded, which is
    reported where it is selected."""
    try:
        return registry.load(driver).options
    except registry.DriverUnusable:
        return None


def option_types(driver: str) -> dict[str, Any]:
    """Return the type of each of a driver's options."""
    options = options_type(driver)
    fields = msgspec.structs.fields(options) if options else ()
    return {field.name: _plain(field.type) for field in fields}


def missing_options(driver: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the required options that a table lacks, each with what it is and an example."""
    options = options_type(driver)
    fields = msgspec.structs.fields(options) if options else ()
    return {
        field.name: _explanation(field.name, field.type)
        for field in fields
        if field.required and field.name not in table
    }


def with_defaults(driver: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table whose values have the right types, together with the defaults."""
    options = options_type(driver)
    if options is None:
        return dict(table)
    values: dict[str, Any] = msgspec.to_builtins(msgspec.convert(table, options))
    return values


def driver_config(
    loaded: LoadedSettings, report: Callable[[str, str, Origin | None], None]
) -> DriverConfig:
    """Return the driver that is selected, and its options. `report` is called with the key, the
    message and, if it is another one than the key's, the place of each problem."""
    settings, name = loaded.settings, loaded.settings.driver
    try:
        driver_type = registry.load(name)
    except registry.DriverUnusable as error:
        report("driver", f"driver = '{name}': {error}", None)
        return DriverConfig()
    if problem := name_problem(name):
        report("driver", f"driver = '{name}': {problem}", None)
        return DriverConfig()
    for table in settings.driver_options:
        if table != name:
            origins = loaded.origins
            origin = next((o for k, o in origins.items() if k.startswith(f"{table}.")), DEFAULT)
            message = f'[{table}] is only used with driver = "{table}"; set that, or remove it'
            report(table, message, origin)
    values = settings.driver_options.get(name, {})
    for explanation in missing_options(name, values).values():
        report("driver", f'driver = "{name}" needs a table [{name}] with {explanation}', None)
        return DriverConfig()
    try:
        options = msgspec.convert(values, driver_type.options)
    except msgspec.ValidationError as error:
        report("driver", f"[{name}] cannot be used: {error}", None)
        return DriverConfig()
    for key, problem in options.problems():
        report(f"{name}.{key}", f"{name}.{key}: {problem}", None)
    return DriverConfig(name, options)


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _explanation(key: str, kind: Any) -> str:
    """Return a description of an option and an example, as far as its declaration has them."""
    metas = [meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
    description = next((meta.description for meta in metas if meta.description), "")
    examples = next((meta.examples for meta in metas if meta.examples), None)
    example = f"{key} = {msgspec.json.encode(examples[0]).decode()}" if examples else ""
    return ", for example ".join(part for part in (description, example) if part)
