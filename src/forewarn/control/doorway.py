"""What every request passes on its way to a handler: local programs only, and no parameter that
nobody reads.

Until there are tokens the API is served on loopback only, and a request must name a loopback host,
so that a page in a browser cannot reach it under another name.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from litestar import Request, Response
from litestar.params import QueryParameter

from forewarn.control import schema as s
from forewarn.control.answers import TITLES, problem
from forewarn.control.desk import LOCAL
from forewarn.service.suggest import nearest

MAX_SHOWN_PARAMETER = 40  # characters of a parameter that nobody knows


def admitted(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """The refusal, if it is not."""
    request.state.caller = LOCAL
    return _local_only(request) or _known_only(request)


def _local_only(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """A page in a browser names the host it came from, and says where from."""
    host = request.headers.get("host", "localhost")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if _is_local(name) and "origin" not in request.headers:
        return None
    return problem(403, "Forbidden", "the control API answers local programs only")


def _is_local(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _known_only(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """A misspelt `plan` must not become the real thing."""
    asked = list(request.query_params)
    if not asked or not request.url.path.startswith("/v1/"):
        return None
    known = _parameters(request.route_handler)
    for name in asked:
        if name not in known:
            return problem(400, TITLES[400], _unknown(name, known))
    return None


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
