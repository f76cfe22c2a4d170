"""`make bench`: what a poll costs, against a bare server on the same stack.

Both servers run in processes of their own and are asked in turns over one keep-alive connection
each, so that noise falls on both. The figure that counts is CPU per poll.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - a measurement
from pathlib import Path
from typing import Any

ROUNDS, POLLS = 8, 1_000
PATH = "/metadata/scheduledevents?api-version=2020-07-01"
PEER = """
import sys, uvicorn
body = b'{"DocumentIncarnation":1,"Events":[]}'
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"37")]})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="error",
            lifespan="off", access_log=False)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        port = _free_port()
        commands = {
            "forewarn": [
                *(sys.executable, "-m", "forewarn", "dev", "--metadata", "127.0.0.1:0"),
                *("--control", "127.0.0.1:0", "--state", str(Path(scratch) / "state.db")),
            ],
            "bare uvicorn": [sys.executable, "-c", PEER, str(port)],
        }
        servers = {
            name: subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            for name, argv in commands.items()
        }
        try:
            assert servers["forewarn"].stdout is not None
            ready = json.loads(servers["forewarn"].stdout.readline().partition(" ")[2])
            ports = {"forewarn": int(ready["metadata"].rpartition(":")[2]), "bare uvicorn": port}
            _report(_measure(servers, ports))
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()


def _measure(servers: dict[str, Any], ports: dict[str, int]) -> dict[str, tuple[float, float]]:
    connections = {name: _connected(port) for name, port in ports.items()}
    cpu: dict[str, list[float]] = {name: [] for name in servers}
    rate: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, server in servers.items():
            before, began = _cpu(server.pid), time.perf_counter()
            for _ in range(POLLS):
                connections[name].request("GET", PATH, headers={"Metadata": "true"})
                connections[name].getresponse().read()
            rate[name].append(POLLS / (time.perf_counter() - began))
            cpu[name].append((_cpu(server.pid) - before) / POLLS * 1e6)
    for connection in connections.values():
        connection.close()
    return {n: (statistics.median(cpu[n]), statistics.median(rate[n])) for n in servers}


def _report(found: dict[str, tuple[float, float]]) -> None:
    base = found["bare uvicorn"][0]
    sys.stdout.write(f"{'server':<14}{'CPU/poll':>12}{'polls/s':>12}{'ratio':>8}\n")
    for name, (cpu, rate) in found.items():
        sys.stdout.write(f"{name:<14}{cpu:>9.1f} µs{rate:>12.0f}{cpu / base:>8.2f}\n")


def _cpu(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _connected(port: int) -> http.client.HTTPConnection:
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.connect()
            return connection
        except ConnectionRefusedError:
            time.sleep(0.05)


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


if __name__ == "__main__":
    main()
