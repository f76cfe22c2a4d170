"""Raw calls of the control API as somebody with a token, and a fleet in which there are things that
are nobody else's business."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.core.access import Limit, Role
from forewarn.core.labels import parse
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.testing import Service
from helpers.waiting import LIMIT

# Words that have no part in common, so that any that leaks is seen.
FLEET = """
hosts: [granite, dune, shared]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: granite, update_domain: 0, spot: true}
      - {name: web_1, host: granite, update_domain: 0}
      - {name: web_2, host: shared, update_domain: 1}
  - name: amber
    kind: scale-set
    labels: {tier: vault}
    machines:
      - {name: amber_0, host: dune, update_domain: 0, spot: true}
      - {name: amber_1, host: dune, update_domain: 0}
      - {name: amber_2, host: shared, update_domain: 1}
"""


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json()
        assert problem["status"] == self.status
        return str(problem["detail"])


class Api:
    """The control API, as one caller sees it."""

    def __init__(self, url: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.token = token
        self._tls = tls

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=LIMIT, context=self._tls
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)

    def call(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        output = {"Content-Type": "application/json"} if data is not None else {}
        if self.token:
            output["Authorization"] = f"Bearer {self.token}"
        connection = self.connection()
        try:
            connection.request(method, target, data, {**output, **headers})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, target: str, **headers: str) -> Answer:
        return self.call("GET", target, headers=headers)

    def post(self, target: str, body: object = None) -> Answer:
        return self.call("POST", target, body)


def token(
    service: Service,
    name: str,
    role: Role,
    *,
    groups: tuple[str, ...] = (),
    label: str = "",
    **how: Any,
) -> CreatedToken:
    limit = Limit(groups=groups, labels=parse(label))
    wanted = NewToken(name=name, role=role, limit=limit, **how)
    made = service._session.run(service._session.node.tokens.create(wanted, by="operator"))
    assert isinstance(made, CreatedToken), made
    return made


def api_with_token(service: Service, name: str, role: Role, **how: Any) -> Api:
    return Api(service.control_url, token(service, name, role, **how).secret.text)
