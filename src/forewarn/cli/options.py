"""Options of commands made from operations of the control API: one for each field of a request or
filter of a list, with the description that the API has of it."""

from __future__ import annotations

import keyword as keywords
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import Parameter
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec.inspect
import typer

from forewarn.cli import completion
from forewarn.cli.output import parsed, parsed_seconds
from forewarn.cli.values import parse_time
from forewarn.control.operations.operation import Operation
from forewarn.control.schema.queries import PAGING
from forewarn.support.text import either_of

SECONDS = "Seconds "  # begins the description of a number for which a command takes a duration
DURATION, TIME = "DURATION", "TIME"  # values of options
CLEARED = ("none", "off", "default")  # values of options that remove what was set before

Fields: TypeAlias = dict[str, Any]  # of a request, except for those that keep their defaults


class Option(NamedTuple):
    field: str
    parameter: Parameter
    convert: Callable[[Any], Any]


def converted(options: Sequence[Option], given: Mapping[str, Any]) -> Fields:
    taken = ((option, given[option.parameter.name]) for option in options)
    return {option.field: option.convert(value) for option, value in taken if value is not None}


def options_of(operation: Operation[Any], defaults: Mapping[str, str]) -> Iterator[Option]:
    """Yield an option for each parameter, and an option or argument for each field of the request.
    Those that are not given are left out. `defaults` are those of the command."""
    for field in _fields(operation.query):
        if field.encode_name not in PAGING:
            yield _option(operation, field, _described(field.type), None, of_query=True)
    fields = {field.name: field for field in _fields(operation.takes)}
    names = {f"`{name}`": _typed(operation, field) for name, field in fields.items()}
    for field in fields.values():
        kind, text, values = _described(field.type)
        for other, name in names.items():
            text = text.replace(other, name)
        text = text.replace("null:", "'none':" if _can_be_cleared(field) else "default:")
        default = defaults.get(field.name) or operation.defaults.get(field.name)
        yield _option(operation, field, _Described(kind, text, values), default)


def _option(
    operation: Operation[Any],
    field: msgspec.inspect.Field,
    described: _Described,
    default: Any,
    *,
    of_query: bool = False,
) -> Option:
    """Return the option of a field, or of a parameter, for which the service has a default."""
    kind, help, values = described
    name, opposite = _names(operation, field)
    complete: Any = completion.of_option(operation.path, name, values)
    if values is not None and not all(value in help for value in values):
        help = f"{help.removesuffix('.')} ({either_of(values)})."
    option = _typed(operation, field)
    taken: Any = str | None
    metavar = "|".join(values) if values is not None and len(values) == 2 else None
    convert: Callable[[Any], Any] = _unchanged
    match kind:
        case msgspec.inspect.BoolType() if field.default is False:
            taken, complete, default = bool, None, False
        case msgspec.inspect.BoolType():
            taken, complete, option = bool | None, None, f"{option}/--{opposite.replace('_', '-')}"
            help = f"{help.partition('; false')[0].removesuffix('.')}."
        case msgspec.inspect.IntType() if _can_be_cleared(field):
            convert = partial(_count, option)
        case msgspec.inspect.IntType():
            taken, complete = int | None, None
        case msgspec.inspect.FloatType() if help.startswith(SECONDS):
            help = f"Time {help.removeprefix(SECONDS)}"
            convert, metavar = partial(parsed_seconds, option), DURATION
        case msgspec.inspect.FloatType():
            taken = float | None
        case msgspec.inspect.DateTimeType():
            convert, metavar = partial(parsed, parse_time, option=option), TIME
        case msgspec.inspect.DictType():
            taken, convert = list[str] | None, partial(_pairs, option)
        case msgspec.inspect.ListType(item_type=item) if of := _described(item).values:
            complete, convert = completion.some_of(*of, "none"), _separated
            help = f"{help.removesuffix('.')} ({either_of(of)}); separated by commas."
        case msgspec.inspect.ListType() if name.endswith("s") and not field.required:
            convert = _separated
        case msgspec.inspect.ListType(item_type=item):
            item, _, _ = _described(item)
            taken = list[int] if isinstance(item, msgspec.inspect.IntType) else list[str]
            if isinstance(item, msgspec.inspect.FloatType):
                convert, metavar = partial(_durations, option), DURATION
                help = help.replace(", in seconds", "")
            taken, help = taken | None, f"{help} Repeatable."
    if convert is _unchanged and not of_query and isinstance(field.default, str | int | float):
        default = default or field.default or default
    if _can_be_cleared(field) and taken != bool | None:
        none: Any = [] if isinstance(kind, msgspec.inspect.ListType) else None
        convert = partial(_cleared, none, convert)
    if field.required and default is None:
        taken, default = list[str] if taken == list[str] | None else str, Parameter.empty
    help = help.replace("`", "'")
    declared: Any = typer.Option(option, help=help, metavar=metavar, autocompletion=complete)
    if field.name in operation.arguments:
        help = help.removesuffix(" Repeatable.")
        metavar = metavar or name.upper()
        declared = typer.Argument(help=help, metavar=metavar, autocompletion=complete)
    return Option(field.encode_name, keyword(name, Annotated[taken, declared], default), convert)


