"""Starts the service again and again without paying for its imports each time.

Reads a line, forks, and becomes `forewarn` in the child; the child is as much a process of its
own as any, and dies of kill -9 like any. Prints the child's number, and when it has gone.

With KEEP_INVENTORY in its environment, the sample fleet is applied at the first start only, as if
there were no fleet file: what was put into the fleet over the control API stays.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from typing import Any

import msgspec
import typer.main
import uvicorn.lifespan.off  # noqa: F401
import uvloop  # noqa: F401

import forewarn.cli.app
import forewarn.cli.commands.dev_config
import forewarn.control.app
import forewarn.control.server.acceptor
import forewarn.control.server.protocol
import forewarn.metadata.http.protocol
import forewarn.node.daemon.run
import forewarn.store.sqlite.engine


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def keep_inventory() -> None:
    configure = forewarn.cli.commands.dev_config.configure

    def without_fleet(**options: Any) -> Any:
        return msgspec.structs.replace(configure(**options), fleet=None)

    forewarn.cli.commands.dev_config.configure = without_fleet


if __name__ == "__main__":
    forewarn.control.app.handlers()
    typer.main.get_command = functools.cache(typer.main.get_command)
    commands: Any = typer.main.get_command(forewarn.cli.app.app)
    assert commands.commands["dev"]  # made when it is looked at
    gc.collect()
    gc.freeze()  # which the children then need not look at
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = ["forewarn", *sys.argv[1:]]
            forewarn.cli.app.app()
            sys.exit(0)
        tell(f"child {child}")
        if os.environ.pop("KEEP_INVENTORY", ""):
            keep_inventory()
        _, status = os.waitpid(child, 0)
        tell(f"gone {os.waitstatus_to_exitcode(status)}")
