"""The log that every floor writes to: structlog's, imported when something is first said.

It is a third of what importing the service costs, and inside a test hardly anything is ever said.
How lines look is `service/telemetry/log.py`.
"""

from __future__ import annotations

from typing import Any


class _Log:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, verb: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(self._name), verb)

    def write(self, level: str, message: str, /, **fields: Any) -> None:
        """Write a line at a level that is given by name, such as "warning"."""
        getattr(self, level)(message, **fields)


def logger(name: str) -> Any:
    return _Log(name)
