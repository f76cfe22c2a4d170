"""`make conformance`: a real service passes at its address, and a wrong endpoint does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers.forked_cli import FOREWARN, Forked
from helpers.paths import ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

NEEDS_CONTROL = "left out: these tests need control over the platform"


def conformance(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What the Makefile's target runs."""
    argv = [sys.executable, "-m", "pytest", "tests/wire", "--endpoint", url, *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)


def test_a_service_on_loopback_passes(tmp_path: Path) -> None:
    argv = [*FOREWARN, "dev", "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    dev = Running(Forked(argv, stdout=pipe, stderr=pipe, text=True, env=env), argv)
    try:
        url = json.loads(dev.line().removeprefix("ready "))["metadata"]
        done = conformance(url)
    finally:
        dev.stop()
    assert done.returncode == 0, done.stdout
    left_out = done.stdout.partition(NEEDS_CONTROL)[2]
    assert " passed" in left_out.splitlines()[-1]
    assert "tests/wire/test_approval.py::test_an_approval_cannot_be_withdrawn" in left_out
    assert "tests/wire/test_requests.py::test_any_other_path_is_not_found" not in left_out


class Wrong(BaseHTTPRequestHandler):
    """An endpoint that answers every request with the same empty document."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"DocumentIncarnation": "1", "Events": []}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def wrong_endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Wrong) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_an_endpoint_that_takes_everything_fails(wrong_endpoint: str) -> None:
    done = conformance(wrong_endpoint, "-k", "test_requests or test_versions")
    assert done.returncode == 1, done.stdout
    for broken in (
        "test_requests.py::test_any_other_path_is_not_found",
        "test_requests.py::test_the_version_is_mandatory_and_must_be_known",
        "test_requests.py::test_a_forwarded_request_is_refused",
        "test_versions.py::test_every_version_has_its_own_fields_types_and_times",
    ):
        assert f"FAILED tests/wire/{broken}" in done.stdout


def test_conformance_without_an_endpoint_sends_nothing() -> None:
    make = ["make", "--old-file", ".venv/.ready", "conformance"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2
    assert "ENDPOINT=http://HOST:PORT" in done.stderr


def test_an_invalid_endpoint_is_refused() -> None:
    done = conformance("https://127.0.0.1")
    assert done.returncode == 4
    assert "expected http://HOST or http://HOST:PORT" in done.stdout + done.stderr
