"""Descriptions of fields that are strings below them, as editors show them of public types."""

from __future__ import annotations

import ast
import inspect
import textwrap


def field_docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class, and of the classes that it extends. They are
    read from the source; where there is none, there are none."""
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docstrings[name] = " ".join(text.split())
    return docstrings
