"""Azure Resource Manager's API of a service in this process, as one client sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from forewarn.arm.app import ArmApp
from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response, exchange

HOST = "127.0.0.1:8171"
VERSION = "2024-07-01"
SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000"
RESOURCE_GROUP = f"{SUBSCRIPTION}/resourceGroups/forewarn"
COMPUTE = f"{RESOURCE_GROUP}/providers/Microsoft.Compute"


class Arm:
    """A client that has logged in with a token of the service, or with none if it has none."""

    def __init__(self, service: Service, secret: str = "any") -> None:
        self._session = service._session
        self._app = app_of(service)
        form = {"grant_type": "client_credentials", "client_secret": secret}
        target = "/adfs/oauth2/v2.0/token"
        answer = self._exchange("POST", target, {"Host": HOST}, urlencode(form).encode())
        assert answer.status == 200, answer
        self._token = answer.json()["access_token"]

    def call(
        self, method: str, path: str, body: object = None, content: bytes = b"", **headers: str
    ) -> Response:
        """`x_ms_client_request_id="…"` is the header x-ms-client-request-id."""
        target = path if "api-version=" in path else f"{path}{'&' if '?' in path else '?'}"
        target += "" if "api-version=" in path else f"api-version={VERSION}"
        output = {name.replace("_", "-"): value for name, value in headers.items()}
        output = {"Host": HOST, "Authorization": f"Bearer {self._token}", **output}
        content = content if body is None else json.dumps(body).encode()
        return self._exchange(method, target, output, content)

    def get(self, path: str) -> Any:
        """Return the body of an answer that must be a success."""
        answer = self.call("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    def status_of(self, answer: Response) -> str:
        """Return what has become of the operation that an answer has begun."""
        return str(self.operation(answer)["status"])

    def operation(self, answer: Response) -> Any:
        parts = urlsplit(answer.headers["azure-asyncoperation"])
        return self.get(f"{parts.path}?{parts.query}")

    def result_of(self, answer: Response) -> Response:
        """Return the answer at the Location of an operation."""
        parts = urlsplit(answer.headers["location"])
        return self.call("GET", f"{parts.path}?{parts.query}")

    def _exchange(
        self, method: str, target: str, headers: dict[str, str], content: bytes
    ) -> Response:
        return self._session.run(exchange(self._app, HOST, method, target, headers, content))


def app_of(service: Service) -> ArmApp:
    return ArmApp(service._session.node._operators_context())


def anonymous(
    service: Service,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    content: bytes = b"",
) -> Response:
    """Return the answer to somebody who has not logged in."""
    output = headers or {"Host": HOST}
    return service._session.run(exchange(app_of(service), HOST, method, target, output, content))


def code(answer: Response) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    return answer.status, answer.json()["error"]["code"]


def message(answer: Response) -> str:
    return str(answer.json()["error"]["message"])
