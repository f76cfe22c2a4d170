"""What a client raises. Each says what was wrong and what to do, in a line or two."""

from __future__ import annotations


class ClientError(Exception):
    """All of them."""


class BadEndpoint(ClientError, ValueError):
    """What was named is no address of an endpoint."""


class NoEndpoint(ClientError):
    """No endpoint is found; the message says where was looked, and what may be the cause."""


class Unavailable(ClientError):
    """The endpoint is known, and has not answered as it should for as long as one was patient."""


class NotApproved(ClientError):
    """The service refused: it does not know the event, or has never listed it here."""


class Closed(ClientError):
    """The client was closed, here or by another thread."""
