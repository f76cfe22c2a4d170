"""Names of arguments and values in help texts and usage lines, and errors of usage, for all
commands at once.

Typer writes Python's types there (`--json <bool>`, `{id}`, `[files]...`). Here flags have no value,
and values and arguments are named as in manual pages: `--url URL`, `ID`, `[FILE]...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer

from forewarn.cli.values import convert_here
from forewarn.support.text import either_of, visible

UsageError: Any = typer.BadParameter.__base__  # of click, which Typer may carry with it

NUMBER, FILE, TEXT = "N", "FILE", "TEXT"  # values whose parameter is not listed below
NUMBERS = {
    "duration": "SECONDS",
    "seconds": "SECONDS",
    "speed": "FACTOR",
    "status": "CODE",
}
# Names of values by the parameters that have them. Those of durations and times of requests follow
# from their types.
VALUES = {
    name: value
    for value, names in {
        "BLACKOUT": "blackout",
        "CAUSE": "cause",
        "CMD": "command driver_command exec_",
        "COVERAGE": "coverage",
        "DIR": "dir",
        "DURATION": (
            "back_within bake by duration enable_delay every first_poll_timeout for_ "
            "gate_timeout image_notice lasts min_freeze notice react reaction_time "
            "seconds stop_before terminate_notice timeout wait"
        ),
        "FILE": "files",
        "HANDLING": "conflicts",
        "HEALTH": "health",
        "HOST:PORT": "arm_address control metadata",
        "ID": "event fault id rollout",
        "KEY=VALUE": "exclude_host_label exclude_label host_label label select",
        "KIND": "kind",
        "KINDS": "what",
        "LABEL": "order_by sums",
        "LIMIT": "may_postpone",
        "MACHINE=HOST": "moved",
        "METHOD": "method",
        "MODE": "addresses network",
        "N": "step user_event_limit",
        "NAME": (
            "as_ canary exclude_group exclude_host exclude_machine gate_command group "
            "host key lane machine name to"
        ),
        "NAME=PROGRAM": "gate",
        "ORDER": "order",
        "ROLE": "role",
        "RULE": "allow",
        "SIZES": "waves",
        "SOURCE": "placement source",
        "STATE": "node state",
        "STATUS": "status",
        "TAG": "if_match",
        "TIME": "begin deadline expires from_ not_before since starts_from until",
        "TYPE": "mode type",
        "TYPES": "auto_approve",
        "URL": "endpoint gate_http url",
        "VERSION": "version",
        "WHAT": "pause_after",
        "WHEN": "over_when",
        "WHO": "work_by",
        "WINDOW": "window",
        "real|virtual": "clock",
    }.items()
    for name in names.split()
}


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Report wrong usage like every other error: a line with what is wrong, and where help is."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        command = "forewarn" if error.ctx is None else error.ctx.command_path
        line = f"forewarn: {_usage_problem(error)} See '{command} --help'."
        typer.echo(visible(line), err=True)
        raise typer.Exit(error.exit_code) from None


def _usage_problem(error: Any) -> str:
    """Return what is wrong, as a sentence that begins with a small letter."""
    if type(error).__name__ == "NoSuchOption":
        similar = [f"'{option}'" for option in sorted(error.possibilities or ())]
        meant = f"; did you mean {either_of(similar)}?" if similar else "."
        return f"no such option '{error.option_name}'{meant}"
    text = str(error.format_message())
    text = re.sub(r"^Invalid value: ", "", text)
    text = re.sub(r"^Invalid value for (--[a-z-]+):", r"Invalid value for '\1':", text)
    text = re.sub(r"^Got unexpected extra argument\S* \((.*)\)$", r"Unexpected argument '\1'", text)
    text = text[:1].lower() + text[1:]
    return text if text.endswith((".", "?")) else f"{text}."


def name_values_of_all(command: Any) -> None:
    """Name the arguments and values of a command, and of the commands in a group."""
    name_values(command)
    for subcommand in getattr(command, "commands", {}).values():
        name_values_of_all(subcommand)


def name_values(command: Any) -> None:
    """Name the arguments and values of a command, unwrap its help, and have values converted
    without Pydantic."""
    command.help = unwrapped(command.help)
    context = typer.Context(command)
    help_option = command.get_help_option(context)
    for parameter in [*command.params, *filter(None, [help_option])]:
        if parameter.param_type_name == "argument":
            _name_argument(parameter)
        elif parameter.is_flag or getattr(parameter, "count", False):
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = _value_name(parameter)
        convert_here(parameter)
    command.parse_args = partial(_parse_args, command.parse_args)
    if flags := [parameter for parameter in command.params if parameter.secondary_opts]:
        command.format_help = partial(_format_help, command.format_help, flags)


def unwrapped(text: str | None) -> str:
    """Make each paragraph of a help text one line, so that it is wrapped only where the terminal
    ends."""
    paragraphs = (text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _format_help(format_help: Any, flags: list[Any], context: Any, formatter: Any) -> None:
    """Format the help of a command. The opposite of a flag is in its description, because a column
    of its own would be cut off in a narrow terminal, and leave little room for the others."""
    saved = [(flag.secondary_opts, flag.help, flag.show_default) for flag in flags]
    for flag in flags:
        default = f" Default: {flag.opts[0]}." if flag.default is True else ""
        flag.help = f"{flag.help} Opposite: {flag.secondary_opts[0]}.{default}"
        flag.secondary_opts, flag.show_default = [], False
    try:
        format_help(context, formatter)
    finally:
        for flag, values in zip(flags, saved, strict=True):
            flag.secondary_opts, flag.help, flag.show_default = values


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


def _parse_args(parse: Any, context: Any, args: list[str]) -> Any:
    """Parse arguments; an error knows the command, whose help it refers to."""
    try:
        return parse(context, args)
    except UsageError as error:
        error.ctx = error.ctx or context
        raise


def _value_name(parameter: Any) -> str:
    kind = _kind(parameter)
    if kind in (int, float):
        return NUMBERS.get(parameter.name, NUMBER)
    return VALUES.get(parameter.name) or (FILE if kind == "path" else TEXT)


def _kind(parameter: Any) -> Any:
    """Return the type of a value; a path is 'path'."""
    described = parameter.type_descriptor
    return "path" if described.is_path else described.annotation
