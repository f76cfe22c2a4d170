"""What is measured, and the peers beside it: servers that know nothing, started in process as well.

Each is a function that starts one, says that it is ready, and stops it again.
"""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bench.platform.meter import cpu, stopwatch

Ready = Callable[[], None]


def service(ready: Ready) -> None:
    from forewarn.testing import Service

    with Service():
        ready()


def service_on_sockets(ready: Ready) -> None:
    from forewarn.testing import Service

    with Service(sockets=True):
        ready()


def service_with_a_fleet(ready: Ready) -> None:
    from forewarn.testing import Service

    with Service() as made:
        made.scale_set("web", 3)
        ready()


def service_with_a_story(ready: Ready) -> None:
    """A whole test: a fleet, a restart, fifteen minutes of notice, its start and its end."""
    from forewarn.testing import Service

    with Service() as made:
        web = made.scale_set("web", 3)
        with made.during(web[0].restart()):
            web[1].document()
        ready()


def library_server(ready: Ready) -> None:
    """`http.server` of the standard library, in a thread."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.001})
        thread.start()
        ready()
        server.shutdown()
        thread.join()


def uvicorn_server(ready: Ready) -> None:
    """uvicorn with an application of three lines, in a thread and a loop of its own."""
    import uvicorn

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    there = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            there.set()

    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", loop="asyncio")
    server = Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    there.wait()
    ready()
    server.should_exit = True
    thread.join()


STARTED: Mapping[str, Callable[[Ready], None]] = {
    "Service()": service,
    "Service(sockets=True)": service_on_sockets,
    "Service() with a scale set": service_with_a_fleet,
    "Service() and a whole restart": service_with_a_story,
    "http.server": library_server,
    "uvicorn": uvicorn_server,
}

IMPORTED: Mapping[str, str] = {
    "from forewarn.testing import Service": "from forewarn.testing import Service",
    "import forewarn.testing.plugin": "import forewarn.testing.plugin",
    "import http.server": "import http.server",
    "import uvicorn": "import uvicorn; uvicorn.Server",
}

_TIMED = """
import time
begun = time.process_time()
{}
print(time.process_time() - begun)
"""


class Times(msgspec.Struct, frozen=True):
    """Milliseconds until it was ready, until it had stopped again, and of processor for both."""

    ready: float
    over: float
    cpu: float


def start(name: str) -> Times:
    begun, spent, ready = stopwatch(), cpu(), 0.0

    def there() -> None:
        nonlocal ready
        ready = stopwatch() - begun

    STARTED[name](there)
    return Times(ready * 1e3, (stopwatch() - begun) * 1e3, (cpu() - spent) * 1e3)


def imported(name: str) -> float:
    """Milliseconds of processor, in a process that has imported nothing yet; but pytest, for the
    plug-in."""
    before = "import pytest\n" if "plugin" in name else ""
    done = subprocess.run(
        [sys.executable, "-c", before + _TIMED.format(IMPORTED[name])],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout) * 1e3
