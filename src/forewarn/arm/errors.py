"""Refusals as Azure Resource Manager writes them: `{"error": {"code", "message", "details"}}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.core import Refused
from forewarn.core.refusal import Reason

_CODES = {
    Reason.INVALID: (400, "BadRequest"),
    Reason.UNKNOWN: (404, "NotFound"),
    Reason.CONFLICT: (409, "OperationNotAllowed"),
    Reason.STALE: (412, "PreconditionFailed"),
}
# For refusals by what the control API and this one share.
CODE_OF_STATUS = {
    400: "BadRequest",
    401: "InvalidAuthenticationToken",
    403: "AuthorizationFailed",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    421: "MisdirectedRequest",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class ArmError(Exception):
    """A refusal, with its status and code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.details = tuple(details)
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": error_body(self.code, self.message, self.details)}


def error_body(code: str, message: str, details: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    body: dict[str, Any] = {"code": code, "message": message}
    if details:
        body["details"] = [{"code": code, "message": message} for code, message in details]
    return body


def refusal(refused: Refused) -> ArmError:
    """Return the error of a refusal by the platform."""
    status, code = _CODES[refused.reason]
    others = [(_CODES[other.reason][1], other.message) for other in refused.others]
    message = refused.message
    if len(others) == 1:  # clients may not show details
        message = f"{message}: {others[0][1]}"
    return ArmError(status, code, message, others)


def unwrap(result: Any) -> Any:
    """Return the result of a call to the platform, or raise its refusal."""
    if isinstance(result, Refused):
        raise refusal(result)
    return result


def not_allowed(message: str) -> ArmError:
    return ArmError(409, "OperationNotAllowed", message)


def invalid_parameter(message: str) -> ArmError:
    return ArmError(400, "InvalidParameter", message)


def unavailable(message: str) -> ArmError:
    return ArmError(503, "ServiceUnavailable", message, headers={"Retry-After": "1"})


def not_found(kind: str, name: str, resource_group: str) -> ArmError:
    return ArmError(
        404,
        "ResourceNotFound",
        f"The Resource '{kind}/{name}' under resource group '{resource_group}' was not found.",
    )
