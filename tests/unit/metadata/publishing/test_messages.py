"""Messages of released versions, stored as they were sent, are understood by this one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from forewarn.support.message_stream import UnknownMessage
from helpers.write_protocol import DIRECTIONS, PROTOCOLS, lines

DECODERS: dict[str, Any] = {to: msgspec.msgpack.Decoder(types) for to, types in DIRECTIONS.items()}


def has(now: Any, then: Any) -> bool:
    """Has what was decoded everything that was sent then? It may have more."""
    match then:
        case dict() if isinstance(now, msgspec.Struct):
            known = {field.encode_name: field.name for field in msgspec.structs.fields(now)}
            sent = {key: value for key, value in then.items() if key != "type" or key in known}
            return all(key in known and has(getattr(now, known[key]), sent[key]) for key in sent)
        case dict():
            return set(now) == set(then) and all(has(now[key], then[key]) for key in then)
        case list() if isinstance(now, msgspec.Struct):
            return all(map(has, msgspec.structs.astuple(now), then))
        case list():
            return len(now) == len(then) and all(map(has, now, then))
        case _:
            return bool(now == then or getattr(now, "value", None) == then)


@pytest.mark.parametrize("file", sorted(PROTOCOLS.iterdir()), ids=lambda file: file.stem)
def test_what_a_released_version_sends_is_understood(file: Any) -> None:
    stored = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["to"] for line in stored} == set(DIRECTIONS)
    for line in stored:
        sent = bytes.fromhex(line["sent"])
        message = DECODERS[line["to"]].decode(sent)
        assert isinstance(message, UnknownMessage) == (line["kind"] == "UnknownMessage"), line
        assert has(message, msgspec.msgpack.decode(sent)), line


def test_every_message_of_this_version_is_stored() -> None:
    newest = max(PROTOCOLS.iterdir(), key=lambda f: [int(part) for part in f.stem.split(".")])
    how = "to store them: PYTHONPATH=tests python -m helpers.write_protocol NEXT_VERSION"
    assert newest.read_text().splitlines() == list(lines()), how
