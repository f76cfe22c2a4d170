"""Webhooks and CloudEvents: one POST for each message.

Webhooks follow Standard Webhooks: the headers webhook-id (the same for every attempt),
webhook-timestamp (of the attempt) and webhook-signature. Redirects are not followed, and the body
of a response to a message is ignored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any
from urllib.parse import quote

import msgspec

from forewarn import __version__
from forewarn.notify import text
from forewarn.notify.config import CloudEvents, Http, origin, url_problem
from forewarn.notify.notification import Message
from forewarn.notify.targets.port import (
    DeliveryFailed,
    Sender,
    reason,
    secret,
    secret_problems,
    ssl_context,
)
from forewarn.support import guard

TYPE_PREFIX = "forewarn."  # of `type` in CloudEvents
SECRET_PREFIX = "whsec_"
MAX_ANSWER = 16 * 1024  # bytes of an answer that are read
MAX_READING = 1.0  # seconds in which they are read
LEAST_KEY, MAX_KEY = 24, 64  # bytes of a key, as Standard Webhooks prescribes
MAX_WAIT = 3600.0  # seconds of a Retry-After that are respected
_TRANSIENT = frozenset({408, 425, 429})

_encode = msgspec.json.Encoder().encode


class HttpSender(Sender):
    def __init__(self, options: Http, zone: tzinfo) -> None:
        self._options = options
        self._zone = zone
        self._client: Any = None

    @property
    def where(self) -> str:
        try:
            return origin(self._url())
        except DeliveryFailed:
            return f"the URL in {self._options.url_file}"

    def check(self) -> Iterator[str]:
        options = self._options
        for key in ("url_file", "secret_file", "authorization_file"):
            yield from secret_problems(getattr(options, key), key)
        try:
            self._url()
            if options.secret_file:
                self._keys()
            ssl_context(options.ca)
        except DeliveryFailed as error:
            yield str(error)

    def prepare(self) -> None:
        import httpx

        if self._client is None:
            context = ssl_context(self._options.ca)
            self._client = httpx.AsyncClient(verify=context, timeout=None)  # the caller has one

    async def send(self, message: Message) -> None:
        url = self._url()
        body, headers = self._render(message)
        await self._exchange("POST", url, body, headers | self._signature(message.id, body))

    async def _exchange(
        self, method: str, url: str, body: bytes, headers: dict[str, str]
    ) -> tuple[Mapping[str, str], bytes]:
        """Send a request. Returns the headers of a successful answer, and the beginning of its
        body. Raises DeliveryFailed."""
        import httpx

        where = origin(url)
        headers = {
            "user-agent": f"forewarn/{__version__}",
            "accept-encoding": "identity",
            **headers,
        }
        if self._options.authorization_file:
            value = secret(self._options.authorization_file, "authorization_file")
            headers["authorization"] = value
        try:
            async with self._client.stream(
                method, url, content=body, headers=headers, follow_redirects=False
            ) as response:
                status, retry_after = response.status_code, response.headers.get("retry-after", "")
                content = await _beginning(response)
        except httpx.HTTPError as error:
            raise DeliveryFailed(f"{where} cannot be reached: {reason(error)}") from None
        except (httpx.InvalidURL, ValueError) as error:  # a header that cannot be sent
            raise DeliveryFailed(f"{where}: {type(error).__name__}", refused=True) from None
        finally:
            self._client.cookies.clear()  # every message is like the first
        if not 200 <= status < 300:
            refused = status < 500 and status not in _TRANSIENT
            raise DeliveryFailed(
                f"{where} answered {status}{_meaning(status)}",
                refused=refused,
                gone=status == 410,
                wait=_seconds(retry_after),
            )
        return response.headers, content

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _url(self) -> str:
        options = self._options
        if not options.url_file:
            return options.url
        url = secret(options.url_file, "url_file")
        if problem := url_problem(url):
            raise DeliveryFailed(f"url_file {options.url_file}: its content {problem}")
        return url

    def _keys(self) -> list[bytes]:
        """Return the keys of the secret file: the first is current, others are being replaced."""
        path = self._options.secret_file
        keys = []
        for line in secret(path, "secret_file").split():
            try:
                key = base64.b64decode(line.removeprefix(SECRET_PREFIX), validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if not line.startswith(SECRET_PREFIX) or not LEAST_KEY <= len(key) <= MAX_KEY:
                raise DeliveryFailed(
                    f"secret_file {path} must contain {SECRET_PREFIX} and {LEAST_KEY} to {MAX_KEY}"
                    f" random bytes in base64; create it with echo {SECRET_PREFIX}$(openssl rand"
                    " -base64 32)"
                )
            keys.append(key)
        return keys

    def _signature(self, id: str, body: bytes) -> dict[str, str]:
        if not self._options.secret_file:
            return {}
        timestamp = str(guard.wall_us() // 1_000_000)
        signed = f"{id}.{timestamp}.".encode() + body
        digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in self._keys()]
        return {
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(
                f"v1,{base64.b64encode(digest).decode()}" for digest in digests
            ),
        }

    def _render(self, message: Message) -> tuple[bytes, dict[str, str]]:
        headers = {"content-type": "application/json"}
        data = self._data(message)
        if not isinstance(self._options, CloudEvents):
            body = {"type": message.what, "timestamp": _time(message.at), "data": data}
            return _encode(body), headers
        attributes = {
            "specversion": "1.0",
            "id": message.id,
            "source": self._options.source,
            "type": TYPE_PREFIX + message.what,
            "time": _time(message.at),
            "severity": message.severity,
        }
        if subject := _subject(message):
            attributes["subject"] = subject
        if self._options.mode == "binary":
            # As the HTTP binding prescribes: printable ASCII, everything else in percent-encoding.
            encoded = {f"ce-{k}": quote(v, safe=_UNENCODED) for k, v in attributes.items()}
            return _encode(data), headers | encoded
        headers["content-type"] = "application/cloudevents+json"
        return _encode(attributes | {"datacontenttype": "application/json", "data": data}), headers

    def _data(self, message: Message) -> dict[str, Any]:
        data: dict[str, Any] = {
            "severity": message.severity,
            "subject": text.subject(message, self._zone),
            "text": text.body(message, self._zone),
        }
        if message.skipped is not None:
            data["skipped"] = message.skipped
        if message.notifications:  # one: only messages for people are combined
            data["commit"] = message.notifications[0].commit
        return data


async def _beginning(response: Any) -> bytes:
    """Return the beginning of a body. The status is the answer, even if the body never ends."""
    import httpx

    content = b""
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(MAX_READING):
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) >= MAX_ANSWER:
                    break
    return content


_UNENCODED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def _subject(message: Message) -> str:
    """Return what a message is about, if that is one thing: an event, a rollout, a host…"""
    changes = [change for note in message.notifications for change in note.commit.changes]
    subjects = {
        change.event
        or (change.cause if change.what.startswith("rollout-") else "")
        or change.host
        or change.group
        for change in changes
    }
    return subjects.pop() if len(subjects) == 1 else ""


def _time(time: datetime) -> str:
    return msgspec.to_builtins(time)  # type: ignore[no-any-return]


def _seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After; 0 for a date, which is by another clock."""
    valid = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 9
    return min(float(retry_after), MAX_WAIT) if valid else 0.0


def _meaning(status: int) -> str:
    if 300 <= status < 400:
        return ": redirects are not followed; set url to the new address"
    if status in (401, 403):
        return ": it does not accept the credentials or the signature"
    if status == 410:
        return ": it wants no more messages; remove the table, or correct its URL"
    return ""
