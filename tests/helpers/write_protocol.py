"""Write down what the messages between control, nodes and driver processes look like in the next
version, as docs/contribute/releasing.md describes:
`PYTHONPATH=tests python -m helpers.write_protocol 0.2.0`.

Each message is there twice, with every field and with those alone that it must have, as it is sent:
msgpack, in hexadecimal digits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import inspect

from forewarn.drivers.hosts.messages import FromDriver, ToDriver
from forewarn.metadata.publishing.messages import ToControl, ToNode
from helpers.paths import TESTS
from helpers.released import refuse_released

PROTOCOLS = TESTS / "unit" / "metadata" / "publishing" / "protocols"
DIRECTIONS: dict[str, Any] = {
    "control": ToControl,
    "node": ToNode,
    "control of drivers": FromDriver,
    "driver": ToDriver,
}
GUID = "0A1B2C3D-4E5F-4061-8788-99AABBCCDDEE"


def sample(type: inspect.Type, *, whole: bool) -> object:
    """Return a value of a type, as it is sent; if not `whole`, without what may be left out."""
    match type:
        case inspect.StructType():
            fields = [field for field in type.fields if whole or field.required]
            if type.array_like:  # what is left out is at the end
                return [sample(field.type, whole=whole) for field in fields]
            values = {field.encode_name: sample(field.type, whole=whole) for field in fields}
            return {type.tag_field: type.tag, **values} if type.tag_field else values
        case inspect.UnionType():
            types = [t for t in type.types if not isinstance(t, inspect.NoneType)]
            return sample(types[0], whole=whole) if whole or len(types) == len(type.types) else None
        case inspect.TupleType():
            return [sample(item, whole=whole) for item in type.item_types]
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType():
            return [sample(type.item_type, whole=whole)] if whole or type.min_length else []
        case inspect.FrozenSetType():
            return [sample(type.item_type, whole=whole)] if whole else []
        case inspect.DictType():
            if not whole:
                return {}
            key, value = sample(type.key_type, whole=True), sample(type.value_type, whole=True)
            return {key: value}
        case inspect.EnumType():
            return list(type.cls)[-1 if whole else 0].value
        case inspect.LiteralType():
            return type.values[0]
        case inspect.StrType():
            return GUID if type.pattern else "name"
        case inspect.IntType():
            return (type.ge or 0) + whole
        case inspect.FloatType():
            return 1.5
        case inspect.BoolType():
            return whole
        case inspect.BytesType():
            return b"bytes"
        case inspect.Metadata():
            return sample(type.type, whole=whole)
        case inspect.AnyType() | inspect.NoneType():
            return None
    raise AssertionError(f"no sample for {type}")


def lines() -> Iterator[str]:
    for to, messages in DIRECTIONS.items():
        for message in get_args(messages):
            described = inspect.type_info(message)
            for whole in (True, False):
                sent = msgspec.msgpack.encode(sample(described, whole=whole))
                msgspec.msgpack.decode(sent, type=message)
                yield json.dumps({"to": to, "kind": message.__name__, "sent": sent.hex()})


def main(version: str) -> None:
    file = PROTOCOLS / f"{version}.jsonl"
    refuse_released(file, "pass the number of the next version")
    file.write_text("".join(f"{line}\n" for line in lines()))


if __name__ == "__main__":
    main(*sys.argv[1:])
