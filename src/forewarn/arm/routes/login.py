"""How clients log in: the endpoints of this cloud, OpenID discovery, client credentials, and
managed identity. The secret is a token of this service, or one of the OIDC issuer."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from forewarn.arm.admission import from_refusal
from forewarn.arm.errors import ArmError
from forewarn.arm.request import Answer, Request, fields
from forewarn.arm.routing import Handler, route
from forewarn.control.http.access.authentication import Authentication, Refusal
from forewarn.core import Refused
from forewarn.core.access import local
from forewarn.core.time import SECOND
from forewarn.service.access.access_tokens import ACCESS_LIFE, unverified
from forewarn.service.access.machine_tokens import TENANT_ID
from forewarn.store.port import StoreFailed
from forewarn.support import guard

ADFS = "adfs"  # an authority of this name is not looked up at Microsoft
UNAVAILABLE = "temporarily_unavailable"
CREDENTIALS = (
    "log in with az login --identity, or with client credentials (az login --service-principal),"
    " whose secret is a token of forewarn"
)
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OAuthError(ArmError):
    """A refusal by the token endpoint, which has the form of OAuth."""

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.code, "error_description": self.message}


@route("GET", "/metadata/endpoints", role=None)
async def endpoints(request: Request) -> Answer:
    url = request.base_url
    cloud: dict[str, Any] = {
        "name": "forewarn",
        "portal": url,
        "resourceManager": url,
        "authentication": {
            "loginEndpoint": f"{url}/{ADFS}",
            "audiences": [url],
            "tenant": TENANT_ID,
            "identityProvider": "ADFS",
        },
        "suffixes": {},
        "graphAudience": url,
        "microsoftGraphResourceId": url,
        "graph": url,
        "gallery": url,
    }
    # The first versions described one cloud in other words, and later ones a list of clouds.
    if request.api_version < "2016":
        return Answer(
            body={
                "galleryEndpoint": url,
                "graphEndpoint": url,
                "portalEndpoint": url,
                "authentication": {"loginEndpoint": f"{url}/{ADFS}", "audiences": [url]},
            }
        )
    return Answer(body=[cloud] if request.api_version < "2022" else cloud)


def tenant_route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Declare an operation of a tenant. Clients put the name of a tenant behind the address of the
    authority, even if that is one for ADFS."""

    def declare(handler: Handler) -> Handler:
        for prefix in ("/{tenant}", f"/{ADFS}/{{tenant}}"):
            route(method, prefix + path, role=None, versioned=False)(handler)
        return handler

    return declare


@tenant_route("GET", "/v2.0/.well-known/openid-configuration")
@tenant_route("GET", "/.well-known/openid-configuration")
async def discovery(request: Request) -> Answer:
    """az takes the id of a tenant that was given by name from the issuer."""
    authority = f"{request.base_url}/{request.names['tenant']}"
    return Answer(
        body={
            "issuer": f"{request.base_url}/{TENANT_ID}/v2.0",
            "authorization_endpoint": f"{authority}/oauth2/v2.0/authorize",
            "token_endpoint": f"{authority}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{authority}/oauth2/v2.0/devicecode",
            "jwks_uri": f"{authority}/discovery/v2.0/keys",
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "tenant_region_scope": None,
        }
    )


@tenant_route("GET", "/discovery/v2.0/keys")
async def keys(request: Request) -> Answer:
    """Only this service verifies its access tokens, so nobody needs their keys."""
    del request
    return Answer(body={"keys": []})


@route("GET", "/common/discovery/instance", role=None, versioned=False)
async def instance_discovery(request: Request) -> Answer:
    authority = f"{request.base_url}/{TENANT_ID}"
    return Answer(
        body={
            "tenant_discovery_endpoint": f"{authority}/v2.0/.well-known/openid-configuration",
            "api-version": "1.1",
            "metadata": [],
        }
    )


@tenant_route("GET", "/oauth2/v2.0/authorize")
async def authorize(request: Request) -> Answer:
    """Refuse a browser, which `az login` opens."""
    del request
    raise OAuthError(400, "unsupported_response_type", CREDENTIALS, headers=NO_STORE)


