"""What a query may say: nothing that nobody reads. A misspelt `plan` must not become the real
thing."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.params import QueryParameter

from forewarn.control.http.errors import problem
from forewarn.control.schema import core as s
from forewarn.support.suggest import nearest

MAX_SHOWN_PARAMETER = 40  # characters of a parameter that nobody knows


def known_only(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """The refusal, if there is anything else."""
    asked = list(request.query_params)
    if not asked or not request.url.path.startswith("/v1/"):
        return None
    known = _parameters(request.route_handler)
    if wrong := _wrong(request, known):
        return problem(400, wrong)
    for name in asked:
        if name not in known:
            return problem(400, _unknown(name, known))
    return None


def _wrong(request: Request[Any, Any, Any], known: list[str]) -> str:
    """Of what is said twice only one would be heard, and `null` would be nothing."""
    for name, value in request.query_params.items():
        if name not in known:
            continue
        if len(request.query_params.getall(name)) > 1:
            return f"the parameter '{name}' is said more than once"
        if value == "null":
            return f"the parameter '{name}' is null; leave it out instead"
    return ""


def _unknown(name: str, known: list[str]) -> str:
    shown = name[:MAX_SHOWN_PARAMETER]
    if not known:
        return f"no parameter '{shown}': this call takes none"
    near = nearest(shown, known)
    meant = f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"
    return f"no parameter '{shown}'; {meant}"


def _parameters(handler: Any) -> list[str]:
    """What a handler says it reads from the query."""
    return [
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    ]
