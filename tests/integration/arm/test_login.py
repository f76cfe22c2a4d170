"""How clients of Azure Resource Manager log in, and what their access tokens are good for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from forewarn.core.access import Role
from forewarn.service.access import access_tokens
from forewarn.service.access.machine_tokens import TENANT_ID
from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response
from helpers.arm import COMPUTE, HOST, SUBSCRIPTION, Arm, anonymous, code, message
from helpers.oidc_issuer import Issuer, Key, issuer
from helpers.token_api import token

FLEET = """
groups:
  - {name: web, kind: standalone, machines: [{name: web-0}]}
  - {name: sql, kind: standalone, machines: [{name: sql-0}]}
"""
FORM = {"Host": HOST, "Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


def log_in(service: Service, client_secret: str, **form: str) -> Response:
    output = {"grant_type": "client_credentials", "client_secret": client_secret, **form}
    target = f"/{TENANT_ID}/oauth2/v2.0/token"
    return anonymous(service, "POST", target, FORM, urlencode(output).encode())


def claims(answer: Response) -> dict[str, object]:
    middle = answer.json()["access_token"].split(".")[1]
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(middle + "=="))
    return found


def bearer(service: Service, access_token: str, path: str = "/subscriptions") -> Response:
    headers = {"Host": HOST, "Authorization": f"Bearer {access_token}"}
    return anonymous(service, "GET", f"{path}?api-version=2022-12-01", headers)


@pytest.mark.parametrize("version", ["2015-01-01", "2019-05-01", "2022-09-01"])
def test_the_endpoints_of_this_cloud_are_public(service: Service, version: str) -> None:
    answer = anonymous(service, "GET", f"//metadata/endpoints?api-version={version}")
    [cloud] = found if isinstance(found := answer.json(), list) else [found]
    assert cloud["authentication"]["audiences"] == [f"https://{HOST}"]
    assert cloud["authentication"]["loginEndpoint"] == f"https://{HOST}/adfs"


@pytest.mark.parametrize(
    ("authority", "tenant"),
    [
        ("adfs", "adfs"),
        (f"{TENANT_ID}/v2.0", TENANT_ID),
        ("organizations/v2.0", "organizations"),
        ("adfs/forewarn/v2.0", "forewarn"),  # as az asks for a tenant by its name
    ],
)
def test_discovery_shows_the_token_endpoint(service: Service, authority: str, tenant: str) -> None:
    answer = anonymous(service, "GET", f"/{authority}/.well-known/openid-configuration")
    found = answer.json()
    assert found["token_endpoint"] == f"https://{HOST}/{tenant}/oauth2/v2.0/token"
    assert found["issuer"].split("/")[3] == TENANT_ID  # where az takes the tenant's id from


def test_a_client_is_called_as_its_token_is(service: Service) -> None:
    """Clients keep access tokens by the name of the client: one name is one set of rights."""
    admin = token(service, "ops", Role.ADMIN)
    guest = token(service, "guest", Role.VIEWER)
    for name in ("ops", "OPS", admin.token.id):
        assert log_in(service, admin.secret.text, client_id=name).status == 200
        answer = log_in(service, guest.secret.text, client_id=name)
        assert (answer.status, answer.json()["error"]) == (401, "invalid_client")
    assert "'guest'" in answer.json()["error_description"]
    assert log_in(service, guest.secret.text, client_id="anything").status == 401


def test_a_token_is_exchanged_for_an_access_token_that_names_it(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    answer = log_in(service, admin.secret.text, scope="https://management/.default")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    output = claims(answer)
    assert (output["appid"], output["tid"], output["aud"]) == (
        admin.token.id,
        TENANT_ID,
        "https://management",
    )
    assert bearer(service, answer.json()["access_token"]).status == 200


def test_the_secret_is_not_in_an_access_token(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    answer = log_in(service, admin.secret.text)
    assert admin.secret.text.encode() not in answer.body
    assert admin.secret.text not in json.dumps(claims(answer))


def test_a_revoked_token_ends_its_access_tokens(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    guest = token(service, "guest", Role.VIEWER)
    issued = log_in(service, guest.secret.text).json()["access_token"]
    assert bearer(service, issued).status == 200
    session = service._session
    session.run(session.node.tokens.revoke("guest", "ops"))
    answer = bearer(service, issued)
    assert code(answer) == (401, "InvalidAuthenticationToken")
    assert "was revoked" in message(answer)
    assert "Log in again." in message(answer)
    assert f"https://{HOST}/{TENANT_ID}" in answer.headers["www-authenticate"]


def test_an_access_token_expires(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = token(service, "ops", Role.ADMIN)
    monkeypatch.setattr(access_tokens, "ACCESS_LIFE", -120)
    issued = log_in(service, admin.secret.text).json()["access_token"]
    assert code(bearer(service, issued)) == (401, "ExpiredAuthenticationToken")


def test_a_changed_access_token_is_refused(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    guest = token(service, "guest", Role.VIEWER)
    head, body, signature = log_in(service, guest.secret.text).json()["access_token"].split(".")
    output = json.loads(base64.urlsafe_b64decode(body + "=="))
    output["appid"] = admin.token.id
    log_in(service, admin.secret.text)  # so that its public key is known
    forged = base64.urlsafe_b64encode(json.dumps(output).encode()).rstrip(b"=").decode()
    assert code(bearer(service, f"{head}.{forged}.{signature}"))[0] == 401
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    assert code(bearer(service, f"{none}.{forged}."))[0] == 401


def test_access_tokens_cannot_be_made_from_the_state(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    log_in(service, admin.secret.text)
    stored = service._session.node.store.registry.tokens[admin.token.id]
    jwt = pytest.importorskip("jwt")
    output = {"appid": admin.token.id, "iat": 0, "exp": 2**40}
    for key in (stored.digest, stored.public_key):
        forged = jwt.encode(output, key, "HS256")
        assert code(bearer(service, forged))[0] == 401


def test_a_token_is_accepted_as_a_bearer_as_well(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    assert bearer(service, admin.secret.text).status == 200


def test_a_managed_identity_needs_a_token_in_its_header(service: Service) -> None:
    admin = token(service, "ops", Role.ADMIN)
    target = "/identity?api-version=2019-08-01&resource=https://management/"
    answer = anonymous(
        service, "GET", target, {"Host": HOST, "X-IDENTITY-HEADER": admin.secret.text}
    )
    assert answer.status == 200
    assert int(answer.json()["expires_on"]) > 0
    assert claims(answer)["tid"] == TENANT_ID
    wrong = anonymous(service, "GET", target, {"Host": HOST, "X-IDENTITY-HEADER": "wrong"})
    assert (wrong.status, wrong.json()["statusCode"]) == (401, 401)


def test_wrong_secrets_are_counted_for_both_apis(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    for _ in range(20):
        assert log_in(service, "wrong").json()["error"] == "invalid_client"
    answer = log_in(service, "wrong")
    assert (answer.status, answer.json()["error"]) == (429, "invalid_client")
    context = service._session.node._operators_context()
    assert context.attempts.wait("127.0.0.1") > 0


@pytest.mark.parametrize("grant", ["password", "authorization_code", ""])
def test_nothing_but_client_credentials_is_granted(service: Service, grant: str) -> None:
    answer = log_in(service, "any", grant_type=grant)
    assert (answer.status, answer.json()["error"]) == (400, "unsupported_grant_type")


def test_logins_of_people_are_refused_with_the_reason(service: Service) -> None:
    found = anonymous(service, "GET", "/adfs/.well-known/openid-configuration").json()
    browser = anonymous(service, "GET", found["authorization_endpoint"].partition(HOST)[2])
    assert (browser.status, browser.json()["error"]) == (400, "unsupported_response_type")
    path = found["device_authorization_endpoint"].partition(HOST)[2]
    begun = anonymous(service, "POST", path, FORM, b"client_id=az").json()
    form = {"device_code": begun["device_code"], "grant_type": "device_code"}
    refused = log_in(service, "", **form).json()
    assert refused["error_description"] in begun["message"]
    assert "--service-principal" in refused["error_description"]


def test_without_tokens_local_programs_log_in_with_anything(service: Service) -> None:
    assert Arm(service, "whatever").get("/subscriptions")["value"]
    unauthenticated = anonymous(
        service, "GET", "/subscriptions?api-version=2022-12-01", {"Host": HOST}
    )
    assert code(unauthenticated) == (401, "AuthenticationFailed")


def test_an_access_token_of_a_local_program_is_refused_once_there_are_tokens(
    service: Service,
) -> None:
    issued = log_in(service, "whatever").json()["access_token"]
    assert bearer(service, issued).status == 200
    token(service, "ops", Role.ADMIN)
    assert code(bearer(service, issued)) == (401, "InvalidAuthenticationToken")


def test_roles_and_limits_are_those_of_the_token(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    viewer = Arm(service, token(service, "eyes", Role.VIEWER).secret.text)
    refused = viewer.call("POST", f"{COMPUTE}/virtualMachines/web-0/restart")
    assert code(refused) == (403, "AuthorizationFailed")
    assert "the role tenant" in message(refused)
    machine = f"{COMPUTE}/virtualMachines/web-0"
    action = f"'Microsoft.Compute/virtualMachines/restart/action' over scope '{machine}'"
    assert action in message(refused)
    refused = viewer.call("DELETE", machine)
    assert f"'Microsoft.Compute/virtualMachines/delete' over scope '{machine}'" in message(refused)
    tenant = token(service, "team", Role.TENANT, groups=("web",))
    arm = Arm(service, tenant.secret.text)
    machines = arm.get(f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines")["value"]
    assert [machine["name"] for machine in machines] == ["web-0"]
    assert code(arm.call("POST", f"{COMPUTE}/virtualMachines/sql-0/restart")) == (
        404,
        "ResourceNotFound",
    )
    eviction = arm.call("POST", f"{COMPUTE}/virtualMachines/web-0/simulateEviction")
    assert code(eviction) == (403, "AuthorizationFailed")
    assert arm.call("POST", f"{COMPUTE}/virtualMachines/web-0/restart").status == 202
    assert [event.resources for event in service.events] == [("web-0",)]


def test_a_token_of_the_oidc_issuer_is_a_secret_an_assertion_and_a_bearer(service: Service) -> None:
    async def accept(issued: Issuer) -> None:
        service._session.node.accept_issuer(issued.config())

    with issuer() as issued:
        service._session.run(accept(issued))
        text = issued.token()
        for form in ({"client_secret": text}, {"client_secret": "", "client_assertion": text}):
            answer = log_in(service, **form)
            assert answer.json()["access_token"] == text
            assert 0 < answer.json()["expires_in"] <= 24 * 3_600
        assert log_in(service, text, client_id="ann@example.net").status == 200
        assert log_in(service, text, client_id="bob@example.net").status == 401
        assert bearer(service, text).status == 200
        arm = Arm(service, text)
        assert arm.call("POST", f"{COMPUTE}/virtualMachines/web-0/restart").status == 202
        assert [event.by for event in service._session.node.active_events] == ["ann@example.net"]
        refused = log_in(service, issued.token(Key()))
        assert (refused.status, refused.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("times", [{"exp": float("inf")}, {"exp": "soon"}, {"exp": None}, {}])
def test_an_access_token_without_a_valid_end_is_refused(
    service: Service, times: dict[str, object]
) -> None:
    admin = token(service, "ops", Role.ADMIN)
    log_in(service, admin.secret.text)
    key = access_tokens._private_key(admin.secret.text)
    jwt = pytest.importorskip("jwt")
    output = {"appid": admin.token.id, "iat": 0, **times}
    text = jwt.encode(output, key, "EdDSA")
    assert code(bearer(service, text))[0] == 401
