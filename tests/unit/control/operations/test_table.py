"""The table of operations, and the handlers that are bound to it."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

import msgspec
import pytest
from litestar import Response
from litestar.params import PathParameter
from litestar.response import Stream

from forewarn.control.app import handlers
from forewarn.control.openapi.document import operations
from forewarn.control.operations.table import OPERATIONS

BOUND = operations(handlers())


def _plain(annotation: Any) -> Any:
    """A type without None and without what it is annotated with."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
    return annotation


@pytest.mark.parametrize("call", list(BOUND))
def test_a_handler_takes_and_returns_what_its_operation_declares(call: str) -> None:
    handler, operation = BOUND[call]
    signature = handler.parsed_fn_signature
    body = signature.parameters.get("data")
    assert (None if body is None else _plain(body.annotation)) == operation.takes
    given = signature.parameters.get("given")
    assert (None if given is None else given.annotation) == operation.query
    names = [
        name
        for name, field in signature.parameters.items()
        if isinstance(field.kwarg_definition, PathParameter)
    ]
    assert names == re.findall(r"\{(\w+)\}", operation.path)
    returned = signature.return_type.annotation
    container = typing.get_origin(returned) or returned
    if not (isinstance(container, type) and issubclass(container, Response | Stream)):
        assert returned == operation.returns  # otherwise it has encoded that itself


def test_every_operation_is_bound_to_a_handler() -> None:
    assert len(BOUND) == len(OPERATIONS)


def test_an_example_is_a_body_that_its_operation_takes() -> None:
    with_types = [o for o in OPERATIONS.values() if o.takes is not None and o.example is not None]
    assert len(with_types) > 20
    for operation in with_types:
        msgspec.convert(operation.example, operation.takes)
