"""The errors that a client raises. Each message says what was wrong and what to do."""

from __future__ import annotations


class ClientError(Exception):
    """The base class of all errors of a client."""


class BadEndpoint(ClientError, ValueError):
    """The given address is not the address of an endpoint."""


class NoEndpoint(ClientError):
    """No endpoint was found. The message lists what was tried, and the likely cause."""


class Unavailable(ClientError):
    """The endpoint is known, but did not give a valid answer within the timeout."""


class NotApproved(ClientError):
    """The service refused an approval: it does not know the event, or never listed it here."""


class ClientClosed(ClientError):
    """The client was closed, by this thread or another."""
