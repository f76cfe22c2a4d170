"""Which function answers a request: by its method and its path, whose fixed parts may be in any
letter case. Every operation declares the role that it needs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from forewarn.arm.request import Answer, Request
from forewarn.core.access import Role

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]

SUBSCRIPTION = "/subscriptions/{subscription}"
RESOURCE_GROUP = SUBSCRIPTION + "/resourceGroups/{resource_group}"
COMPUTE = "/providers/Microsoft.Compute"
MAINTENANCE = "/providers/Microsoft.Maintenance"


class Route(msgspec.Struct, frozen=True):
    method: str
    template: str
    pattern: re.Pattern[str]
    role: Role | None  # None: anybody may ask, without a token
    versioned: bool  # does it need an api-version?
    limited: bool  # may it be used with a token that is limited to groups?
    options: tuple[str, ...]  # of its query, in lower case
    handler: Handler


ROUTES: list[Route] = []


def route(
    method: str,
    template: str,
    *,
    role: Role | None = Role.VIEWER,
    versioned: bool = True,
    limited: bool = True,
    options: tuple[str, ...] = (),
) -> Callable[[Handler], Handler]:
    """Declare the operation that a function answers."""
    parts = re.split(r"\{(\w+)\}", template)
    pattern = "".join(
        f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )

    def declare(handler: Handler) -> Handler:
        compiled = re.compile(pattern, re.IGNORECASE | re.ASCII)
        ROUTES.append(Route(method, template, compiled, role, versioned, limited, options, handler))
        return handler

    return declare


def find(method: str, path: str) -> tuple[Route, dict[str, str]] | list[str]:
    """Return the operation at a path and the names in it; or the methods that there are instead."""
    methods: list[str] = []
    for route in ROUTES:
        if (match := route.pattern.fullmatch(path)) is None:
            continue
        if route.method == method:
            return route, match.groupdict()
        methods.append(route.method)
    return methods