@tenant_route("POST", "/oauth2/v2.0/devicecode")
async def device_code(request: Request) -> Answer:
    """Begin a login without a browser, which then gets no token: clients show the reason of that
    refusal, and crash if this one is refused."""
    body = {
        "device_code": "none",
        "user_code": "none",
        "verification_uri": request.base_url,
        "expires_in": 60,
        "interval": 1,
        "message": CREDENTIALS,
    }
    return Answer(body=body, headers=NO_STORE)


@tenant_route("POST", "/oauth2/v2.0/token")
@tenant_route("POST", "/oauth2/token")
async def token(request: Request) -> Answer:
    """Client credentials: the secret, or the assertion, is a token, and the client is named after
    it. Clients keep access tokens by the name of the client: with another name, a new login would
    have the rights of the one before."""
    form = dict(fields(request.content.decode("utf-8", "replace")))
    if form.get("grant_type") != "client_credentials":
        raise OAuthError(
            400,
            "unsupported_grant_type",
            CREDENTIALS,
            headers=NO_STORE,
        )
    secret = form.get("client_secret") or form.get("client_assertion") or ""
    audience = (form.get("scope") or form.get("resource") or request.base_url).split(" ")[0]
    audience = audience.removesuffix("/.default")
    try:
        issued, lasts = await _issue(request, secret, audience, form.get("client_id", ""))
    except Refusal as refused:
        raise OAuthError(
            refused.status,
            "invalid_client" if refused.status < 500 else UNAVAILABLE,
            refused.detail,
            headers={**NO_STORE, **refused.headers},
        ) from refused
    except StoreFailed as error:  # the first time, a public key is stored
        headers = {**NO_STORE, "Retry-After": "1"}
        raise OAuthError(503, UNAVAILABLE, str(error), headers=headers) from error
    body = {
        "token_type": "Bearer",
        "expires_in": lasts,
        "ext_expires_in": lasts,
        "expires_on": str(guard.wall_us() // SECOND + lasts),
        "resource": audience,
        "access_token": issued,
    }
    return Answer(body=body, headers=NO_STORE)


@route("GET", "/identity", role=None, versioned=False)
async def identity(request: Request) -> Answer:
    """Managed identity as in an App Service: IDENTITY_HEADER is a token."""
    secret = request.headers.get("x-identity-header") or request.headers.get("secret") or ""
    audience = request.parameters.get("resource", request.base_url)
    try:
        issued, lasts = await _issue(request, secret, audience)
    except Refusal as refused:
        error = from_refusal(refused, request.base_url)
        body = {"statusCode": error.status, "message": error.message}
        return Answer(status=error.status, body=body, headers=NO_STORE)
    body = {
        "access_token": issued,
        "client_id": request.parameters.get("client_id", ""),
        "expires_on": str(guard.wall_us() // SECOND + lasts),
        "resource": audience,
        "token_type": "Bearer",
    }
    return Answer(body=body, headers=NO_STORE)


async def _issue(request: Request, secret: str, audience: str, client: str = "") -> tuple[str, int]:
    """Return an access token, and for how many seconds it lasts. Raises Refusal."""
    context = request.context
    claims: dict[str, Any] = {
        "aud": audience,
        "iss": f"{request.base_url}/{TENANT_ID}/v2.0",
        "tid": TENANT_ID,
        "idtyp": "app",
        "ver": "2.0",
    }
    if not context.tokens.needed:
        if not local(request.address):
            raise Refusal(401, "this service has no tokens, and answers only its own machine")
        return unverified({**claims, **_subject("local")}), ACCESS_LIFE
    caller = await Authentication(context).caller(secret, request.address)
    found = context.tokens.of(secret)
    names = [caller.name, *([found.id] if found is not None else [])]
    if client and client.lower() not in (name.lower() for name in names):
        expected = " or ".join(f"'{name}'" for name in names)
        raise Refusal(401, f"client_id must be {expected}, as the token is called")
    if caller.identity is not None:  # a token of the issuer, which is short-lived itself
        return secret, max(0, int(caller.identity.expires_at - guard.wall_us() / SECOND))
    assert found is not None, "the caller was identified by it"
    claims |= {**_subject(found.id), "name": found.name}
    issued = await context.access_tokens.issue(found, secret, claims)
    if isinstance(issued, Refused):
        raise Refusal(401, issued.message)
    return issued, ACCESS_LIFE


def _subject(id: str) -> dict[str, str]:
    subject = str(uuid.uuid5(uuid.NAMESPACE_OID, f"forewarn/{id}"))
    return {"sub": subject, "oid": subject}
