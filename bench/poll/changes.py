"""Changes documents at a steady rate, as an operator would: over the control API.

A process of its own. Every call changes one document: an event is announced for the next
machine, or the oldest one is cancelled. What it really reached, it tells when it is stopped
by the end of its standard input.

python -m bench.poll.changes PORT RATE MACHINES
"""

from __future__ import annotations

import http.client
import itertools
import sys
import threading
import time  # noqa: TID251 - a measurement
from typing import Any

import msgspec

from bench.poll.fleet import Fleet

WORKERS = 4


class ChangeTimes(msgspec.Struct, frozen=True):
    changes: int
    seconds: float
    wanted: float  # a second
    slowest: float  # milliseconds
    median: float

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


class Refused(Exception):
    """The control API did not do it; the thread ends, and so the rate is missed."""


class Changer:
    """One of several, so that one slow commit does not spoil the rate."""

    def __init__(self, port: int, names: list[str], rate: float, phase: float) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._names = itertools.cycle(names)
        self._rate = rate
        self._phase = phase
        self.took: list[float] = []

    def run(self, stop: threading.Event) -> None:
        began = time.perf_counter() + self._phase
        announced = ""
        for n in itertools.count():
            if stop.wait(max(0.0, began + n / self._rate - time.perf_counter())):
                return
            asked = time.perf_counter()
            if announced:
                self._call(f"/v1/events/{announced}/cancel", None)
                announced = ""
            else:
                body = {"type": "Freeze", "machines": [next(self._names)]}
                announced = str(self._call("/v1/events", body)["id"])
            self.took.append((time.perf_counter() - asked) * 1e3)

    def _call(self, path: str, body: object) -> dict[str, Any]:
        data = None if body is None else msgspec.json.encode(body)
        self._connection.request("POST", path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise Refused(f"a change was answered {answer.status} {text[:300]!r}")
        found: dict[str, Any] = msgspec.json.decode(text)
        return found


def main(port: str, rate: str, machines: str) -> None:
    wanted, names = float(rate), Fleet(int(machines)).names()
    changers = [
        Changer(int(port), names[n::WORKERS], wanted / WORKERS, n / wanted) for n in range(WORKERS)
    ]
    stop = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in changers]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    seconds = time.perf_counter() - began
    for thread in threads:
        thread.join(5)
    took = sorted(one for changer in changers for one in changer.took)
    times = ChangeTimes(len(took), seconds, wanted, took[-1], took[len(took) // 2])
    sys.stdout.write(msgspec.json.encode(times).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
