"""A running service, wired together: `async with Node(config) as node`.

Names are imported when they are used: commands that run no service need few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.config import Address, Config
    from forewarn.node.listening.sockets import CannotListen
    from forewarn.node.node import Node

__all__ = ["Address", "CannotListen", "Config", "Node"]

_EXPORTS = {
    "Address": "config",
    "CannotListen": "listening.sockets",
    "Config": "config",
    "Node": "node",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
