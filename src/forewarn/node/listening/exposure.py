"""What must be so before operators are listened to from beyond this machine; and what is told while
they are: whether anybody is left who could make a token.

A service that has a closed door already is not kept from starting by it: its guests need it.
"""

from __future__ import annotations

import socket

from forewarn.core.time import DAY, Duration
from forewarn.node.config import Config
from forewarn.node.listening.sockets import CannotListen, local
from forewarn.service.access.tokens import Tokens
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import in_words

ADMIN_ENDS_SOON: Duration = 14 * DAY  # before the last token of an admin expires, it is warned of
ADMIN_EVERY = 86_400.0  # seconds of guard time between two looks

log = logger("forewarn")


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
    if not tokens.needed:
        raise CannotListen(
            f"control on {host} can be reached from beyond this machine, and no token has ever been"
            f" created: create one first ({_how(config)})"
        )


def tell_of_admins(config: Config, tokens: Tokens) -> None:
    """Is there somebody who can make tokens, and will there be?"""
    if not tokens.needed:
        return
    if not tokens.administered:
        log.error(
            "there is no valid token of an admin: nobody can make tokens or copies",
            run=f"while the service is stopped: {_how(config)}",
        )
    elif (left := tokens.administered_for) is not None and left < ADMIN_ENDS_SOON:
        log.warning(
            "the last token of an admin expires soon: make another",
            left=in_words(left),
            run="forewarn token create NAME --role admin",
        )


async def keep_telling_of_admins(config: Config, tokens: Tokens) -> None:
    while True:
        tell_of_admins(config, tokens)
        await guard.pause(ADMIN_EVERY)


def _how(config: Config) -> str:
    return f"forewarn token create NAME --role admin --state {config.state or 'FILE'}"
