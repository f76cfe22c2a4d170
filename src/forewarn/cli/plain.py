"""Commands made from operations of the control API.

An operation that has a help text needs no function in `commands`: the parameter of its path is the
argument of its command, the fields of its request are options, and what it returns is printed by
its type.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec.inspect
import typer

from forewarn.cli import completion
from forewarn.cli.confirm import Yes, accepts_yes, confirm
from forewarn.cli.event_output import print_outcome, print_outcomes
from forewarn.cli.output import (
    Json,
    Url,
    parsed,
    parsed_seconds,
    print_clock,
    print_json,
    print_notes,
    say,
    service,
)
from forewarn.cli.values import parse_time
from forewarn.control.client.client import ControlClient
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s

# What a command is about to do to what its argument names; empty: there is nothing to confirm.
Concern: TypeAlias = Callable[..., str]  # of the client, the argument and the request
Print: TypeAlias = Callable[[Any, ControlClient], None]

SECONDS = "Seconds "  # begins the description of a number for which a command takes a duration


def add_commands(
    app: typer.Typer,
    group: str,
    operations: types.ModuleType,
    *,
    prints: Mapping[Operation[Any], Print] | None = None,
    concerns: Mapping[Operation[Any], Concern] | None = None,
) -> None:
    """Add the commands of a group that have no function of their own, and list all of them in the
    order of the table."""
    order: dict[str, int] = {}
    for operation in vars(operations).values():
        if not isinstance(operation, Operation) or not operation.command.startswith(f"{group} "):
            continue
        name = operation.commands[0].removeprefix(f"{group} ")
        order.setdefault(name, len(order))
        if operation.help:
            command = _command(
                operation, (prints or {}).get(operation), (concerns or {}).get(operation)
            )
            app.command(name, help=operation.help)(command)

    def position(command: Any) -> int:
        return order.get(command.name or command.callback.__name__, len(order))

    app.registered_commands.sort(key=position)


def _command(
    operation: Operation[Any], printer: Print | None, concern: Concern | None
) -> Callable[..., None]:
    """Return the function of a command."""
    arguments = list(_arguments(operation.path))
    options = [] if operation.takes is None else list(_options(operation))
    exclusive = _exclusive(operation.takes)

    def call(*, json: bool, url: str | None, yes: bool = False, **given: Any) -> None:
        if exclusive and sum(given[name] is not None for name in exclusive) != 1:
            raise typer.BadParameter(f"pass either --{' or --'.join(exclusive)}")
        values = [given[argument.name] for argument in arguments]
        if operation.takes is not None:
            taken = ((option, given[option.parameter.name]) for option in options)
            values.append(
                operation.takes(
                    **{
                        option.field: option.convert(value)
                        for option, value in taken
                        if value is not None
                    }
                )
            )
        with service(url) as client:
            if concern is not None and not yes and (about := concern(client, *values)):
                confirm(about)
            if operation.paged:
                result = list(client.pages(operation, *values))
            else:
                result = client.call(operation, *values)
            if json:
                print_json(result)
            elif printer is not None:
                printer(result, client)
            else:
                _print(result, operation.done.format(*values, result=result), client)

    parameters = [
        *arguments,
        *(option.parameter for option in options),
        *([_keyword("yes", Yes, False)] if concern is not None else []),
        _keyword("json", Json, False),
        _keyword("url", Url, None),
    ]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return accepts_yes(call) if operation.changes and concern is None else call


def _print(result: Any, done: str, client: ControlClient) -> None:
    if isinstance(result, s.Outcome):
        print_outcome(result, False, client)
    elif isinstance(result, s.Outcomes):
        print_outcomes(result, False, client, done)
    else:
        say(done)
        print_notes(getattr(result, "notes", ()))
        print_clock(client)


def _arguments(path: str) -> Iterator[Parameter]:
    for collection, name in re.findall(r"/([a-z-]+)/\{(\w+)\}", path):
        resource, complete = completion.RESOURCES[collection]
        what = f"ID of {resource}, or a prefix of it" if name == "id" else f"Name of {resource}"
        argument = typer.Argument(
            callback=_not_blank(what), help=f"{what}.", autocompletion=complete
        )
        yield _keyword(name, Annotated[str, argument])


def _not_blank(what: str) -> Callable[[str], str]:
    def given(text: str) -> str:
        if not text.strip():
            raise typer.BadParameter(f"pass an argument: {what}")
        return text

    return given


class _Option(NamedTuple):
    field: str
    parameter: Parameter
    convert: Callable[[Any], Any]


def _options(operation: Operation[Any]) -> Iterator[_Option]:
    """Yield an option for each field of the request. Those that are not given are left out."""
    fields: list[msgspec.inspect.Field] = msgspec.inspect.type_info(operation.takes).fields  # type: ignore[attr-defined]
    names = {field.name: operation.options.get(field.name, field.name) for field in fields}
    for field in fields:
        name = f"--{names[field.name].replace('_', '-')}"
        kind, help = _described(field.type)
        for other, option in names.items():
            help = help.replace(f"`{other}`", f"--{option.replace('_', '-')}")
        taken: Any = str | None
        convert: Callable[[Any], Any] = _unchanged
        match kind:
            case msgspec.inspect.BoolType():
                taken = bool
            case msgspec.inspect.IntType():
                taken = int | None
            case msgspec.inspect.FloatType() if help.startswith(SECONDS):
                help = f"Time {help.removeprefix(SECONDS)}"
                convert = partial(parsed_seconds, name)
            case msgspec.inspect.DateTimeType():
                convert = partial(parsed, parse_time, option=name)
            case msgspec.inspect.DictType():
                taken, convert = list[str] | None, partial(_pairs, name)
        option = typer.Option(name, help=help, autocompletion=completion.NAMED.get(field.name))
        default: Any = False if taken is bool else None
        if field.required:
            taken, default = str, Parameter.empty
        yield _Option(
            field.name, _keyword(names[field.name], Annotated[taken, option], default), convert
        )


def _described(kind: Any) -> tuple[Any, str]:
    """Return the type of a field without null, and its description."""
    help = ""
    while isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        if isinstance(kind, msgspec.inspect.Metadata):
            help = help or (kind.extra_json_schema or {}).get("description", "")
            kind = kind.type
        else:
            kind = next(t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType))
    return kind, help


def _exclusive(request: Any) -> list[str]:
    """Return the fields of a request of which exactly one is given."""
    schema: dict[str, Any] = getattr(request, "extra_schema", {})
    return [choice["required"][0] for choice in schema.get("oneOf", ())]


def _unchanged(value: Any) -> Any:
    return value


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise typer.BadParameter(
                f"'{text}' is not a machine and its host, such as web-0=h3",
                param_hint=f"'{option}'",
            )
        pairs[key] = value
    return pairs


def _keyword(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
