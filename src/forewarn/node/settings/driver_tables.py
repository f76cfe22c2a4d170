"""The tables of settings that belong to drivers: each has the name of its driver, as [command]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec

from forewarn.drivers import registry
from forewarn.drivers.port import DriverOptions
from forewarn.node.settings.model import Settings

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


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _explanation(key: str, kind: Any) -> str:
    """Return a description of an option and an example, as far as its declaration has them."""
    metas = [meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
    description = next((meta.description for meta in metas if meta.description), "")
    examples = next((meta.examples for meta in metas if meta.examples), None)
    example = f"{key} = {msgspec.json.encode(examples[0]).decode()}" if examples else ""
    return ", for example ".join(part for part in (description, example) if part)
