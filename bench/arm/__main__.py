"""`make bench BENCH=arm`: lists 100,000 machines in pages, through Azure Resource Manager's API and
through the control API of the same service, and measures the memory that the first one takes.
Prints, and with --keep writes RESULTS.md."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from forewarn import __version__
from forewarn.node import Config, Node
from forewarn.service.fleet import read
from forewarn.support import guard
from forewarn.testing.kit.inprocess import Response, exchange

HERE = Path(__file__).parent
MACHINES, GROUPS, ROUNDS = 100_000, 100, 15
HOST = "127.0.0.1:8171"
PAGE = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Compute"
PAGE += "/virtualMachines?api-version=2024-07-01"
PEER = "/v1/machines?limit=500"


def resident() -> float:
    """Return how many MB this process has in memory."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def fleet(machines: int) -> str:
    share = machines // GROUPS
    return json.dumps(
        {
            "groups": [
                {
                    "name": f"set{group}",
                    "kind": "availability-set",
                    "machines": [
                        {"name": f"vm-{group}-{number}", "update_domain": number % 5}
                        for number in range(share)
                    ],
                }
                for group in range(GROUPS)
            ]
        }
    )


async def measure(machines: int) -> dict[str, float]:
    async with Node(Config(fleet=read.parse(fleet(machines)))) as node:
        from forewarn.control.app import Api

        context = node._operators_context()
        control = Api(context)
        await ask(control, PEER)
        gc.collect()
        before = resident()
        from forewarn.arm.app import ArmApp

        arm = ArmApp(context)
        firsts, peers = [], []
        for _ in range(ROUNDS):
            firsts.append((await timed(arm, PAGE))[0])
            peers.append((await timed(control, PEER))[0])
        began, pages, target = guard.monotonic(), 0, PAGE
        while target:
            body = (await ask(arm, target)).json()
            assert len(body["value"]) <= 500
            pages += 1
            target = str(body.get("nextLink", "")).partition(HOST)[2]
        return {
            "first": statistics.median(firsts),
            "slowest": max(firsts),
            "peer": statistics.median(peers),
            "pages": pages,
            "all": guard.monotonic() - began,
            "memory": resident() - before,
        }


async def timed(app: Any, target: str) -> tuple[float, Response]:
    began = guard.monotonic()
    answer = await ask(app, target)
    return guard.monotonic() - began, answer


async def ask(app: Any, target: str) -> Response:
    headers = {"Host": HOST, "Authorization": "Bearer any"}
    answer = await exchange(app, HOST, "GET", target, headers)
    assert answer.status == 200, answer
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.arm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the machines")
    parser.add_argument("--keep", action="store_true", help="write RESULTS.md")
    said = parser.parse_args()
    machines = MACHINES // 10 if said.quick else MACHINES
    found = asyncio.run(measure(machines))
    text = f"""# Azure Resource Manager's API over {machines:,} machines

forewarn {__version__}, Python {platform.python_version()}, `make bench BENCH=arm`; both APIs in one
process, without sockets, {ROUNDS} rounds in turn.

| | |
|---|---|
| first page of 500 machines, median | {found["first"] * 1000:.0f} ms |
| the slowest of them | {found["slowest"] * 1000:.0f} ms |
| the same of the control API (`GET {PEER}`) | {found["peer"] * 1000:.0f} ms |
| ratio | {found["first"] / found["peer"]:.2f} |
| all {found["pages"]:.0f} pages | {found["all"]:.1f} s |
| memory that the API takes, with its first use | {found["memory"]:.1f} MB |
"""
    sys.stdout.write(text)
    if said.keep:
        (HERE / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main()
