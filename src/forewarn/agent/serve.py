"""Runs the agent's health endpoint, its heartbeat, and the notifications for a service manager.
None of them is needed to handle an event, so a failure here does not stop the agent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from forewarn.agent.agent import Agent
from forewarn.agent.config.address import ListenAddress, parse_listen
from forewarn.agent.telemetry.health import BEAT, AgentHealth
from forewarn.agent.telemetry.http import StatusServer
from forewarn.agent.telemetry.log import Log
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.support import guard, sd_notify
from forewarn.support.sd_notify import Notifier
from forewarn.support.text import counted

LISTEN_AGAIN = 30.0  # seconds until an address that was in use is tried again


@asynccontextmanager
async def serve_status(agent: Agent, metrics: AgentMetrics, log: Log) -> AsyncIterator[None]:
    config = agent.config
    state = None if agent.dry_run else config.state
    health = AgentHealth(lambda: agent.client.status, state, lambda: agent.identity is not None)
    server = StatusServer(agent.status, health, metrics)
    notifier = Notifier.from_environment(os.environ, _notifier_log(log))
    tasks = guard.Tasks(lambda name, error: log("problem", about=name, why=repr(error)))
    try:
        tasks.start(health.keep_beating(), "heartbeat")
        if config.listen:
            address = parse_listen(config.listen, anywhere=config.listen_anywhere)
            tasks.start(_listen(server, address, log), "listen")
        if notifier.connected:
            notifier.ready(_status_line(agent))
            notifications = notifier.keep_notifying(
                lambda: _status_line(agent), health.first_problem, BEAT
            )
            tasks.start(notifications, "service manager")
        yield
    finally:
        notifier.stopping()
        await tasks.end()
        await server.close()


def _notifier_log(log: Log) -> sd_notify.Log:
    """Return a log for the notifier, whose problems are the agent's."""

    def log_problem(level: str, message: str, /, **fields: Any) -> None:
        del level
        if "why" in fields:
            fields["because"] = fields.pop("why")
        log("problem", about="manager", why=message, **fields)

    return log_problem


async def _listen(server: StatusServer, address: ListenAddress, log: Log) -> None:
    """Listen, and keep trying while the address is in use: that is no reason not to handle
    events."""
    reported = ""
    while True:
        try:
            await server.listen(address)
        except OSError as error:
            reason = f"{address}: {error.strerror or error}"
            if reason != reported:
                log("problem", about="listen", why=reason)
            reported = reason
            await guard.pause(LISTEN_AGAIN)
        else:
            actual = address if address.path or address.port else server.address
            log("listening", at=str(actual))
            return


def _status_line(agent: Agent) -> str:
    """Return one line for `systemctl status`."""
    status = agent.client.status
    if status.endpoint is None:
        return "looking for the endpoint"
    if agent.identity is None:
        return f"asking {status.endpoint} for this machine's name"
    name = agent.identity.name
    if agent.snapshot is None:
        return f"{name}; {status.endpoint}: {status.problem or 'not answered yet'}"
    events = len(agent.snapshot.document.events)
    handled = sum(case.open for case in agent.cases)
    since = f"{status.since:%Y-%m-%d %H:%M:%S}Z"
    problem = f"; {status.problem} since {since}" if status.problem else ""
    dry_run = "; dry run" if agent.dry_run else ""
    listed = counted(events, "event")
    return f"{name}; {listed} listed, {handled} handled; {status.endpoint}{problem}{dry_run}"
