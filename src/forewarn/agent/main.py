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
from forewarn.agent.running.dry_run import DryRunners, MemoryStore
from forewarn.agent.running.runners import Runners
from forewarn.agent.serve import serve_status
from forewarn.agent.state.store import StateStore, StateTaken, StateUnusable
from forewarn.agent.telemetry.log import AgentLog, Log, secrets_in
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.client import AsyncClient, ClientError
from forewarn.support import child_signals
from forewarn.support.text import visible

DRY_RUN = "--dry-run"


def main(arguments: list[str]) -> None:
    dry_run = DRY_RUN in arguments
    (file,) = [argument for argument in arguments if argument != DRY_RUN]
    try:
        config = read(Path(file))
        for warning in config.warnings:
            _print_error(f"note: {warning}")
        child_signals.catch_ignored()
        asyncio.run(run(config, dry_run=dry_run))
    except ConfigError as error:
        _fail(*error.problems)
    except (StateTaken, StateUnusable, ClientError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


async def run(config: Config, *, dry_run: bool = False) -> None:
    """Run until a signal stops the agent. Commands that are running then go on, and the next agent
    process takes them over."""
    store = None if dry_run else StateStore(config.state)
    client = AsyncClient(config.endpoint)
    metrics = AgentMetrics(config.hooks.values())
    agent_log = AgentLog(secrets=secrets_in([hook.options for hook in config.hooks.values()]))
    log = metrics.counted(agent_log)
    agent = _make_agent(config, client, store, log)
    agent_log.hide(secrets_in([hook.options for case in agent.cases for hook in case.hooks]))
    for problem in store.unreadable if store else ():
        log("problem", about="state", why=problem)
    task = asyncio.get_running_loop().create_task(agent.run(lambda: _print_ready(agent)))
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is an exception there
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        async with serve_status(agent, metrics, log):
            with contextlib.suppress(asyncio.CancelledError):
                await task
    finally:
        await client.close()
        if store is not None:
            store.release()


def _make_agent(config: Config, client: AsyncClient, store: StateStore | None, log: Log) -> Agent:
    if store is None:
        memory = MemoryStore()
        dry = DryRunners(memory, log)
        return Agent(config, client, memory, lambda _on_end, _tasks: dry, log, dry_run=True)
    return Agent(config, client, store, lambda on_end, tasks: Runners(store, on_end, tasks), log)


def _print_ready(agent: Agent) -> None:
    assert agent.identity is not None
    facts = {"machine": agent.identity.name, "endpoint": agent.client.status.endpoint}
    print(f"ready {msgspec.json.encode(facts).decode()}", flush=True)  # noqa: T201


def _fail(*problems: str) -> NoReturn:
    for problem in problems:
        _print_error(problem)
    sys.exit(1)


def _print_error(line: str) -> None:
    print(f"forewarn: {visible(line)}", file=sys.stderr)  # noqa: T201
