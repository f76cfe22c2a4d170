"""The one place where everything is wired: `async with Node(config) as node`."""

from forewarn.node.config import Address, Config
from forewarn.node.node import Node
from forewarn.node.sockets import CannotListen

__all__ = ["Address", "CannotListen", "Config", "Node"]
