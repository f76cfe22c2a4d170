"""What must be so before operators are listened to from beyond this machine."""

from __future__ import annotations

import socket

from forewarn.node.config import Config
from forewarn.node.sockets import CannotListen, local
from forewarn.service.tokens import Tokens


def refuse_exposed(listener: socket.socket, config: Config, tokens: Tokens) -> None:
    """By the address that is listened on, whoever has opened it. Raises CannotListen."""
    if listener.family == socket.AF_UNIX:
        return
    host = str(listener.getsockname()[0])
    if local(host):
        return
    if config.tls is None and not config.allow_plain_control:
        raise CannotListen(
            f"control on {host} can be reached from beyond this machine, and tokens would be sent"
            " in the clear: set tls_certificate and tls_key, or allow_plain_control = true if"
            " something else protects the way there"
        )
    if not tokens.administered:
        state = config.state or "FILE"
        raise CannotListen(
            f"control on {host} can be reached from beyond this machine, and there is no valid"
            " token of an admin: create one first"
            f" (forewarn token create NAME --role admin --state {state})"
        )
