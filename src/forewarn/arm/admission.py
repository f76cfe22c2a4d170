"""Who sends a request: the bearer is an access token that was issued here, a token of this service
itself, or one of the OIDC issuer."""

from __future__ import annotations

from typing import Any

from forewarn.arm.errors import CODE_OF_STATUS, ArmError
from forewarn.arm.routing import Route
from forewarn.control.http.access.authentication import Authentication, Refusal
from forewarn.control.http.access.authorization import limit_text
from forewarn.control.http.context import LOCAL, Caller, Context
from forewarn.core.access import local
from forewarn.service.access.access_tokens import AccessTokenExpired
from forewarn.service.access.machine_tokens import ROLE, TENANT_ID, MachineTokenInvalid
from forewarn.service.access.oidc import is_token
from forewarn.support.azure_names import RESOURCE_MANAGER

# What clients call this API if they ask for a token, beside its address.
AUDIENCES = tuple(f"https://{name}" for name in RESOURCE_MANAGER)
ENDED = (
    "The access token is invalid: the token that it stands for has expired or was revoked, or this"
    " service does not know it. Log in again."
)


class ArmAdmission:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._authentication = Authentication(context)

    async def caller(self, scope: Any, route: Route, authorization: str, base_url: str) -> Caller:
        """Return the caller, if it may use an operation. Raises ArmError."""
        caller = await self._authenticated(scope, authorization, base_url)
        assert route.role is not None
        if not caller.role.includes(route.role):
            raise denied(
                caller,
                scope["method"],
                scope["path"],
                f"this needs the role {route.role.value}, and the token has {caller.role.value}",
            )
        if not caller.limit.none and not route.limited:
            raise denied(
                caller,
                scope["method"],
                scope["path"],
                "this is for the platform's operators, and the token is limited to"
                f" {limit_text(caller.limit)}",
            )
        return caller

    async def _authenticated(self, scope: Any, authorization: str, base_url: str) -> Caller:
        scheme, _, text = authorization.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise _unauthenticated(
                base_url,
                "AuthenticationFailed",
                "Authentication failed. The 'Authorization' header is missing.",
            )
        address = str((scope.get("client") or ("", 0))[0])
        try:
            if machine := self._machine(text, base_url):
                return machine
            return await self._with_token(text, address, base_url)
        except AccessTokenExpired as error:
            raise _unauthenticated(
                base_url, "ExpiredAuthenticationToken", "The access token has expired."
            ) from error
        except MachineTokenInvalid as error:
            raise _unauthenticated(base_url, CODE_OF_STATUS[401], ENDED) from error

    def _machine(self, text: str, base_url: str) -> Caller | None:
        """Return the machine that a token stands for, which was issued for this API."""
        tokens = self._context.machine_tokens
        found = tokens.find(text, (base_url, *AUDIENCES)) if tokens is not None else None
        if found is None:
            return None
        name = found.machine
        return Caller(name=name, role=ROLE, limit=found.limit, token=f"machine:{name}")

    async def _with_token(self, text: str, address: str, base_url: str) -> Caller:
        if not self._context.tokens.needed:
            if local(address):
                return LOCAL
            raise _unauthenticated(base_url, "AuthenticationFailed", "This service has no tokens.")
        try:
            if (token := self._context.access_tokens.find(text)) is not None:
                return self._authentication.with_token(token)
            return await self._authentication.caller(text, address)
        except Refusal as refused:
            if refused.status == 401 and is_token(text) and self._context.tokens.oidc is None:
                raise _unauthenticated(base_url, CODE_OF_STATUS[401], ENDED) from refused
            raise from_refusal(refused, base_url) from refused


def from_refusal(refused: Refusal, base_url: str) -> ArmError:
    if refused.status == 401:
        return _unauthenticated(base_url, CODE_OF_STATUS[401], refused.detail)
    code = CODE_OF_STATUS.get(refused.status, "BadRequest")
    return ArmError(refused.status, code, refused.detail, headers=refused.headers)


def _unauthenticated(base_url: str, code: str, message: str) -> ArmError:
    challenge = (
        f'Bearer authorization_uri="{base_url}/{TENANT_ID}", error="invalid_token",'
        ' error_description="The authentication failed"'
    )
    return ArmError(401, code, message, headers={"WWW-Authenticate": challenge})


def denied(caller: Caller, method: str, path: str, why: str) -> ArmError:
    """Return the refusal of a request that its caller may not make: with the action as Azure's
    roles name it, and the resource."""
    _, provider, below = path.rstrip("/").rpartition("/providers/")
    namespace, _, names = below.partition("/") if provider else ("Microsoft.Resources", "", below)
    types = "/".join(names.strip("/").split("/")[::2])
    verb = {"GET": "read", "HEAD": "read", "DELETE": "delete", "POST": "action"}
    resource = path.rpartition("/")[0] if method == "POST" else path
    return ArmError(
        403,
        "AuthorizationFailed",
        f"The client '{caller.name}' does not have authorization to perform action"
        f" '{namespace}/{types}/{verb.get(method, 'write')}' over scope '{resource}': {why}.",
    )
