"""A server that stops: connections that are being closed already."""

from __future__ import annotations

import gc
import socket
import ssl
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forewarn.node.listening.server import EmbeddedServer
from forewarn.testing import Service
from helpers.waiting import LIMIT


def test_a_tls_connection_that_was_idle_for_too_long_is_no_error_at_the_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The server has closed it, and the client has not answered yet."""
    with Service(arm=True) as service:
        address = urlsplit(service.arm.url)
        context = ssl.create_default_context(cafile=service.arm.ca)
        raw = socket.create_connection((address.hostname, address.port), LIMIT)
        with context.wrap_socket(raw, server_hostname=address.hostname) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            assert client.recv(1)
            servers = [item for item in gc.get_objects() if isinstance(item, EmbeddedServer)]
            connections = [item for server in servers for item in server.server_state.connections]
            for connection in connections:
                assert isinstance(connection, HttpToolsProtocol)
                service._session.call(connection.timeout_keep_alive_handler)
            service.__exit__(None, None, None)
    assert "Error" not in capfd.readouterr().err
