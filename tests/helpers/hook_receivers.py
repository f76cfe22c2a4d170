"""Servers on loopback that hooks talk to: HTTP, with or without TLS, as origin and as proxy; and
mail. They keep what they were sent, and answer what they are told to."""

from __future__ import annotations

import http.server
import socketserver
import ssl
import threading
from types import TracebackType
from typing import Any, Self

from forewarn.node.config import Tls


class Received:
    def __init__(self, method: str, path: str, headers: Any, body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body


class LocalServer:
    """A server that runs in a thread for as long as it is entered."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        port: int = self._server.socket.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Web(LocalServer):
    """Answers 204, or what `answers` says first: a status and headers."""

    def __init__(self, tls: Tls | None = None) -> None:
        self.received: list[Received] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                web.received.append(Received("POST", self.path, self.headers, body))
                status, headers = web.answers.pop(0) if web.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_CONNECT(self) -> None:
                """As a proxy; whom it is connected to stands behind the same TLS."""
                assert context is not None
                web.received.append(Received("CONNECT", self.path, self.headers, b""))
                self.send_response(200)
                self.end_headers()
                with context.wrap_socket(self.connection, server_side=True) as line:
                    Handler(line, self.client_address, self.server)

            def log_message(self, *words: Any) -> None:
                pass

        super().__init__(_quiet(http.server.ThreadingHTTPServer, Handler))
        self._context = context

    def behind_tls(self) -> Self:
        """Also at the door, and not only behind CONNECT."""
        assert self._context is not None
        self._server.socket = self._context.wrap_socket(self._server.socket, server_side=True)
        return self


class Mail(LocalServer):
    """Takes every letter."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
        mail = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 here")
                while line := self.rfile.readline():
                    verb = line[:4].upper()
                    if verb == b"DATA":
                        self._say("354 go on")
                        mail.letters.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                    self._say("221 bye" if verb == b"QUIT" else "250 good")
                    if verb == b"QUIT":
                        return

            def _say(self, line: str) -> None:
                self.wfile.write(line.encode() + b"\r\n")

        super().__init__(_quiet(socketserver.ThreadingTCPServer, Handler))


def _quiet(server: type[socketserver.TCPServer], handler: Any) -> socketserver.TCPServer:
    """Whoever hangs up in the middle of a handshake is no news."""

    class Quiet(server):  # type: ignore[valid-type, misc]
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    made: socketserver.TCPServer = Quiet(("127.0.0.1", 0), handler)
    return made
