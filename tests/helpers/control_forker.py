"""Starts control nodes on one PostgreSQL state without paying for their imports each time.

Reads lines `NAME METADATA-PORT CONTROL-PORT`, forks for each, and is a control node in the child.
Prints `child NAME PID`, and `gone NAME STATUS` when it has ended.

control_forker.py URL SPEED
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading

import uvicorn.lifespan.off  # noqa: F401
import uvloop

import forewarn.control.app
import forewarn.control.server.acceptor
import forewarn.control.server.protocol
import forewarn.metadata.http.protocol
import forewarn.node.daemon.run
import forewarn.store.postgres.engine
from forewarn.core import Durations
from forewarn.core.time import SECOND
from forewarn.metadata.endpoint.callers import Identity
from forewarn.node import Address, Config

LEASE = SECOND  # shorter than an operator can have it


def config(url: str, speed: float, name: str, metadata: str, control: str) -> Config:
    return Config(
        state=url,
        name=name,
        lease=LEASE,
        rules=Durations(speed=speed),
        identity=Identity.TARGET,
        whole_loopback=True,
        metadata=Address("127.0.0.1", int(metadata)),
        control=Address("127.0.0.1", int(control)),
    )


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def reap(name: str, child: int) -> None:
    _, status = os.waitpid(child, 0)
    tell(f"gone {name} {os.waitstatus_to_exitcode(status)}")


def main(url: str, speed: str) -> None:
    forewarn.control.app.handlers()
    gc.collect()
    gc.freeze()  # which the children then need not look at
    for line in sys.stdin:
        name, metadata, control = line.split()
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            node = config(url, float(speed), name, metadata, control)
            uvloop.run(
                forewarn.node.daemon.run.run(
                    node, lambda _: None, lambda *_: contextlib.nullcontext()
                )
            )
            sys.exit(0)
        tell(f"child {name} {child}")
        threading.Thread(target=reap, args=(name, child), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
