"""Asking the control API as any program would: one request, with all that came back."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.control.app import handlers
from forewarn.control.openapi.document import operations
from forewarn.testing import Service
from helpers.waiting import LIMIT

OPERATIONS = {name: operation for name, (_, operation) in operations(handlers()).items()}


class ApiResponse(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def next(self) -> str:
        """Where the next page is; empty: nowhere."""
        link = self.headers.get("link", "")
        return link.partition("<")[2].partition(">")[0]


def ask(
    service: Service | str,
    method: str,
    target: str,
    body: object = None,
    *,
    raw: bytes | None = None,
    **headers: str,
) -> ApiResponse:
    """`if_match='"…"'` is the header If-Match."""
    url = service if isinstance(service, str) else service.control_url
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, target, data, {"Content-Type": "application/json", **sent})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return ApiResponse(answer.status, found, answer.read())
    finally:
        connection.close()