def _names(operation: Operation[Any], field: msgspec.inspect.Field) -> tuple[str, str]:
    """Return the name of the option of a field, and that of its opposite if it is a flag. A list is
    given with an option that can be repeated."""
    name, _, opposite = operation.options.get(field.encode_name, "").partition("/")
    if not name:
        several = isinstance(_described(field.type).type, msgspec.inspect.ListType)
        name = field.encode_name.removesuffix("s") if several else field.encode_name
    return name, opposite or f"no_{name}"


def _can_be_cleared(field: msgspec.inspect.Field) -> bool:
    """Return whether null is another value than to leave the field out (it is UNSET then)."""
    defaults = (field.default, field.default_factory)
    return not field.required and all(default is msgspec.NODEFAULT for default in defaults)


def _typed(operation: Operation[Any], field: msgspec.inspect.Field) -> str:
    """Return how a field is called on the command line."""
    if field.name not in operation.arguments:
        return f"--{_names(operation, field)[0].replace('_', '-')}"
    return DURATION if _described(field.type).text.startswith(SECONDS) else field.name.upper()


def _fields(shape: Any) -> Sequence[msgspec.inspect.Field]:
    return () if shape is None else msgspec.inspect.type_info(shape).fields  # type: ignore[attr-defined]


class _Described(NamedTuple):
    type: msgspec.inspect.Type  # without null
    text: str
    values: Sequence[str] | None  # if it has one of these


def _described(kind: msgspec.inspect.Type) -> _Described:
    text, values = "", None
    while isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        if isinstance(kind, msgspec.inspect.Metadata):
            schema = kind.extra_json_schema or {}
            text = text or schema.get("description", "")
            enum = schema.get("enum", "")
            values = values or (enum if isinstance(enum, list) else completion.values_of(enum))
            kind = kind.type
        else:
            kind = next(t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType))
    return _Described(kind, text, values)


def _unchanged(value: Any) -> Any:
    return value


def _separated(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part]


def _durations(option: str, texts: Sequence[str]) -> list[float]:
    return [parsed_seconds(option, text) for text in texts]


def _count(option: str, text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(
            f"'{text}' is not a number; pass one, or 'none' for no limit", param_hint=f"'{option}'"
        )
    return int(text)


def _cleared(none: Any, convert: Callable[[Any], Any], value: Any) -> Any:
    """Return the value of a field that can be cleared, with `none`."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    return none if isinstance(text, str) and text.lower() in CLEARED else convert(value)


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


def keyword(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """Return a parameter; `from` is a word of Python, and becomes `from_`."""
    name += "_" * keywords.iskeyword(name)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
