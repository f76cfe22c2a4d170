"""Authentication: whom a token stands for, whichever API it was sent to, and failed attempts by
address."""

from __future__ import annotations

from forewarn.control.http.context import Caller, Context
from forewarn.core.access import Session, Token
from forewarn.service.access import secret
from forewarn.service.access.issuer_keys import FETCH_PAUSE, IssuerUnavailable
from forewarn.service.access.oidc import Identity, NoAccess, TokenRefused


class Refusal(Exception):
    """Raised for a request that is not admitted, with the status and detail of its problem."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Authentication:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def caller(self, text: str, address: str) -> Caller:
        """Return the caller with this token, of ours or of the OIDC issuer. Raises Refusal."""
        tokens, attempts = self._context.tokens, self._context.attempts
        if token := tokens.of(text):
            return self.with_token(token)
        problem = _token_problem(text)
        try:
            if identity := await tokens.identity(text):
                return self.identified(identity)
        except NoAccess as error:
            raise Refusal(403, str(error)) from error
        except IssuerUnavailable as error:
            raise Refusal(
                503,
                f"the token cannot be verified, because the keys of its issuer are not known:"
                f" {error}",
                retry_after=str(int(FETCH_PAUSE)),
            ) from error
        except TokenRefused as error:
            problem = f"this token of the OIDC issuer is refused: {error}"
        if wait := attempts.wait(address):
            raise Refusal(
                429,
                f"too many attempts with wrong tokens from {address}; wait {wait:.0f} s",
                retry_after=str(int(wait) + 1),
            )
        attempts.failed(address, secret.id_of(text))
        raise Refusal(401, problem)

    def with_token(self, token: Token, session: Session | None = None) -> Caller:
        self._context.tokens.used(token)
        return Caller(
            name=token.name, role=token.role, limit=token.limit, token=token.id, session=session
        )

    def identified(self, identity: Identity) -> Caller:
        if self._context.platform.machine_index.machine(identity.name) is not None:
            raise NoAccess(
                f"a machine is called '{identity.name}', and its approvals are in the history under"
                " that name; use another claim for names"
            )
        return Caller(
            name=identity.name,
            role=identity.role,
            limit=identity.limit,
            token=identity.subject,
            identity=identity,
        )


def _token_problem(text: str) -> str:
    if not text:
        return "the Authorization header is not 'Bearer …' with a token"
    return (
        "this token is unknown, wrong, expired or revoked; an admin can create another one"
        " (forewarn token create)"
    )
