"""What Azure Resource Manager offers and forewarn does not: refused in one way, with the reason."""

from __future__ import annotations

import re

from forewarn.arm.errors import ArmError
from forewarn.service.access.secret import hidden

MAX_PATH = 500  # characters that a message shows
WRITES = ("PUT", "PATCH", "DELETE", "POST")

_PLACE = r"/subscriptions/[^/]+(/resourceGroups/[^/]+)?"
_FLEET = (
    r"/providers/Microsoft\.Compute/(virtualMachines|virtualMachineScaleSets|availabilitySets"
    r"|hostGroups)/[^/]+(/(virtualMachines|hosts)/[^/]+)?"
)
# By the methods (none: any) and the path of a request: the first that matches says why.
REASONS = (
    (
        WRITES,
        _PLACE + _FLEET,
        "machines, scale sets, availability sets and hosts come from the fleet file",
    ),
    (
        ("POST",),
        _PLACE + _FLEET + r"/[^/]+",
        "it announces maintenance, and carries it out, and does not switch machines off; restart,"
        " redeploy or delete the machine instead",
    ),
    (WRITES, _PLACE, "subscriptions and resource groups are those that the fleet file names"),
    (
        WRITES,
        r".*(/providers/Microsoft\.Resources/tags/default|/tagNames(/.*)?)",
        "tags are those in the fleet file",
    ),
    ((), r".*", "there are only machines and their maintenance, and no other resources"),
)


def not_offered(method: str, path: str, methods: list[str]) -> ArmError:
    """Return the refusal of a request that no operation answers; others at its path have these
    methods."""
    if methods and (method not in WRITES or methods == ["POST"]):
        return ArmError(
            405,
            "MethodNotAllowed",
            f"The requested resource does not support http method '{method}'.",
            headers={"Allow": ", ".join(sorted(set(methods)))},
        )
    reason = next(
        reason
        for those, pattern, reason in REASONS
        if (not those or method in those) and re.fullmatch(pattern, path, re.IGNORECASE)
    )
    status, code = (
        (409, "OperationNotAllowed") if method in WRITES else (404, "InvalidResourceType")
    )
    return ArmError(
        status,
        code,
        f"forewarn does not offer {method} of '{hidden(path[:MAX_PATH])}': {reason}. Its"
        " documentation lists what it offers.",
    )
