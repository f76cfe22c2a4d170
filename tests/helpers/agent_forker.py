"""Lives of agents, each a fork of this small process, which has read all there is to read; run as a
program by `forked_agent.py`.

A line on standard input begins one: `{"name": …, "config": …, "kill": 7}`. At the seventh point at
which something is about to become durable, or to happen outside, it kills itself with SIGKILL; then
another life begins, which is not killed, or with `again` at its own seventh point. With `machine`
all that runs for the state dies with it. On standard output, with the name: `pid` for every life,
and `killed` and `status` when there is no more.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.agent import main as agent
from forewarn.agent.config.read import read
from forewarn.agent.running import runners
from forewarn.client.async_client import AsyncClient

INTERVAL = 0.05  # seconds between two looks


class Points:
    def __init__(self, kill: int, machine: Path | None) -> None:
        self.left = kill
        self.machine = machine

    def reached(self) -> None:
        self.left -= 1
        if self.left == 0:
            for pid in [] if self.machine is None else pids_under(self.machine):
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def pids_under(directory: Path) -> list[int]:
    """Runners of a state below this directory, and the commands they run."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes()
            room = (process / "cwd").readlink()
        except OSError:
            continue
        if words and (str(directory).encode() in words or room.is_relative_to(directory)):
            found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


def around(points: Points, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        points.reached()
        result = function(*args, **more)
        points.reached()
        return result

    return wrapped


def before(points: Points, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        points.reached()
        return function(*args, **more)

    return wrapped


def live(order: dict[str, Any], kill: int) -> None:
    points = Points(kill, Path(order["config"]).parent if order.get("machine") else None)
    # Before the first fsync of a file it is written but has no name yet; before the second, of its
    # directory, it has.
    os.fsync = before(points, os.fsync)
    runners.spawn = around(points, runners.spawn)
    asked = AsyncClient.approve

    async def approve(self: AsyncClient, *events: Any, **more: Any) -> None:
        points.reached()
        await asked(self, *events, **more)
        points.reached()

    AsyncClient.approve = approve  # type: ignore[method-assign]
    # One that asks more often; all else is as it is.
    agent.AsyncClient = functools.partial(AsyncClient, interval=INTERVAL)  # type: ignore[assignment, attr-defined]
    path = Path(order["config"])
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= order.get("environment", {})
    asyncio.run(agent.run(read(path), dry_run=order.get("dry", False)))


def one_after_the_other(order: dict[str, Any]) -> None:
    kill, killed = order["kill"], 0
    while True:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                live(order, kill)
                code = 0
            finally:
                os._exit(code)
        say(order["name"], pid=pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != -signal.SIGKILL or not kill:
            break
        killed, kill = killed + 1, kill if order.get("again") else 0
    say(order["name"], killed=killed, status=status)


def say(name: str, **what: Any) -> None:
    os.write(1, (json.dumps({"name": name, **what}) + "\n").encode())


def main() -> None:
    for line in sys.stdin:
        if os.fork() == 0:
            one_after_the_other(json.loads(line))
            os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    main()
