"""The errors that a client raises. Each message says what was wrong and what to do."""

from __future__ import annotations


class ClientError(Exception):
    """The base class of all errors of a client."""


class InvalidEndpointError(ClientError, ValueError):
    """The given address is not the address of an endpoint."""


class EndpointNotFoundError(ClientError):
    """No endpoint was found. The message lists what was tried, and the likely cause."""


class EndpointUnavailableError(ClientError):
    """The endpoint is known, but did not give a valid answer within the timeout."""


class ApprovalRefusedError(ClientError):
    """The service refused an approval: it does not know the event, or never listed it here."""


class ClientClosedError(ClientError):
    """The client was closed, by this thread or another."""
