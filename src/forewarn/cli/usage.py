"""Names of arguments and values in help texts, usage lines and errors, for all commands at once.

Typer writes Python's types there (`--json <bool>`, `{id}`, `[files]...`). Here flags have no value,
and values and arguments are named as in manual pages: `--url URL`, `ID`, `[FILE]...`.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

import typer

NUMBER, FILE, TEXT = "N", "FILE", "TEXT"  # values whose parameter is not listed below
NAMED = "NAME"
DURATION = "DURATION"
VALUES = {
    "allow": "RULE",
    "as_": NAMED,
    "bake": DURATION,
    "by": DURATION,
    "command": "CMD",
    "control": "HOST:PORT",
    "driver_command": "CMD",
    "duration": DURATION,
    "enable_delay": DURATION,
    "endpoint": "URL",
    "event": "ID",
    "every": DURATION,
    "exec_": "CMD",
    "fault": "ID",
    "files": FILE,
    "first_poll_timeout": DURATION,
    "for_": DURATION,
    "from_": DURATION,
    "gate": "NAME=PROGRAM",
    "gate_command": NAMED,
    "gate_http": "URL",
    "gate_timeout": DURATION,
    "group": NAMED,
    "host": NAMED,
    "id": "ID",
    "if_match": "TAG",
    "kind": "KIND",
    "label": "KEY=VALUE",
    "lasts": DURATION,
    "machine": NAMED,
    "metadata": "HOST:PORT",
    "method": "METHOD",
    "mode": "TYPE",
    "name": NAMED,
    "not_before": "TIME",
    "notice": DURATION,
    "react": DURATION,
    "reaction_time": DURATION,
    "role": "ROLE",
    "since": "TIME",
    "source": "SOURCE",
    "timeout": DURATION,
    "type": "TYPE",
    "until": "TIME",
    "url": "URL",
    "version": "VERSION",
    "wait": DURATION,
    "what": "KINDS",
    "window": "WINDOW",
}


def name_values_of_all(command: Any) -> None:
    """Name the arguments and values of a command, and of the commands in a group."""
    name_values(command)
    for subcommand in getattr(command, "commands", {}).values():
        name_values_of_all(subcommand)


def name_values(command: Any) -> None:
    """Name the arguments and values of a command, and make each paragraph of its help one line,
    so that it is wrapped only where the terminal ends."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    context = typer.Context(command)
    help_option = command.get_help_option(context)
    for parameter in [*command.params, *filter(None, [help_option])]:
        if parameter.param_type_name == "argument":
            _name_argument(parameter)
        elif parameter.is_flag or getattr(parameter, "count", False):
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = _value_name(parameter)
        parameter.process_value = partial(_process_value, parameter.process_value)


def _name_argument(argument: Any) -> None:
    """Name an argument, which may be given once or several times, and may be optional. A name that
    has brackets or dashes itself says so already."""
    name = argument.metavar or _value_name(argument)
    usage = name
    if not name.startswith(("[", "-")):
        several = "..." if argument.nargs != 1 else ""
        usage = f"{name}{several}" if argument.required else f"[{name}]{several}"
        name += several
    elif name.startswith("-"):
        usage = name if argument.required else f"[{name}]"
    argument.metavar = name
    argument.get_usage_pieces = lambda ctx: [usage]  # noqa: ARG005
    argument.display_type_rich = lambda ctx: None  # noqa: ARG005


def _process_value(process: Any, context: Any, value: Any) -> Any:
    """Process a value; an error names the value, and what would have been right."""
    try:
        return process(context, value)
    except typer.BadParameter as error:
        errors = getattr(error.__cause__, "errors", None)
        if errors is not None:  # of the validation by type, which does not name the value
            error.message = _problem(value, errors()[0])
        raise


def _problem(value: Any, error: dict[str, Any]) -> str:
    limits = error.get("ctx", {})
    match error["type"]:
        case "int_parsing" | "int_from_float":
            return f"'{value}' is not a whole number"
        case "float_parsing":
            return f"'{value}' is not a number"
        case "greater_than_equal":
            return f"{value} is too small; the minimum is {limits['ge']}"
        case "less_than_equal":
            return f"{value} is too large; the maximum is {limits['le']}"
        case "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
    return f"'{value}' is not valid: {error['msg']}"


def _value_name(parameter: Any) -> str:
    kind = _kind(parameter)
    if kind in (int, float):
        return NUMBER
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return VALUES.get(parameter.name) or (FILE if kind == "path" else TEXT)


def _kind(parameter: Any) -> Any:
    """Return the type of a value; a path is 'path'."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:  # an older Typer
        names = {"integer": int, "integer range": int, "float": float, "float range": float}
        return names.get(parameter.type.name, parameter.type.name)
    return "path" if described.is_path else described.annotation
