"""`convert`: builtin values as a type of msgspec, from any thread. `decode_json`: JSON of any kind.

msgspec prepares a type when it is first used, and in 0.22 a second thread that uses the type in the
meantime crashes the process. Services inside a test have threads of their own, so this can happen.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_json = msgspec.json.Decoder(float_hook=float)

_prepared: set[Any] = set()
_preparing = threading.Lock()


def convert(value: Any, type: type[T], *, from_attributes: bool = False) -> T:
    """Convert a value as `msgspec.convert` does. Any number of threads may call this at once.

    Raises:
        msgspec.ValidationError: if the value is not of this type.
    """
    if type not in _prepared:
        with _preparing:
            msgspec.json.Decoder(type)
            _prepared.add(type)
    return msgspec.convert(value, type, from_attributes=from_attributes)


def decode_json(content: bytes) -> Any:
    """Decode JSON that may come from anybody, as builtin values. msgspec alone would take up to a
    hundred times as long for numbers with a large exponent. Raises what it raises."""
    return _json.decode(content)
