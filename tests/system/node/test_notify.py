"""Notifications of the real process: it is killed in the middle of a message, and reloaded."""

from __future__ import annotations

import http.server
import json
import signal
import socketserver
import threading
from pathlib import Path
from typing import Any

from helpers.hook_receivers import LocalServer, Received
from helpers.notifying_service import SECRET, secret_file, verified
from helpers.serve_process import running_service, write_settings
from helpers.waiting import LIMIT, until

TABLE = """
[[notify]]
name = "ops"
kinds = ["raised"]
webhook = {{ url = "http://127.0.0.1:{port}/{path}", secret_file = "secret" }}
"""


class Receiver(LocalServer):
    """Answers a request when it is told to."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.came = threading.Condition()
        self.answering = threading.Event()
        self.answering.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.came:
                    receiver.requests.append(Received("POST", self.path, self.headers, body))
                    receiver.came.notify_all()
                receiver.answering.wait(LIMIT)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Who was killed does not wait for an answer."""

        server: socketserver.TCPServer = Server(("127.0.0.1", 0), Handler)
        super().__init__(server)

    def wait(self, count: int) -> list[Received]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, LIMIT)
            return list(self.requests)


def ids(requests: list[Received]) -> list[str]:
    return [request.headers["webhook-id"] for request in requests]


def test_a_service_that_is_killed_while_it_sends_loses_nothing_and_repeats_the_id(
    tmp_path: Path,
) -> None:
    secret_file(tmp_path)
    event = {"type": "Reboot", "machines": ["web-0"]}
    with Receiver() as receiver:
        settings = write_settings(tmp_path, TABLE.format(port=receiver.port, path="one"))
        with running_service(tmp_path, settings) as service:
            service.post("/v1/events", event)
            receiver.wait(1)
            receiver.answering.clear()  # the next one is received, and not answered
            service.post("/v1/events", {**event, "type": "Freeze", "machines": ["web-1"]})
            receiver.wait(2)
            service.post("/v1/events", {**event, "machines": ["web-1"]})
            service.running.process.send_signal(signal.SIGKILL)
            service.running.process.wait(LIMIT)
        receiver.answering.set()
        with running_service(tmp_path, settings) as service:
            requests = receiver.wait(4)
            first, second, again, third = ids(requests)
            assert again == second
            assert len({first, second, third}) == 3
            seen = [verified(request)["data"]["commit"]["events"][0] for request in requests]
            assert [found["machines"] for found in seen] == [["web-0"]] + [["web-1"]] * 3

            sent = service.post("/v1/notify/ops/test")
            assert (sent["delivered"], sent["where"]) == (True, f"http://127.0.0.1:{receiver.port}")

            settings.write_text(settings.read_text().replace("/one", "/two"))
            service.running.process.send_signal(signal.SIGHUP)
            until(lambda: '"reloaded"' in service.log)
            service.post("/v1/events", {**event, "type": "Freeze"})
            assert receiver.wait(6)[5].path == "/two"
            (state,) = service.get("/v1/notify")
            assert (state["name"], state["state"]) == ("ops", "ok")
            assert SECRET not in json.dumps(state) + service.log
            assert "/two" not in service.log
