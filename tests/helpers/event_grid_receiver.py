"""A webhook that receives Event Grid's events, as published receivers do it: it validates the
subscription first, in either schema."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

from helpers.hook_receivers import LocalServer
from helpers.waiting import LIMIT

ORIGIN = "eventgrid.azure.net"


class EventGridReceiver(LocalServer):
    """`validates` can be set to false, and `statuses` to what it answers to events first."""

    def __init__(self) -> None:
        self.events: list[tuple[dict[str, Any], Any]] = []  # each with its headers
        self.validations = 0
        self.validates = True
        self.statuses: list[int] = []
        self.came = threading.Condition()
        self.answering = threading.Event()
        self.answering.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_OPTIONS(self) -> None:
                receiver.validations += 1
                asked = self.headers["WebHook-Request-Origin"]
                allowed = {"WebHook-Allowed-Origin": asked} if receiver.validates else {}
                self._answer(200, b"", **allowed)

            def do_POST(self) -> None:
                found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers["aeg-event-type"] == "SubscriptionValidation":
                    receiver.validations += 1
                    code = found[0]["data"]["validationCode"] if receiver.validates else "other"
                    self._answer(200, json.dumps({"validationResponse": code}).encode())
                    return
                assert self.headers["aeg-event-type"] == "Notification"
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                with receiver.came:
                    [event] = found if isinstance(found, list) else [found]
                    receiver.events.append((event, self.headers))
                    receiver.came.notify_all()
                receiver.answering.wait(LIMIT)
                self._answer(status, b"")

            def _answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                if status >= 300:  # whatever goes wrong there is of no use here
                    self.send_header("Location", "/elsewhere")
                    self.send_header("Retry-After", "9" * 20)
                    self.send_header("Set-Cookie", f"c{len(receiver.events)}={'x' * 1_000}")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Who was killed does not wait for an answer."""

        super().__init__(Server(("127.0.0.1", 0), Handler))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/events?code=s3cr3t"

    def statuses_of(self, event: str) -> list[str]:
        found = [e["data"]["resourceInfo"]["properties"] for e, _ in self.events]
        return [p["EventStatus"] for p in found if p["EventId"] == event]

    def wait(self, count: int) -> list[tuple[dict[str, Any], Any]]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.events) >= count, LIMIT), self.events
            return list(self.events)
