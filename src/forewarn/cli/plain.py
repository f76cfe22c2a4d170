"""Commands made from operations of the control API.

An operation that has a help text needs no function in `commands`: the parameter of its path is the
argument of its command, the fields of its request and the filters of a list are options, and what
it returns is printed by its type. Where a command does more than that, `takes` gives its function
these options.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeAlias

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import Yes, accepts_yes, confirm
from forewarn.cli.event_output import print_outcome, print_outcomes
from forewarn.cli.options import Fields, converted, keyword, options_of
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    print_clock,
    print_items,
    print_json,
    print_notes,
    say,
    service,
)
from forewarn.control.client.client import ControlClient
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.support.text import either_of

# What a command is about to do to what its argument names; empty: there is nothing to confirm.
Concern: TypeAlias = Callable[..., str]  # of the client, the argument and the request
Print: TypeAlias = Table | Callable[[Any, ControlClient], None]


def add_commands(
    app: typer.Typer,
    group: str,
    operations: types.ModuleType,
    *,
    prints: Mapping[Operation[Any], Print] | None = None,
    concerns: Mapping[Operation[Any], Concern] | None = None,
    calls: Mapping[Operation[Any], Callable[..., Any]] | None = None,
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
                operation,
                (prints or {}).get(operation),
                (concerns or {}).get(operation),
                (calls or {}).get(operation),
            )
            app.command(name, help=operation.help)(command)

    def position(command: Any) -> int:
        return order.get(command.name or command.callback.__name__, len(order))

    app.registered_commands.sort(key=position)


def takes(
    operation: Operation[Any], *, without: Collection[str] = (), **defaults: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, in the place of its parameter `fields`, an option for each field of an
    operation's request or each of its filters, except for those that it sets itself. `defaults` are
    those of the command."""
    options = [o for o in options_of(operation, defaults) if o.field not in without]

    def given_options(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**values: Any) -> None:
            named = {option.parameter.name: values.pop(option.parameter.name) for option in options}
            command(fields=converted(options, named), **values)

        parameters: list[Parameter] = []
        for parameter in signature(command, eval_str=True).parameters.values():
            own = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            of_request = [option.parameter for option in options]
            parameters += of_request if own.name == "fields" else [own]
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return given_options


def _command(
    operation: Operation[Any],
    printer: Print | None,
    concern: Concern | None,
    carry_out: Callable[..., Any] | None,
) -> Callable[..., None]:
    """Return the function of a command."""
    arguments = list(_arguments(operation.path))
    options = list(options_of(operation, {}))
    exclusive = _exclusive(operation.takes)
    taken = () if operation.takes is None else operation.takes.__struct_fields__

    def call(*, json: bool, url: str | None, yes: bool = False, **given: Any) -> None:
        if exclusive and sum(given[name] is not None for name in exclusive) != 1:
            names = [n.upper() if n in operation.arguments else f"--{n}" for n in exclusive]
            raise typer.BadParameter(f"pass either {either_of(names)}")
        values = [given[argument.name] for argument in arguments]
        query = converted(options, given)
        if operation.takes is not None:
            fields = {name: query.pop(name) for name in taken if name in query}
            values.append(operation.takes(**fields))
        with service(url) as client:
            if concern is not None and not yes and (about := concern(client, *values, **query)):
                confirm(about)
            if carry_out is not None:
                result = carry_out(client, *values)
            else:
                result = _called(client, operation, values, query)
            if json:
                print_json(result)
            elif isinstance(printer, Table):
                print_items(printer, result, filtered=bool(query))
                print_clock(client)
            elif printer is not None:
                printer(result, client)
            else:
                _print(result, operation.done.format(*values, result=result), client)

    parameters = [
        *arguments,
        *(option.parameter for option in options),
        *([keyword("yes", Yes, False)] if concern is not None else []),
        keyword("json", Json, False),
        keyword("url", Url, None),
    ]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return accepts_yes(call) if operation.changes and concern is None else call


def _called(
    client: ControlClient, operation: Operation[Any], values: Sequence[Any], query: Fields
) -> Any:
    if operation.for_one is not None and len(machines := values[-1].machines) == 1:
        return client.call(operation.for_one, *machines)
    if operation.paged:
        return list(client.pages(operation, *values, **query))
    return client.call(operation, *values, **query)


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
        yield keyword(name, Annotated[str, argument])


def _not_blank(what: str) -> Callable[[str], str]:
    def given(text: str) -> str:
        if not text.strip():
            raise typer.BadParameter(f"pass an argument: {what}")
        return text

    return given


def _exclusive(request: Any) -> list[str]:
    """Return the fields of a request of which exactly one is given."""
    schema: dict[str, Any] = getattr(request, "extra_schema", {})
    return [choice["required"][0] for choice in schema.get("oneOf", ())]
