"""The one place where everything is wired: `async with Node(config) as node`.

Imported when asked for: the supervisor lives here too, and needs next to nothing of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.config import Address, Config
    from forewarn.node.listening.sockets import CannotListen
    from forewarn.node.node import Node

__all__ = ["Address", "CannotListen", "Config", "Node"]

_ROOMS = {
    "Address": "config",
    "CannotListen": "listening.sockets",
    "Config": "config",
    "Node": "node",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
