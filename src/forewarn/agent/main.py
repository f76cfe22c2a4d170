"""The agent as a process: its configuration, its signals, and the line that says it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from forewarn.agent.agent import Agent
from forewarn.agent.config.model import Config
from forewarn.agent.config.read import ConfigError, read
from forewarn.agent.running.dry_run import DryRunExecutor
from forewarn.agent.running.executor import Executor
from forewarn.agent.serve import attended
from forewarn.agent.state.store import StateStore, StateTaken, StateUnusable
from forewarn.agent.telemetry.log import AgentLog, secrets_in
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.client import AsyncClient, ClientError
from forewarn.support.text import visible

DRY_RUN = "--dry-run"


def main(words: list[str]) -> None:
    dry = DRY_RUN in words
    (file,) = [word for word in words if word != DRY_RUN]
    try:
        config = read(Path(file))
        for warning in config.warnings:
            _say(f"note: {warning}")
        asyncio.run(serve(config, dry=dry))
    except ConfigError as error:
        _fail(*error.problems)
    except (StateTaken, StateUnusable, ClientError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


async def serve(config: Config, *, dry: bool = False) -> None:
    """Until somebody says stop. Commands that run then go on, and are found by the next start."""
    shelf = None if dry else StateStore(config.state)
    client = AsyncClient(config.endpoint)
    counts = AgentMetrics(config.hooks.values())
    teller = AgentLog(secrets=secrets_in([hook.options for hook in config.hooks.values()]))
    tell = counts.hearing(teller)
    agent = Agent(
        config,
        client,
        lambda ended, tasks: (
            DryRunExecutor(tell) if shelf is None else Executor(shelf, ended, tasks)
        ),
        tell,
        dry=dry,
    )
    teller.hide(secrets_in([hook.options for case in agent.cases for hook in case.hooks]))
    for problem in shelf.unreadable if shelf else ():
        tell("trouble", about="state", why=problem)
    working = asyncio.get_running_loop().create_task(agent.run(lambda: _ready(agent)))
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is an exception there
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    try:
        async with attended(agent, counts, tell):
            with contextlib.suppress(asyncio.CancelledError):
                await working
    finally:
        await client.close()
        if shelf is not None:
            shelf.release()


def _ready(agent: Agent) -> None:
    assert agent.identity is not None
    said = {"machine": agent.identity.name, "endpoint": agent.client.standing.endpoint}
    print(f"ready {msgspec.json.encode(said).decode()}", flush=True)  # noqa: T201


def _fail(*problems: str) -> NoReturn:
    for problem in problems:
        _say(problem)
    sys.exit(1)


def _say(line: str) -> None:
    print(f"forewarn: {visible(line)}", file=sys.stderr)  # noqa: T201
