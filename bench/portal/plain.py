"""The peer: the rows of the overview as a plain table, in one document without scripts."""

from __future__ import annotations

import gzip
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

HEAD = "<!doctype html><meta charset=utf-8><title>fleet</title><table><tbody>"


def document(overview: Any) -> bytes:
    rows = []
    for row in overview["rows"]:
        cells = [
            ", ".join(f"{name} {number}" for name, number in domain.items())
            for domain in row.get("domains", ())
        ]
        rows.append(f"<tr><th>{row['name']}" + "".join(f"<td>{cell}" for cell in cells))
    return gzip.compress((HEAD + "\n".join(rows) + "</table>").encode())


@contextmanager
def served(overview_url: str) -> Iterator[str]:
    """Serve the table, in a thread: its URL."""
    with urllib.request.urlopen(overview_url) as answer:
        body = document(msgspec.json.decode(answer.read()))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
