"""Control's side of connections from hosts that have no certificate yet: they may ask for that of
the authority and, with a token, for their own. One message is answered on each connection."""

from __future__ import annotations

import asyncio

from forewarn.core import Refused
from forewarn.metadata.publishing.messages import (
    MAX_GREETING,
    AskAuthority,
    AuthorityAnswer,
    FromNewHost,
    Issued,
    Join,
    ToNewHost,
    Unwelcome,
)
from forewarn.service.platform.enrollment import Enrollments, JoinRequest
from forewarn.store.port import OutcomeUnknown, StoreFailed
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import BrokenConnection, MessageStream, at_most

ANSWERED_WITHIN = 10.0  # seconds in which a host has to send its message, and read the answer
MAX_ENROLLING = 64  # hosts at a time; others are disconnected, and try again

log = logger("forewarn")


class NewHosts:
    def __init__(self, enrollments: Enrollments) -> None:
        self._enrollments = enrollments
        self._open = 0
        self._refused = LogThrottle()

    async def serve(self, stream: MessageStream[FromNewHost], address: str) -> None:
        self._open += 1
        try:
            if self._open > MAX_ENROLLING:
                return
            async with asyncio.timeout(ANSWERED_WITHIN):
                message = await stream.receive(at_most(MAX_GREETING))
                stream.send(await self._answer(message, address))
                await stream.drain()
        except (BrokenConnection, TimeoutError, StoreFailed, OutcomeUnknown) as error:
            self._log_refusal(address, str(error) or "it sends nothing")  # a host tries again
        finally:
            self._open -= 1
            stream.close()

    async def _answer(self, message: FromNewHost, address: str) -> ToNewHost:
        authority = self._enrollments.authority
        match message:
            case AskAuthority() if authority is not None:
                return AuthorityAnswer(authority.pem)
            case Join(token=token, request=request, host=host, machine=machine, driver=driver):
                issued = await self._enrollments.join(
                    JoinRequest(
                        token=token,
                        request=request,
                        host=host,
                        machine=machine,
                        address=address,
                        driver=driver,
                    )
                )
                if not isinstance(issued, Refused):
                    log.info("a host was enrolled", host=issued.host, peer=address)
                    return Issued(
                        host=issued.host,
                        certificate=issued.certificate,
                        trusted=issued.trusted,
                        control=issued.addresses,
                    )
                self._log_refusal(address, issued.message)
                return Unwelcome(issued.message)
        return Unwelcome("a host without a certificate may only ask for one")

    def _log_refusal(self, address: str, why: str) -> None:
        if self._refused.record():
            log.warning("a host was not enrolled", peer=address, why=why)
