"""Loggers of structlog that import it only when the first line is written.

Importing structlog takes a third of the time that importing the service takes, and inside a test
hardly anything is logged. The format of lines is set in `service/telemetry/log.py`.
"""

from __future__ import annotations

from typing import Any


class _LazyLogger:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(self._name), method)

    def write(self, level: str, message: str, /, **fields: Any) -> None:
        """Write a line at a level that is given by name, such as "warning"."""
        getattr(self, level)(message, **fields)


def logger(name: str) -> Any:
    """Return a logger with the methods of structlog's, and `write`."""
    return _LazyLogger(name)
