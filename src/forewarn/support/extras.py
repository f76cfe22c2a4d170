"""The optional extras of the package: which packages each stands for, and what to install if they
are missing.

The base install is what runs inside a machine and at an operator's terminal. Everything that needs
more calls `need` before it imports anything, so that a missing package is reported as one line
with the command that installs it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, TypeAlias

Extra: TypeAlias = Literal["test", "server", "node", "driver", "postgres"]

# The modules whose absence shows that an extra is not installed, by extra.
MODULES: dict[Extra, tuple[str, ...]] = {
    "test": ("httptools", "structlog", "uvicorn", "yaml"),
    "server": (
        "alembic",
        "cryptography",
        "httptools",
        "httpx",
        "litestar",
        "sqlalchemy",
        "structlog",
        "uvicorn",
        "yaml",
    ),
    "node": ("cryptography", "httptools", "structlog", "uvicorn", "yaml"),
    "driver": ("structlog", "yaml"),
    "postgres": ("psycopg",),
}


class MissingExtraError(ImportError):
    """Packages of an optional extra are needed and not installed."""


def installed(extra: Extra) -> bool:
    """Return whether the packages of an extra are installed."""
    return all(map(find_spec, MODULES[extra]))


def need(extra: Extra, what: str) -> None:
    """Raise MissingExtraError if packages of an extra, which `what` needs, are not installed."""
    if not installed(extra):
        raise MissingExtraError(missing(extra, what))


def missing(extra: Extra, what: str) -> str:
    """Return what to tell somebody who needs the packages of an extra for `what`."""
    if extra == "test":
        return f"{what} needs the packages of the test kit: pip install 'forewarn[test]'"
    if extra == "node":
        return f"{what} needs the packages of a node: pip install 'forewarn[node]'"
    if extra == "driver":
        return f"{what} needs the packages of a driver process: pip install 'forewarn[driver]'"
    if extra == "postgres":
        return f"{what} needs its driver: pip install 'forewarn[server,postgres]'"
    return f"{what} needs the server packages: pip install 'forewarn[server]'"
