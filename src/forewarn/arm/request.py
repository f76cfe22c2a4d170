"""A request to the Azure Resource Manager API, and the answer to it."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

import msgspec

from forewarn.arm.errors import ArmError
from forewarn.control.http.context import CallContext, Context
from forewarn.control.http.preconditions import Precondition
from forewarn.core import Event, Time
from forewarn.support.convert import decode_json

if TYPE_CHECKING:
    from forewarn.arm.operations import Operations

MAX_FIELDS = 100  # of a query or a form, which anybody may send
_EVENT = re.compile(r"[0-9A-Fa-f-]{1,36}", re.ASCII)
_OPERATIONS = uuid.UUID("5b7a4bd5-5e2c-5d2b-9c0c-2b6f2f1f3a77")  # namespace of operation ids


def fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of a query or a form. Raises ArmError."""
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise ArmError(
            400, "BadRequest", f"A query or form may have at most {MAX_FIELDS} fields."
        ) from error


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: Any = None  # None: there is none
    headers: Mapping[str, str] = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    names: Mapping[str, str]  # in the path
    parameters: Mapping[str, str]  # of the query, by name in lower case
    headers: Mapping[str, str]  # by name in lower case
    content: bytes
    base_url: str  # of this API, as the client has addressed it
    address: str  # of the client
    context: Context
    operations: Operations
    queries: asyncio.Semaphore  # of Azure Resource Graph: others wait
    bound: CallContext | None  # None: the operation needs no caller
    # Answers a GET of the same caller, by its path and query; refusals are answers as well.
    read: Callable[[str, str], Awaitable[Answer]]
    condition: Precondition | None = None  # of its If-Match and If-None-Match

    @property
    def place(self) -> tuple[str, str]:
        """The subscription and the resource group in its path; empty: there is none."""
        return self.names["subscription"], self.names.get("resource_group", "")

    @property
    def url(self) -> str:
        """Its own URL, without the query."""
        return self.base_url + quote(self.path)

    @property
    def call(self) -> CallContext:
        """The operations of the platform, bound to the caller."""
        assert self.bound is not None, "an operation that is open to anybody asks for its caller"
        return self.bound

    @property
    def now(self) -> Time:
        """The service's time."""
        return self.context.platform.writer.now().at

    @property
    def api_version(self) -> str:
        return self.parameters.get("api-version", "")

    @property
    def client_id(self) -> str:
        """The client's own id of the request; empty if it has none."""
        return self.headers.get("x-ms-client-request-id", "")

    def body(self) -> dict[str, Any]:
        """Return the JSON object in the body; empty if there is no body. Raises ArmError."""
        if not self.content.strip():
            return {}
        try:
            decoded = decode_json(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArmError(
                400, "InvalidRequestContent", f"The request content is not valid JSON: {error}"
            ) from error
        if not isinstance(decoded, dict):
            raise ArmError(
                400, "InvalidRequestContent", "The request content must be a JSON object."
            )
        return decoded

    async def events(self, ids: Iterable[str]) -> list[Event]:
        """Return the events with these ids, in any letter case. A text that cannot be an id is not
        looked for."""
        wanted = [id.upper() for id in ids if _EVENT.fullmatch(id)]
        return await self.context.platform.events(wanted)

    def operation_id(self, number: int = 0) -> str:
        """Return the id of the long-running operation that this request asks for. An SDK repeats a
        request under the same x-ms-client-request-id; az uses one for all requests of a command, so
        that what is requested counts as well. A client that uses one id for good has several
        operations under it, by their number."""
        if not self.client_id:
            return str(uuid.uuid4())
        digest = hashlib.sha256()
        parts = [self.call.caller.token, self.client_id, self.method, self.path.lower()]
        parts += [str(number)] if number else []
        for part in (*(part.encode() for part in parts), self.content):
            digest.update(len(part).to_bytes(8, "big") + part)
        return str(uuid.uuid5(_OPERATIONS, digest.hexdigest()))
