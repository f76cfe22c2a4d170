#!/usr/bin/env python3
"""The web service: every answer takes a moment, and says which machine gave it, since which boot.

It knows nothing of maintenance. When its machine dies, whatever it was answering dies with it.
"""

import os
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWER_SECONDS = 0.1
BOOT = uuid.uuid4().hex[:8]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != "/healthy":
            time.sleep(ANSWER_SECONDS)
        body = f"{os.environ['MACHINE']} {BOOT}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # whoever asked has hung up


host, port = os.environ["ADDRESS"].split(":")
server = Server((host, int(port)), Handler)
Path("listening").touch()
server.serve_forever()
