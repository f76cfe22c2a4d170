"""Bodies of requests as JSON, of which nothing is converted that was not asked for: a body of some
thousand large numbers would otherwise take a hundred times as long as one without."""

from __future__ import annotations

import msgspec

_BYTE_ORDER_MARK = "\ufeff"

_any = msgspec.json.Decoder(msgspec.Raw)


class NotJson(Exception):
    """The body is not valid JSON."""


def read_json(body: bytes) -> str:
    """Return a body that is JSON, as text. Raises NotJson."""
    try:
        text = body.decode().removeprefix(_BYTE_ORDER_MARK)
        _any.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise NotJson from error
    return text
