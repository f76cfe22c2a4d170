"""Protects APIs for operators that can be reached from other machines: refuses to open one without
TLS or without any token, and reports while the service runs if no admin has a valid token any more.

A service whose tokens have all expired starts nevertheless, because its guests need it.
"""

from __future__ import annotations

import socket

from forewarn.core.time import DAY, Duration
from forewarn.node.config import Config
from forewarn.node.listening.sockets import CannotListen, local
from forewarn.service.access.tokens import Tokens
from forewarn.store.engines import shown
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import in_words

ADMIN_EXPIRES_SOON: Duration = 14 * DAY  # before the last admin token expires, it is reported
ADMIN_CHECK_EVERY = 86_400.0  # seconds of guard time between two checks

log = logger("forewarn")


def check_exposure(
    listener: socket.socket, config: Config, tokens: Tokens, *, setting: str = "control"
) -> None:
    """Raise CannotListen if the control API, or that of Azure Resource Manager (`arm`), must not
    listen on the address of this socket."""
    if listener.family == getattr(socket, "AF_UNIX", None):
        return
    host = str(listener.getsockname()[0])
    if local(host):
        return
    if setting == "control" and config.tls is None and not config.allow_plain_control:
        raise CannotListen(
            f"control on {host} can be reached from other machines, and tokens would be sent"
            " in the clear: set tls_certificate and tls_key, or allow_plain_control = true if"
            " something else protects the connection"
        )
    if not tokens.needed:
        raise CannotListen(
            f"{setting} on {host} can be reached from other machines, and no token has ever been"
            f" created: create one first ({_token_command(config)})"
        )


def check_admin_tokens(config: Config, tokens: Tokens) -> None:
    """Log an error or a warning if no admin has a valid token, or soon none will."""
    if not tokens.needed:
        return
    if not tokens.administered:
        log.error(
            "there is no valid admin token: nobody can create tokens or backups",
            run=f"while the service is stopped: {_token_command(config)}",
        )
    elif (left := tokens.administered_for) is not None and left < ADMIN_EXPIRES_SOON:
        log.warning(
            "the last admin token expires soon: create another",
            left=in_words(left),
            run="forewarn token create NAME --role admin",
        )


async def keep_checking_admin_tokens(config: Config, tokens: Tokens) -> None:
    while True:
        check_admin_tokens(config, tokens)
        await guard.pause(ADMIN_CHECK_EVERY)


def _token_command(config: Config) -> str:
    state = "FILE" if config.state is None else shown(config.state)
    return f"forewarn token create NAME --role admin --state {state}"
