"""Parameters of paths and queries: their declarations where several operations share them, and the
refusal of unknown ones. A misspelt `plan` must not become the real thing.

Values are checked by the handlers; the patterns and enumerations here are for the API's document
(where an enumeration is named, as in `schema.types`), and schemathesis compares the two.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from litestar import Request, Response
from litestar.params import PathParameter, QueryParameter

from forewarn.control.http.errors import problem
from forewarn.control.schema import core as s
from forewarn.core.history import What
from forewarn.core.labels import MAX_TERMS
from forewarn.support.suggest import nearest

MAX_SHOWN_PARAMETER = 40  # characters of an unknown parameter

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._/:@+-]{0,61}[A-Za-z0-9])?)?"
_TERM = rf"({_NAME}\s*!?=\s*{_VALUE}|!?\s*{_NAME})"
_SELECTOR = rf"^\s*({_TERM}(\s*,\s*{_TERM}){{0,{MAX_TERMS - 1}}})?\s*$"
_ID = r"^[0-9A-Fa-f-]{1,36}$"
_DAYS = r"(000[1-9]|[1-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = rf"{_DAYS}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_WHEN = rf"^({_TIME}|([0-9]{{1,4}}[dhms]){{1,5}}|[0-9]{{1,9}}(\.[0-9]{{1,9}})?)$"
_WHAT = "|".join(what.value for what in What)
_WHATS = rf"^(({_WHAT})(,({_WHAT})){{0,20}})?$"


def query(description: str, **schema: Any) -> QueryParameter:
    return QueryParameter(description=description, schema_extra=schema or None)


def query_id(description: str) -> QueryParameter:
    return query(description, pattern=_ID)


def query_time(description: str) -> QueryParameter:
    return query(description, pattern=_WHEN)


Name: TypeAlias = Annotated[str, PathParameter(schema_extra={"minLength": 1})]
Id: TypeAlias = Annotated[str, PathParameter(schema_extra={"pattern": _ID})]

ByGroup: TypeAlias = Annotated[str | None, query("Only of this group.")]
ByMachine: TypeAlias = Annotated[str | None, query("Only those about this machine.")]
ByHost: TypeAlias = Annotated[str | None, query("Only those of this host.")]
ByEvent: TypeAlias = Annotated[
    str | None, query_id("Only of this event: its id, or how that begins.")
]
ByLabel: TypeAlias = Annotated[
    str | None,
    query(
        "Only those with these labels: `k=v`, `k!=v`, `k` or `!k`, with commas between them.",
        pattern=_SELECTOR,
    ),
]
ByHealth: TypeAlias = Annotated[
    str | None, query("Only those that are, or are on, a host like this.", enum="Health")
]
ByWhat: TypeAlias = Annotated[
    str | None,
    query("Only these kinds of record, with commas between them.", pattern=_WHATS),
]
Since: TypeAlias = Annotated[
    str | None, query_time("Then or later: a time, or how long ago (`2h`).")
]
Until: TypeAlias = Annotated[str | None, query_time("Before then: a time, or how long ago.")]
Force: TypeAlias = Annotated[bool, query("Also remove what has an active event.")]


def known_only(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a parameter that is not declared, is repeated or is null."""
    given = list(request.query_params)
    if not given or not request.url.path.startswith("/v1/"):
        return None
    known = _parameters(request.route_handler)
    if wrong := _value_problem(request, known):
        return problem(400, wrong)
    for name in given:
        if name not in known:
            shown = name[:MAX_SHOWN_PARAMETER]
            near = nearest(shown, known) or ""
            return problem(400, _unknown(shown, known, near), suggestion=near)
    return None


def _value_problem(request: Request[Any, Any, Any], known: list[str]) -> str:
    for name, value in request.query_params.items():
        if name not in known:
            continue
        if len(request.query_params.getall(name)) > 1:
            return f"the parameter '{name}' is given more than once"
        if value == "null":
            return f"the parameter '{name}' is null; leave it out instead"
    return ""


def _unknown(shown: str, known: list[str], near: str) -> str:
    if not known:
        return f"no parameter '{shown}': this call takes none"
    meant = f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"
    return f"no parameter '{shown}'; {meant}"


def _parameters(handler: Any) -> list[str]:
    """Return the names of the query parameters that a handler declares."""
    return [
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    ]
